// Convolutions of small whole numbers: every sum is exact in f32, so the CPU engine has exactly the reference
// engine's results, forward and both gradients, whatever the order of its sums. In bf16 and f16 each result
// is the exact one rounded once.
#include <gtest/gtest.h>

#include <algorithm>

#include "fuzz_support.h"
#include "random_blocks.h"

namespace fuseblock::cases {
namespace {

constexpr std::array<DType, 3> kTypes = {DType::kF32, DType::kBF16, DType::kF16};

bool has_convolutions_only(const Block& block) {
  return std::all_of(block.nodes().begin(), block.nodes().end(), [](const Node& node) {
    const OpCode code = node.operation->code;
    return code == OpCode::kConvolution || code == OpCode::kConvolutionGradInput ||
           code == OpCode::kConvolutionGradWeight;
  });
}

// Whole numbers from -3 to 3.
void fill(TensorMap& tensors, std::uint64_t seed) {
  for (auto& [name, tensor] : tensors) {
    fuzz::Random random(++seed);
    for (std::int64_t i = 0; i < tensor.type().element_count(); ++i)
      tensor.set(i, static_cast<double>(random.below(7)) - 3);
  }
}

TensorMap results(const TypedBlock& block, const Device& device, const TensorMap& arguments) {
  const Plan forward = Plan::make(block, device);
  TensorMap found = run(forward, arguments);
  for (auto& [name, tensor] : run(forward.backward(), arguments))
    found.insert_or_assign(name, std::move(tensor));
  return found;
}

// The largest absolute value: sums that stay below 2^24 are exact in f32.
double largest(const TensorMap& tensors) {
  double result = 0;
  for (const auto& [name, tensor] : tensors)
    for (double value : tensor.to_doubles()) result = std::max(result, std::abs(value));
  return result;
}

void expect_exact(const TypedBlock& block, std::uint64_t seed) {
  TensorMap arguments = random_arguments(block, seed);
  arguments.merge(random_output_gradients(block, seed));
  fill(arguments, seed);
  const TensorMap expected = results(block, Device::reference(), arguments);
  const TensorMap actual = results(block, Device::by_name("cpu"), arguments);
  ASSERT_LT(largest(expected), 0x1p24 / 8);
  for (const auto& [name, tensor] : expected)
    for (std::int64_t i = 0; i < tensor.type().element_count(); ++i)
      ASSERT_EQ(tensor.get(i), actual.at(name).get(i))
          << name << " " << to_string(tensor.type()) << " at " << i;
}

TEST(IntegerConvolution, CasesAreExact) {
  int count = 0;
  for (const Case& each : read_cases(case_files())) {
    if (!has_convolutions_only(Block::parse(each.block))) continue;
    SCOPED_TRACE(each.command("cpu"));
    for (DType dtype : kTypes) expect_exact(each.typed(dtype), 1);
    ++count;
  }
  EXPECT_GT(count, 100);
}

// Every convolution that random blocks have, by itself on their input.
TEST(IntegerConvolution, RandomOnesAreExact) {
  int count = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    random_blocks::RandomBlock block = random_blocks::generate(seed);
    const std::vector<random_blocks::Stage> stages = block.stages;
    for (const random_blocks::Stage& stage : stages) {
      if (!stage.operation.starts_with("conv") && stage.operation != "linear") continue;
      block.stages = {stage};
      block.stages[0].operands = {"x"};
      block.outputs = {stage.name};
      block.x.dtype = kTypes[seed % kTypes.size()];
      try {
        block.typed();
      } catch (const UserError&) {
        continue;  // made for a value of other extents
      }
      SCOPED_TRACE(block.repeat_line());
      expect_exact(block.typed(), seed);
      ++count;
    }
  }
  EXPECT_GT(count, 400);
}

}  // namespace
}  // namespace fuseblock::cases
