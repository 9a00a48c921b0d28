#include "cuda/emit/around_sigmoid.h"

#include <algorithm>

namespace fuseblock::cuda {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

// The program as far as `wanted` needs it.
std::vector<Formula::Step> needed(std::span<const Formula::Step> steps,
                                  const std::vector<std::int32_t>& wanted) {
  std::vector<bool> taken(steps.size(), false);
  for (const std::int32_t step : wanted) taken[at(step)] = true;
  std::vector<Formula::Step> result(steps.size());
  for (std::size_t i = steps.size(); i-- > 0;) {
    if (!taken[i]) continue;
    result[i] = steps[i];
    for (const std::int32_t operand : {steps[i].a, steps[i].b, steps[i].c})
      if (operand >= 0) taken[at(operand)] = true;
  }
  return result;
}

}  // namespace

std::optional<AroundSigmoid> around_sigmoid(std::span<const Formula::Step> steps, int inputs,
                                            const std::vector<std::int32_t>& wanted) {
  const auto is_sigmoid = [](const Formula::Step& step) { return step.primitive == Primitive::kSigmoid; };
  std::vector<Formula::Step> whole = needed(steps, wanted);
  const auto found = std::find_if(whole.begin(), whole.end(), is_sigmoid);
  if (found == whole.end() || std::count_if(whole.begin(), whole.end(), is_sigmoid) > 1) return std::nullopt;
  AroundSigmoid result;
  result.operand = found->a;
  result.input = inputs;
  result.before = needed(steps, {result.operand});
  *found = {.primitive = Primitive::kInput, .input = inputs};
  result.behind = needed(whole, wanted);
  return result;
}

}  // namespace fuseblock::cuda
