// Expressions inside each other: the operations and their order are those of the statements.
#include "cuda/emit/nesting.h"

#include <gtest/gtest.h>

namespace fuseblock::cuda {
namespace {

// All in one text: the statements that are left, then the results.
std::string written(const std::vector<Statement>& statements, std::vector<std::string> results) {
  std::string text;
  for (const Statement& each : nested(statements, results)) text += each.name + " = " + each.value + "; ";
  for (const std::string& result : results) text += "-> " + result;
  return text;
}

TEST(CudaNesting, AValueThatIsTakenOnceStandsWhereItIsTaken) {
  EXPECT_EQ(written({{"t1", "x - y", true}, {"t2", "t1 * z", true}}, {"t2"}), "-> (x - y) * z");
  EXPECT_EQ(written({{"t1", "x * y", true}, {"t2", "t1 + z", true}}, {"t2"}), "-> x * y + z");
  EXPECT_EQ(written({{"t1", "x * y", true}, {"t2", "z - t1", true}}, {"t2"}), "-> z - x * y");
}

TEST(CudaNesting, TheOrderOfOperationsStays) {
  EXPECT_EQ(written({{"t1", "x - y", true}, {"t2", "t1 - z", true}}, {"t2"}), "-> x - y - z");
  EXPECT_EQ(written({{"t1", "x - y", true}, {"t2", "z - t1", true}}, {"t2"}), "-> z - (x - y)");
  EXPECT_EQ(written({{"t1", "x + y", true}, {"t2", "z + t1", true}}, {"t2"}), "-> z + (x + y)");
  EXPECT_EQ(written({{"t1", "x * y", true}, {"t2", "z * t1", true}}, {"t2"}), "-> z * (x * y)");
  EXPECT_EQ(written({{"t1", "x / y", true}, {"t2", "z / t1", true}}, {"t2"}), "-> z / (x / y)");
  EXPECT_EQ(written({{"t1", "x * y", true}, {"t2", "-t1", true}}, {"t2"}), "-> -(x * y)");
}

TEST(CudaNesting, ChoicesAndArguments) {
  EXPECT_EQ(written({{"t1", "x < y ? 1 : 0", true}, {"t2", "t1 != 0 ? x : z", true}}, {"t2"}),
            "-> x < y ? x : z");
  EXPECT_EQ(written({{"t1", "x + y", true}, {"t2", "maximum(t1, z)", true}}, {"t2"}), "-> maximum(x + y, z)");
  EXPECT_EQ(written({{"t1", "x + y", true}, {"t2", "f(z, -t1)", true}}, {"t2"}), "-> f(z, -(x + y))");
  EXPECT_EQ(written({{"t1", "sigmoid(x)", true}, {"t2", "z / t1", true}}, {"t2"}), "-> z / sigmoid(x)");
}

TEST(CudaNesting, WhatIsTakenTwiceHasAName) {
  EXPECT_EQ(written({{"t1", "x + y", true}, {"t2", "t1 * t1", true}}, {"t2"}), "t1 = x + y; -> t1 * t1");
  EXPECT_EQ(written({{"t1", "x + y", true}, {"t2", "t1 * z", true}}, {"t1", "t2"}),
            "t1 = x + y; -> t1-> t1 * z");
}

TEST(CudaNesting, WhatNothingTakesIsLeftOut) {
  EXPECT_EQ(written({{"t1", "x + y", true}, {"t2", "x * y", true}}, {"t2"}), "-> x * y");
}

TEST(CudaNesting, AStatementThatNestsNowhereKeepsWhatItTakes) {
  EXPECT_EQ(
      written({{"t1", "x * y", true}, {"rest1", "fmaf(x, y, -t1)", false}, {"t2", "f(t1, rest1)", true}},
              {"t2"}),
      "t1 = x * y; rest1 = fmaf(x, y, -t1); -> f(t1, rest1)");
}

TEST(CudaNesting, NamesOfMembersAndFunctionsAreNoValues) {
  EXPECT_EQ(written({{"t1", "x + y", true}, {"t2", "a.t1 * t1", true}}, {"t2"}), "-> a.t1 * (x + y)");
  EXPECT_EQ(written({{"t1", "x + y", true}, {"t2", "t1 * b->t1[t1]", true}}, {"t2"}),
            "t1 = x + y; -> t1 * b->t1[t1]");
}

}  // namespace
}  // namespace fuseblock::cuda
