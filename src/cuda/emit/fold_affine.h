// Formulas whose chains of products and sums with constants are one product and one sum.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "fuseblock/formula.h"

namespace fuseblock::cuda {

struct FoldedSteps {
  std::vector<Formula::Step> steps;
  std::vector<int>
      places;  // of the wanted ones among the given steps; -1 for others that are not there any more
};

// `(x - m) * s + b` becomes `x * s + (b - m * s)` where m, s and b are made of inputs that `is_constant` names. What is
// made of those alone is worked out once for many x. Values differ by roundings: those of `m * s`, at most half a unit in
// the last place of |m * s|.
FoldedSteps fold_affine(std::span<const Formula::Step> steps, std::span<const int> wanted,
                        const std::function<bool(int)>& is_constant);

}  // namespace fuseblock::cuda
