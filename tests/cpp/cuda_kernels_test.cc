// How schedules are cut into the kernels of the CUDA engine: which steps one launch does.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "cuda/arrange.h"
#include "cuda/kernels.h"

namespace fuseblock::cuda {
namespace {

TypedBlock typed(const std::string& block, const std::string& input) {
  return TypedBlock::infer(Block::parse(block), TensorType::parse(input));
}

Schedule arranged_schedule(const TypedBlock& block) {
  return arranged(make_schedule(block, Device::by_name("h200").description()));
}

// `rows columns`: the kernels in the order of their launches.
std::string names_of(const Schedule& schedule) {
  std::string text;
  for (const KernelCut& cut : cut_into_kernels(schedule)) {
    constexpr std::array<const char*, 6> kNames = {"rows", "columns", "finalise", "pool", "host", "slices"};
    text += (text.empty() ? "" : " ") + std::string(kNames[static_cast<std::size_t>(cut.kind)]);
  }
  return text;
}

std::string kernels_of(const TypedBlock& block) { return names_of(arranged_schedule(block)); }

struct Expectation {
  std::string block;
  std::string input;
  std::string forward;
  std::string backward;
};

TEST(CudaKernels, CutsOfTheMainBlocks) {
  const std::vector<Expectation> expectations = {
      {"group_norm(32) | silu", "bf16[2,320,64,64]", "rows", "rows"},
      {"instance_norm(affine=true) | leaky_relu(0.01)", "bf16[2,32,8,16,16]", "rows", "rows"},
      {"hardswish | group_norm(4) | mean(d,h,w)", "f32[64,16,13,29,29]", "rows", "rows"},
      {"relu | group_norm(8)", "f32[16,128,8,8,8]", "rows", "rows"},
      {"softmax(h,w)", "f32[2,8,16,16]", "rows", "rows"},
      // Both sweeps of a norm over channels, and all three of its gradient, are one launch, the gradients of its
      // parameters among them.
      {"layer_norm(c) | silu", "bf16[2,320,64,64]", "columns", "columns"},
      {"rms_norm(c) | silu", "bf16[2,320,64,64]", "columns", "columns"},
      {"layer_norm(c)", "f32[2,320,64,64]:cl", "columns", "columns"},
      // The sums of all channels are more than a block may hold.
      {"layer_norm(c) | silu", "f32[2,9000,8,8]", "columns", "columns rows"},
      {"layer_norm(c) | silu", "f64[2,5000,8,8]", "columns", "columns rows"},
      {"layer_norm(c, affine=false)", "bf16[2,320,64,64]", "columns", "columns"},
      {"softmax(c)", "bf16[2,19,64,64]", "columns", "columns"},
      {"l2_normalize(c) | silu", "bf16[2,96,64,64]", "columns", "columns"},
      {"logsumexp(c, keepdim)", "f32[2,64,30,30]", "columns", "columns"},
      {"max(c)", "f32[2,64,30,30]", "columns", "columns"},
      // A norm by groups, then a reduction over channels of what follows it.
      {"group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim)", "f32[2,64,30,30]",
       "rows columns", "rows columns rows"},
      // The same steps over channels_last tensors are another kernel.
      {"group_norm(32) | silu", "bf16[2,320,64,64]:cl", "slices", "slices"},
      {"hardswish | group_norm(4) | mean(d,h,w)", "f32[64,16,13,29,29]:cl", "slices", "slices"},
      {"silu", "bf16[2,320,64,64]:cl", "slices", "slices"},
      {"layer_norm(c) | silu", "bf16[2,320,64,64]:cl", "columns", "columns"},
      {"max_pool(2)", "f32[2,8,16,16]", "pool rows", "pool rows"},
      // Over some of the positions' axes: elements, merges, formulas, outputs.
      {"mean(w)", "f32[2,8,16,16]", "rows finalise finalise finalise", "rows"},
  };
  for (const Expectation& expected : expectations) {
    const TypedBlock block = typed(expected.block, expected.input);
    EXPECT_EQ(kernels_of(block), expected.forward) << expected.block;
    EXPECT_EQ(kernels_of(block.backward()), expected.backward) << "gradients of " << expected.block;
  }
}

// The sinks of a sweep that reduce over channels, and those that are other statistics.
std::pair<int, int> statistics_of(const Schedule& schedule, const Sweep& sweep) {
  std::pair<int, int> result = {0, 0};
  for (const Sink& sink : sweep.sinks)
    if (sink.kind == SinkKind::kStatistic)
      ++(schedule.graph[sink.part].axes == AxisSet{Axis::kC} ? result.first : result.second);
  return result;
}

TEST(CudaKernels, SumsOfChannelsAreTakenAlong) {
  const TypedBlock block = typed("layer_norm(c) | silu", "f32[2,16,8,8]").backward();
  const Schedule before = make_schedule(block, Device::by_name("h200").description());
  const Schedule after = arranged_schedule(block);
  EXPECT_EQ(after.sweep_count(), before.sweep_count());
  const std::vector<bool> gathered = gathered_sums(after);
  EXPECT_EQ(std::count(gathered.begin(), gathered.end(), true), 2);
  const bool mixed = std::any_of(after.steps.begin(), after.steps.end(), [&](const ScheduleStep& step) {
    const auto [over_channels, others] = statistics_of(after, step.sweep);
    return over_channels > 0 && others == 2;
  });
  EXPECT_TRUE(mixed);
  // What is made of them comes last.
  EXPECT_EQ(after.steps.back().kind, StepKind::kFinalise);
  const std::vector<KernelCut> cuts = cut_into_kernels(after);
  ASSERT_EQ(cuts.size(), 1U);
  EXPECT_EQ(cuts[0].last, static_cast<int>(after.steps.size()) - 1);
  EXPECT_EQ(cuts[0].remaining, after.steps.back().parts);
}

// The gradient of a norm by groups needs its sums before its last sweep: they are no gathered ones.
TEST(CudaKernels, SumsThatASweepReadsAreNotGathered) {
  const TypedBlock block = typed("group_norm(4) | tanh | logsumexp(c, keepdim)", "f32[2,16,8,8]").backward();
  const std::vector<bool> gathered = gathered_sums(arranged_schedule(block));
  EXPECT_EQ(std::count(gathered.begin(), gathered.end(), true), 0);
}

TEST(CudaKernels, ASweepOverChannelsAndPositionsIsTwo) {
  const TypedBlock block = typed("layer_norm(c) | silu", "f32[2,9000,8,8]").backward();
  const Schedule before = make_schedule(block, Device::by_name("h200").description());
  const Schedule after = arranged_schedule(block);
  EXPECT_EQ(after.sweep_count(), before.sweep_count() + 1);
  // The piece with statistics of each channel comes behind the others and keeps nothing that it does not need.
  const auto last = std::find_if(after.steps.rbegin(), after.steps.rend(),
                                 [](const ScheduleStep& step) { return step.kind == StepKind::kSweep; });
  ASSERT_NE(last, after.steps.rend());
  EXPECT_EQ(last->sweep.sinks.size(), 2U);
  for (const ScheduleStep& step : after.steps) {
    if (step.kind != StepKind::kSweep) continue;
    const auto [over_channels, others] = statistics_of(after, step.sweep);
    EXPECT_FALSE(over_channels > 0 && others > 0);
    for (const Formula::Step& each : step.sweep.steps)
      if (each.primitive == Primitive::kInput) {
        EXPECT_LT(each.input, static_cast<int>(step.sweep.inputs.size()));
      }
  }
}

TEST(CudaKernels, StatisticsOfThisKernelStayInIt) {
  const Schedule schedule = arranged_schedule(typed("layer_norm(c)", "f32[2,16,8,8]"));
  const std::vector<KernelCut> cuts = cut_into_kernels(schedule);
  ASSERT_EQ(cuts.size(), 1U);
  EXPECT_EQ(std::count(cuts[0].shared.begin(), cuts[0].shared.end(), true), 0);
}

TEST(CudaKernels, ConvolutionsAreRefused) {
  EXPECT_THROW(cut_into_kernels(arranged_schedule(typed("conv2d(8, k=3) | relu", "f32[1,3,8,8]"))),
               NotSupportedError);
}

// Convolutions that the host computes stand between launches.
TEST(CudaKernels, TailsOfKeptConvolutions) {
  auto host = std::make_shared<HostFunctions>();
  host->convolution = [](const auto&, auto, const auto&) {};
  const PlanOptions options = {.host = host, .keep_convolutions = true};
  auto kernels = [&](const TypedBlock& block) {
    return names_of(arranged(make_schedule(block, Device::by_name("h200").description(), options)));
  };
  const TypedBlock block =
      typed("conv3d(16, k=4) | hardswish | group_norm(4) | mean(d,h,w)", "f32[8,3,16,32,32]");
  EXPECT_EQ(kernels(block), "host rows");
  EXPECT_EQ(kernels(typed("group_norm(4) | silu | conv2d(8, k=3)", "f32[1,8,8,8]")), "rows host");
  EXPECT_EQ(kernels(block.backward({"conv3d.weight"})), "finalise host rows host");
}

}  // namespace
}  // namespace fuseblock::cuda
