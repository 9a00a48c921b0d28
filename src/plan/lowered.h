// A block taken apart for one side of training: the graph, and the values that cross its border beside arguments
// and outputs.
#pragma once

#include <string>
#include <vector>

#include "plan/graph.h"

namespace fuseblock {

// A value that forward leaves for backward.
struct SavedValue {
  std::string name;
  TensorType type;
  std::string reason;
};

struct Lowered {
  TypedBlock block;
  // Saved values that are written are outputs behind the block's; those that are read are arguments whose `saved`
  // numbers them.
  Graph graph;
  std::vector<SavedValue> saved;
  bool reads_saved = false;
};

}  // namespace fuseblock
