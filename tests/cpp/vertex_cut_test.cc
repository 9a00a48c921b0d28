// The lightest cut, on graphs small enough to see it.
#include "plan/vertex_cut.h"

#include <gtest/gtest.h>

#include "fuseblock/error.h"

namespace fuseblock {
namespace {

using Vertices = std::vector<int>;

TEST(VertexCut, TakesTheLightestOfAChain) {
  VertexCut cut(3);
  cut.add_edge(0, 1);
  cut.add_edge(1, 2);
  cut.set_weight(0, 3);
  cut.set_weight(1, 1);
  cut.set_weight(2, 2);
  cut.add_start(0);
  cut.add_end(2);
  EXPECT_EQ(cut.solve(), Vertices{1});
}

TEST(VertexCut, OfEquallyLightOnesTakesTheNearestToTheEnd) {
  VertexCut cut(3);
  cut.add_edge(0, 1);
  cut.add_edge(1, 2);
  for (int vertex : {0, 1, 2}) cut.set_weight(vertex, 1);
  cut.add_start(0);
  cut.add_end(2);
  EXPECT_EQ(cut.solve(), Vertices{2});
}

// 0 feeds 1 and 2, both of which the ends need: together they are heavier than 0.
TEST(VertexCut, CutsBeforeAFork) {
  VertexCut cut(3);
  cut.add_edge(0, 1);
  cut.add_edge(0, 2);
  cut.set_weight(0, 3);
  cut.set_weight(1, 2);
  cut.set_weight(2, 2);
  cut.add_start(0);
  cut.add_end(1);
  cut.add_end(2);
  EXPECT_EQ(cut.solve(), Vertices{0});
  VertexCut lighter(3);
  lighter.add_edge(0, 1);
  lighter.add_edge(0, 2);
  lighter.set_weight(0, 5);
  lighter.set_weight(1, 2);
  lighter.set_weight(2, 2);
  lighter.add_start(0);
  lighter.add_end(1);
  lighter.add_end(2);
  EXPECT_EQ(lighter.solve(), (Vertices{1, 2}));
}

// The first way found goes over the middle, and flow has to be sent back over it.
TEST(VertexCut, SendsFlowBack) {
  VertexCut cut(4);  // 0 -> 2, 0 -> 3, 1 -> 3
  cut.add_edge(0, 3);
  cut.add_edge(0, 2);
  cut.add_edge(1, 3);
  for (int vertex : {0, 1, 2, 3}) cut.set_weight(vertex, 1);
  cut.add_start(0);
  cut.add_start(1);
  cut.add_end(2);
  cut.add_end(3);
  EXPECT_EQ(cut.solve(), (Vertices{2, 3}));
}

TEST(VertexCut, OfUnconnectedSidesIsEmpty) {
  VertexCut cut(2);
  cut.add_start(0);
  cut.add_end(1);
  EXPECT_EQ(cut.solve(), Vertices{});
}

TEST(VertexCut, NeedsAVertexWithAWeightOnEveryWay) {
  VertexCut cut(2);
  cut.add_edge(0, 1);
  cut.add_start(0);
  cut.add_end(1);
  EXPECT_THROW(cut.solve(), InternalError);
}

}  // namespace
}  // namespace fuseblock
