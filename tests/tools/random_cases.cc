// Random load-sourced blocks as lines of a .cases file, for engines that are tested elsewhere:
//
//   random_cases [COUNT] [FIRST_SEED] > tests/gpu/random.cases
//
// Blocks with convolutions are passed over, and those that say nothing about an engine: ill-conditioned ones, and such
// without elements.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>

#include "engine_agreement.h"

namespace fuseblock::random_blocks {
namespace {

bool is_load_sourced(const TypedBlock& block) {
  for (const Node& node : block.block().nodes())
    if (node.operation->name.starts_with("conv") || node.operation->name.starts_with("linear")) return false;
  for (const NamedType& argument : block.arguments())
    if (argument.type.element_count() == 0) return false;
  return true;
}

// PyTorch, which results are compared with, refuses the first one (a norm over one value); the gradient of the second is what
// rounding leaves of a difference.
constexpr std::array<std::uint64_t, 2> kLeftOut = {91, 450};

int print(std::uint64_t count, std::uint64_t seed) {
  std::cout
      << "# Random blocks, by build/tests/tools/random_cases; tests/gpu/test_cases.py --random runs them.\n";
  for (std::uint64_t found = 0; found < count; ++seed) {
    const RandomBlock block = generate(seed);
    if (std::find(kLeftOut.begin(), kLeftOut.end(), seed) != kLeftOut.end()) continue;
    if (!is_load_sourced(block.typed()) || compare_engines(block).verdict != Verdict::kAgrees) continue;
    std::cout << "random_" << seed << ": " << block.case_text() << "\n";
    ++found;
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace fuseblock::random_blocks

int main(int count, char** words) {
  const auto number = [&](int i, std::uint64_t otherwise) {
    return count > i ? std::strtoull(words[i], nullptr, 10) : otherwise;
  };
  return fuseblock::random_blocks::print(number(1, 300), number(2, 1));
}
