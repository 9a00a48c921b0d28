// Pointwise operations, by their formula, and the operations that only move elements.
#include <vector>

#include "reference/operations.h"

namespace fuseblock::reference {
namespace {

// The formula at one position. `results` has a place for the result of each step.
double evaluate_at(const Formula& formula, std::span<const ConstArray> operands, const Position& at,
                   std::span<double> results) {
  const std::span<const Formula::Step> steps = formula.steps();
  const auto result = [&](std::int32_t step) { return step < 0 ? 0.0 : results[step]; };
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Formula::Step& step = steps[i];
    if (step.primitive == Primitive::kInput) {
      results[i] = operands[step.input][at];
    } else if (step.primitive == Primitive::kConstant) {
      results[i] = step.constant;
    } else {
      results[i] = evaluate(step.primitive, result(step.a), result(step.b), result(step.c));
    }
  }
  return results.back();
}

}  // namespace

void pointwise(const Formula& formula, std::span<const ConstArray> operands, Array y) {
  std::vector<double> results(formula.steps().size());
  for_each(y.extents, [&](const Position& at) { y[at] = evaluate_at(formula, operands, at, results); });
}

// A cast declares another dtype; the values are rounded only where an output is stored.
void cast(ConstArray x, Array y) {
  for_each(y.extents, [&](const Position& at) { y[at] = x[at]; });
}

void zeros(Array y) {
  for_each(y.extents, [&](const Position& at) { y[at] = 0; });
}

void expand(ConstArray x, bool share, Array y) {
  std::int64_t copies = 1;
  for (int axis = 0; axis < kAxisCount; ++axis)
    if (x.extents[axis] == 1) copies *= y.extents[axis];
  const double divisor = share ? static_cast<double>(copies) : 1;
  for_each(y.extents, [&](const Position& at) { y[at] = x[at] / divisor; });
}

}  // namespace fuseblock::reference
