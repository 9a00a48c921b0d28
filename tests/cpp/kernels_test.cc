// Which sweeps run together as one kernel, and which stored values lie in the memory of an output.
#include <gtest/gtest.h>

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
