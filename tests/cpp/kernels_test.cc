// Which sweeps run together as one kernel, what they compute once for all of them, and which stored values lie in the
// memory of an output.
#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/unit_values.h"
#include "plan/borrow.h"
#include "plan/keep.h"

namespace fuseblock {
namespace {

Schedule schedule_of(const std::string& block, const std::string& input, Reuse reuse = Reuse::kStore) {
  return make_schedule(TypedBlock::infer(Block::parse(block), TensorType::parse(input)),
                       Device::by_name("h200").description(), reuse);
}

struct Expectation {
  std::string block;
  std::string input;
  int sweeps;
  int kernels;
  std::int64_t channels;  // of a unit, where there is one
};

TEST(Kept, NormsAreOneKernel) {
  const std::vector<Expectation> expectations = {
      {"group_norm(32) | silu", "f32[1,128,64,64]", 2, 1, 4},
      {"relu | group_norm(8)", "f32[2,128,10,10,10]", 2, 1, 16},
      {"instance_norm | relu", "f32[2,8,10,10]", 2, 1, 1},
      {"group_norm(1) | silu", "f32[16,8,10,10]", 2, 1, 8},
      // A first norm by groups of 2, a second by groups of 4 channels.
      {"group_norm(8) | silu | group_norm(4)", "f32[2,16,10,10]", 3, 1, 4},
      // Too few units to keep the cores busy; a unit that no cache holds; channels that are not neighbours in memory.
      {"group_norm(1) | silu", "f32[2,8,10,10]", 2, 2, 0},
      {"group_norm(8) | silu", "f32[4,32,512,512]", 2, 2, 0},
      {"group_norm(32) | silu", "f32[1,128,64,64]:cl", 2, 2, 0},
      // A convolution's sweep, and one over channels, stand by themselves.
      {"conv2d(16, k=3) | group_norm(4) | relu", "f32[4,8,10,10]", 2, 2, 0},
      {"layer_norm(c)", "f32[16,32,6,6]", 2, 2, 0},
  };
  for (const Expectation& expected : expectations) {
    Schedule schedule = schedule_of(expected.block, expected.input);
    schedule.kept = find_kept(schedule, 4);
    EXPECT_EQ(schedule.sweep_count(), expected.sweeps) << expected.block;
    EXPECT_EQ(schedule.kernel_count(), expected.kernels) << expected.block << " " << expected.input;
    if (expected.channels > 0) {
      ASSERT_EQ(schedule.kept.size(), 1U) << expected.block;
      EXPECT_EQ(schedule.kept[0].channels, expected.channels) << expected.block;
    }
  }
}

// The gradients of the weights are sums over samples: they are worked out when all units are done.
TEST(Kept, GradientsOfNormsAreOneKernel) {
  const TypedBlock block =
      TypedBlock::infer(Block::parse("group_norm(32) | silu"), TensorType::parse("f32[2,128,16,16]"));
  Schedule schedule = make_schedule(block.backward(), Device::by_name("h200").description());
  schedule.kept = find_kept(schedule, 4);
  EXPECT_EQ(schedule.sweep_count(), 3);
  EXPECT_EQ(schedule.kernel_count(), 1);
}

int count_of(const Sweep& sweep, Primitive primitive) {
  return static_cast<int>(
      std::count_if(sweep.steps.begin(), sweep.steps.end(),
                    [&](const Formula::Step& step) { return step.primitive == primitive; }));
}

Schedule gradients_of(const std::string& block, const std::string& input) {
  const TypedBlock typed = TypedBlock::infer(Block::parse(block), TensorType::parse(input));
  Schedule schedule = make_schedule(typed.backward(), Device::by_name("h200").description());
  schedule.kept = find_kept(schedule, 4);
  return schedule;
}

TEST(UnitValues, TheSlopeOfSiluIsComputedOnce) {
  Schedule schedule = gradients_of("group_norm(32) | silu", "bf16[2,128,16,16]");
  std::vector<Sweep*> sweeps;
  for (ScheduleStep& step : schedule.steps)
    if (step.kind == StepKind::kSweep) sweeps.push_back(&step.sweep);
  ASSERT_EQ(sweeps.size(), 3U);
  EXPECT_EQ(count_of(*sweeps[2], Primitive::kSigmoid), 1);
  const std::size_t inputs = sweeps[2]->inputs.size();

  const std::vector<cpu::UnitValue> values = cpu::share_unit_values(schedule, 4);

  ASSERT_EQ(values.size(), 1U);
  EXPECT_EQ(values[0].bytes, 4U * 16 * 16 * 4);  // four channels in f32
  EXPECT_EQ(schedule.kept[0].value_bytes, 4 * 16 * 16 * 4);
  EXPECT_EQ(sweeps[1]->sinks[0].slots, std::vector<int>{values[0].slot});
  EXPECT_EQ(count_of(*sweeps[1], Primitive::kSigmoid), 1);
  EXPECT_EQ(count_of(*sweeps[2], Primitive::kSigmoid), 0);
  // It comes in place of the gradient and of what only the slope took.
  EXPECT_LT(sweeps[2]->inputs.size(), inputs);
  EXPECT_TRUE(std::count(sweeps[2]->inputs.begin(), sweeps[2]->inputs.end(), values[0].slot) == 1);
}

TEST(UnitValues, NothingWhereItIsCheapOrNoUnit) {
  for (const auto& [block, input] :
       std::vector<std::pair<std::string, std::string>>{{"group_norm(32) | relu", "f32[2,128,16,16]"},
                                                        {"group_norm(32) | silu", "f32[2,128,16,16]:cl"},
                                                        {"group_norm(1) | silu", "f32[2,8,10,10]"}}) {
    Schedule schedule = gradients_of(block, input);
    EXPECT_TRUE(cpu::share_unit_values(schedule, 4).empty()) << block << " " << input;
  }
}

TEST(Borrowed, AConvolutionLiesWhereItsNormWillBe) {
  Schedule schedule = schedule_of("conv2d(16, k=3) | relu | group_norm(4)", "f32[4,8,10,10]");
  EXPECT_GT(schedule.stored_bytes(4), 0);
  borrow_outputs(schedule, DType::kF32);
  EXPECT_EQ(schedule.stored_bytes(4), 0);
}

TEST(Borrowed, NothingWhereTheOutputHasAnotherTypeOrExtents) {
  for (const char* input : {"bf16[4,8,10,10]", "f16[4,8,10,10]"}) {
    Schedule schedule = schedule_of("conv2d(16, k=3) | relu | group_norm(4)", input);
    const double before = schedule.stored_bytes(4);
    borrow_outputs(schedule, DType::kF32);
    EXPECT_EQ(schedule.stored_bytes(4), before) << input;
  }
  Schedule schedule = schedule_of("conv2d(16, k=3) | group_norm(4) | tanh | logsumexp(c)", "f32[4,8,10,10]");
  const double before = schedule.stored_bytes(4);
  borrow_outputs(schedule, DType::kF32);
  EXPECT_EQ(schedule.stored_bytes(4), before);
}

// Two outputs written by one sweep: either could find its value overwritten by the other.
TEST(Borrowed, NothingWhereOneSweepWritesSeveralOutputs) {
  Schedule schedule = schedule_of("a = avg_pool(x, 2); b = max_pool(x, 2); return b, a", "f32[2,3,6,8]");
  const double before = schedule.stored_bytes(4);
  borrow_outputs(schedule, DType::kF32);
  EXPECT_EQ(schedule.stored_bytes(4), before);
}

}  // namespace
}  // namespace fuseblock
