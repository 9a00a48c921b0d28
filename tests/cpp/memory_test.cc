// What a run of the CPU engine may touch: every case forward and backward in f32, with patterns around and
// between the elements of every tensor and around the workspace. Whatever the workspace holds beforehand,
// however the tensors lie in memory and however often it runs, the results have the same bits, and nothing
// but outputs and workspace is written.
#include <gtest/gtest.h>

#include "fuzz_support.h"
#include "placed_tensor.h"

namespace fuseblock::cases {
namespace {

const std::vector<Case>& all_cases() {
  static const std::vector<Case> kCases = read_cases(case_files());
  return kCases;
}

// A case's plans and its data.
struct Prepared {
  explicit Prepared(const Case& each) {
    const TypedBlock block = each.typed(DType::kF32);
    arguments = random_arguments(block, 1);
    for (auto& [name, tensor] : random_output_gradients(block, 2))
      arguments.insert_or_assign(name, std::move(tensor));
    plans.push_back(Plan::make(block, Device::by_name("cpu")));
    if (!block.differentiable().empty()) plans.push_back(plans[0].backward());
  }

  std::vector<Plan> plans;
  TensorMap arguments;
};

PlacedMap placed(const TensorMap& tensors, unsigned oddities, std::uint64_t seed = 0) {
  PlacedMap result;
  for (const auto& [name, tensor] : tensors) result.emplace(name, PlacedTensor(tensor, oddities, ++seed));
  return result;
}

void expect_same_bits(const TensorMap& expected, const TensorMap& actual, const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (const auto& [name, tensor] : expected)
    ASSERT_TRUE(same_bits(tensor, actual.at(name))) << name << " has other bits: " << what;
}

std::vector<std::byte> random_bytes(std::uint64_t seed) {
  fuzz::Random random(seed);
  std::vector<std::byte> bytes(1021);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
  return bytes;
}

// Bytes of which every float is NaN, infinite, huge, and nothing in particular.
const std::vector<std::pair<std::string, std::vector<std::byte>>>& poisons() {
  static const std::vector<std::pair<std::string, std::vector<std::byte>>> kPoisons = {
      {"NaN", {std::byte{0xff}}},
      {"infinities", {std::byte{0}, std::byte{0}, std::byte{0x80}, std::byte{0x7f}}},
      {"large numbers", {std::byte{0x7e}}},
      {"random bytes", random_bytes(1)},
      {"other random bytes", random_bytes(2)}};
  return kPoisons;
}

TEST(Memory, ContentsOfTheWorkspaceDoNotMatter) {
  for (const Case& each : all_cases()) {
    SCOPED_TRACE(each.command("cpu"));
    const Prepared prepared(each);
    const PlacedMap arguments = placed(prepared.arguments, 0);
    for (const Plan& plan : prepared.plans) {
      const TensorMap clean = run_placed(plan, arguments, {.poison = {std::byte{0}}});
      for (const auto& [what, bytes] : poisons())
        expect_same_bits(clean, run_placed(plan, arguments, {.poison = bytes}), "a workspace of " + what);
    }
  }
}

TEST(Memory, TheSameCallTwiceHasTheSameBits) {
  for (const Case& each : all_cases()) {
    SCOPED_TRACE(each.command("cpu"));
    const Prepared prepared(each);
    for (const Plan& plan : prepared.plans) {
      // The second run finds what the first one left.
      Workspace workspace(plan.workspace_bytes());
      std::vector<TensorMap> results;
      for (int time = 0; time < 2; ++time) {
        Arguments bound;
        TensorMap& outputs = results.emplace_back();
        for (const NamedType& input : plan.inputs())
          bound.inputs.push_back(std::as_const(prepared.arguments.find(input.name)->second).view());
        for (const NamedType& output : plan.outputs())
          bound.outputs.push_back(outputs.emplace(output.name, Tensor(output.type)).first->second.view());
        plan.run(bound, workspace.bytes());
      }
      expect_same_bits(results[0], results[1], "the second run");
    }
  }
}

// Tensors that lie anyhow: the numbers are the same wherever they are read from. Expanded inputs hold other
// numbers, and are compared with dense copies of them.
TEST(Memory, PlacesOfTensorsDoNotMatter) {
  for (const Case& each : all_cases()) {
    SCOPED_TRACE(each.command("cpu"));
    const Prepared prepared(each);
    for (unsigned oddities : {+kOffset, kGaps | kOffset, +kFlipped, +kPermuted, +kAnyOutput, +kAnyInput}) {
      const PlacedMap arguments = placed(prepared.arguments, oddities, oddities);
      TensorMap dense;
      for (const auto& [name, tensor] : arguments) dense[name] = tensor.dense();
      for (const Plan& plan : prepared.plans)
        expect_same_bits(run_placed(plan, placed(dense, 0), {}),
                         run_placed(plan, arguments, {.output_oddities = oddities & kAnyOutput, .seed = 7}),
                         "views " + std::to_string(oddities));
    }
  }
}

// The tests of the tests: what is written where it must not be is seen.
TEST(Memory, AWriteBesideATensorIsSeen) {
  const TensorType type = TensorType::make(DType::kF32, {2, 3, 4, 5});
  for (unsigned oddities : {0U, +kGaps, +kPermuted}) {
    PlacedTensor tensor(type, oddities, 3);
    EXPECT_TRUE(tensor.surroundings_are_intact());
    const TensorView view = tensor.view();
    store_element(view.data, view.dtype, 0, 1.5);
    EXPECT_TRUE(tensor.surroundings_are_intact());
    EXPECT_EQ(tensor.dense().get(0), 1.5);
    *(static_cast<std::byte*>(view.data) - 1) ^= std::byte{1};
    EXPECT_FALSE(tensor.surroundings_are_intact());
  }
}

TEST(Memory, AViewHoldsItsTensor) {
  const TensorType type = TensorType::make(DType::kF32, {2, 3, 4, 5}, Layout::kChannelsLast);
  Tensor numbers(type);
  for (std::int64_t i = 0; i < type.element_count(); ++i) numbers.set(i, static_cast<double>(i));
  for (unsigned oddities = 0; oddities <= kAnyOutput; ++oddities)
    EXPECT_TRUE(same_bits(PlacedTensor(numbers, oddities, oddities).dense(), numbers)) << oddities;
  EXPECT_FALSE(same_bits(PlacedTensor(numbers, kExpanded, 2).dense(), numbers));
}

}  // namespace
}  // namespace fuseblock::cases
