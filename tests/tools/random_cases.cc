// Random blocks as lines of a .cases file, for engines that are tested elsewhere:
//
//   random_cases [COUNT] [FIRST_SEED] > tests/gpu/random.cases
//   random_cases [COUNT] [FIRST_SEED] convolutions > tests/gpu/random_conv.cases
//
// Those without convolutions, or those with some. Passed over are those that say nothing about an engine: ill-conditioned ones, and such
// without elements.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <span>

#include "engine_agreement.h"

namespace fuseblock::random_blocks {
namespace {

bool has_convolutions(const TypedBlock& block) {
  const std::span<const Node> nodes = block.block().nodes();
  return std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
    return node.operation->name.starts_with("conv") || node.operation->name.starts_with("linear");
  });
}

bool has_elements(const TypedBlock& block) {
  for (const NamedType& argument : block.arguments())
    if (argument.type.element_count() == 0) return false;
  return true;
}

// PyTorch, which results are compared with, refuses the first one (a norm over one value) and the last two (a padded average pool
// of an image smaller than its window); the gradient of the second is what rounding leaves of a difference.
constexpr std::array<std::uint64_t, 4> kLeftOut = {91, 450, 549, 586};

int print(std::uint64_t count, std::uint64_t seed, bool convolutions) {
  std::cout
      << "# Random blocks, by build/tests/tools/random_cases; tests/gpu/test_cases.py --random runs them.\n";
  for (std::uint64_t found = 0; found < count; ++seed) {
    const RandomBlock block = generate(seed);
    if (std::find(kLeftOut.begin(), kLeftOut.end(), seed) != kLeftOut.end()) continue;
    if (has_convolutions(block.typed()) != convolutions || !has_elements(block.typed())) continue;
    if (compare_engines(block).verdict != Verdict::kAgrees) continue;
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
  return fuseblock::random_blocks::print(number(1, 300), number(2, 1), count > 3);
}
