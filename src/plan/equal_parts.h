// Parts of two lowered blocks that are the same value: the same formula, statistic or window over the same
// arguments, by name.
#pragma once

#include <vector>

#include "plan/graph.h"

namespace fuseblock {

// By part of `graph`: the equal part of `other`, or -1.
std::vector<int> find_equal_parts(const TypedBlock& block, const Graph& graph, const TypedBlock& other_block,
                                  const Graph& other);

}  // namespace fuseblock
