// PlanOptions::fuse = false: every case, forward and every gradient, one operation after the other. In f64 against the
// reference engine; in f32 against the fused plan; the workspace holds no more results than are needed at once.
#include <gtest/gtest.h>

#include <cmath>

#include "cases.h"

namespace fuseblock::cases {
namespace {

const PlanOptions kUnfused = {.fuse = false};

// Outputs and gradients of a block.
TensorMap results(const TypedBlock& block, const Device& device, const PlanOptions& options) {
  TensorMap tensors = random_arguments(block, 1);
  for (auto& [name, tensor] : random_output_gradients(block, 2))
    tensors.insert_or_assign(name, std::move(tensor));
  const Plan forward = Plan::make(block, device, options);
  TensorMap result = run(forward, tensors);
  if (block.differentiable().empty()) return result;
  for (auto& [name, tensor] : run(forward.backward(), tensors))
    result.insert_or_assign(name, std::move(tensor));
  return result;
}

// The largest difference, relative to 1 + the largest value; infinite where one is NaN or infinite and the other is not
// the same.
double difference(const Tensor& expected, const Tensor& actual) {
  double largest = 0;
  double error = 0;
  for (std::int64_t i = 0; i < expected.type().element_count(); ++i) {
    const double wanted = expected.get(i);
    const double got = actual.get(i);
    if (std::isfinite(wanted) && std::isfinite(got)) {
      largest = std::max(largest, std::fabs(wanted));
      error = std::max(error, std::fabs(wanted - got));
    } else if (!(std::isnan(wanted) && std::isnan(got)) && wanted != got) {
      return std::numeric_limits<double>::infinity();
    }
  }
  return error / (1 + largest);
}

void expect_same(const TensorMap& expected, const TensorMap& actual, double tolerance) {
  ASSERT_EQ(expected.size(), actual.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    EXPECT_LE(difference(tensor, actual.at(name)), tolerance) << name;
  }
}

class Unfused : public ::testing::TestWithParam<std::string> {};

TEST_P(Unfused, AgreesWithTheReferenceOnEveryCase) {
  const Device device = Device::by_name(GetParam());
  for (const Case& each : read_cases(case_files())) {
    SCOPED_TRACE(each.name + ": " + each.block);
    const TypedBlock block = each.typed(DType::kF64);
    expect_same(results(block, Device::reference(), {}), results(block, device, kUnfused), 1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Unfused, ::testing::Values("cpu", "reference"),
                         [](const auto& name) { return name.param; });

TEST(Unfused, AgreesWithTheFusedPlanInF32) {
  for (const char* notation :
       {"conv3d(8, k=3) | group_norm(4) | mean(c,d,h,w)",
        "conv_transpose3d(8, k=3, bias=false) | relu | group_norm(4)",
        "conv3d(8, k=2) as y | hardswish | group_norm(2) | add(y) | logsumexp(c, keepdim)"}) {
    SCOPED_TRACE(notation);
    const TypedBlock block = TypedBlock::infer(Block::parse(notation), TensorType::parse("f32[2,4,6,7,8]"));
    const Device cpu = Device::by_name("cpu");
    expect_same(results(block, cpu, {}), results(block, cpu, kUnfused), 1e-4);
  }
}

TEST(Unfused, RoundsEachResultToItsType) {
  const Block block = Block::parse("mul(3) | add(1)");
  const Plan fused = Plan::make(block, "bf16[1,1]", {}, Device::by_name("cpu"));
  const Plan unfused = Plan::make(block, "bf16[1,1]", {}, Device::by_name("cpu"), kUnfused);
  TensorMap tensors;
  Tensor x(TensorType::parse("bf16[1,1]"));
  x.set(0, 85.5);  // 256.5 needs 9 bits and a half: bf16 rounds it to 256
  tensors.emplace("x", std::move(x));
  EXPECT_EQ(run(fused, tensors).at("add").get(0), 258);
  EXPECT_EQ(run(unfused, tensors).at("add").get(0), 256);
}

TEST(Unfused, KeepsOnlyWhatIsStillNeeded) {
  const std::size_t bytes = std::size_t{2} * 8 * 16 * 16 * 4;
  auto workspace = [](const char* notation) {
    return Plan::make(Block::parse(notation), "f32[2,8,16,16]", {}, Device::reference(), kUnfused)
        .workspace_bytes();
  };
  const std::size_t one_kept = workspace("relu | tanh");
  EXPECT_EQ(workspace("relu | tanh | relu"), one_kept + bytes);
  EXPECT_EQ(workspace("relu | tanh | relu | tanh | relu"), one_kept + bytes);
  EXPECT_EQ(workspace("relu as y | tanh | relu | tanh | add(y)"),
            workspace("relu as y | tanh | add(y)") + bytes);
}

TEST(Unfused, SaysSo) {
  const Plan plan = Plan::make(Block::parse("relu | tanh"), "f32[2,3]", {}, Device::best(), kUnfused);
  EXPECT_NE(plan.explain().find("one operation a sweep"), std::string::npos);
  EXPECT_FALSE(plan.backward().options().fuse);
}

TEST(Unfused, IsEachPlanOfAPair) {
  const Plan plan = Plan::make(Block::parse("conv2d(4, k=3) | group_norm(2)"), "f32[2,3,6,6]", {},
                               Device::by_name("cpu"), kUnfused);
  const TrainingPlans pair = plan.for_training();
  EXPECT_TRUE(pair.forward.saved().empty());
  EXPECT_NE(pair.forward.explain().find("one operation a sweep"), std::string::npos);
  EXPECT_NE(pair.backward.explain().find("one operation a sweep"), std::string::npos);
}

}  // namespace
}  // namespace fuseblock::cases
