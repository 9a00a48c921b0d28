#include "cuda/emit/sigmoid_pairs.h"

namespace fuseblock::cuda {

std::int32_t only_sigmoid(std::span<const Formula::Step> steps) {
  std::int32_t found = -1;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].primitive != Primitive::kSigmoid) continue;
    if (found >= 0) return -1;
    found = static_cast<std::int32_t>(i);
  }
  return found;
}

std::vector<Formula::Step> behind_sigmoid(std::span<const Formula::Step> steps, std::int32_t sigmoid,
                                          int input) {
  std::vector<Formula::Step> result(steps.begin(), steps.end());
  result[static_cast<std::size_t>(sigmoid)] = {.primitive = Primitive::kInput, .input = input};
  return result;
}

void write_pairs_hold(Text& text, bool pairs) {
  text.line("static __device__ bool hold(float products) { return " +
            std::string(pairs ? "products < kPairsHold" : "true") + "; }");
}

}  // namespace fuseblock::cuda
