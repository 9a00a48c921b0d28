// Expressions that one function computes in one loop (FusedSteps), found among the steps of a program.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cpu/vector/tile_ops.h"
#include "fuseblock/formula.h"

namespace fuseblock::cpu {

struct PatternMatch {
  FusedSteps fused{};
  std::vector<std::int32_t> operands;  // steps, in the order in which the function takes them
};

// Where a step is the result of such an expression. The steps that it is made of, apart from its operands and constants,
// must satisfy `may_be_inside`; others may use them too, they are then computed here and there. A division by a constant
// must have become a product.
std::optional<PatternMatch> find_pattern(std::span<const Formula::Step> steps, std::int32_t step,
                                         const std::function<bool(std::int32_t)>& may_be_inside);

}  // namespace fuseblock::cpu
