// How many sweeps a block takes and what it writes in between: part of the design, so fixed here.
#include "plan/schedule.h"

#include <gtest/gtest.h>

#include "fuseblock/reference_blocks.h"

namespace fuseblock {
namespace {

struct Expectation {
  std::string block;
  std::string input;
  int sweeps;
  int stored;  // large values that are written to be read again
};

int stored_count(const Schedule& schedule) {
  int count = 0;
  for (const Slot& slot : schedule.slots)
    if (slot.kind == SlotKind::kStored) ++count;
  return count;
}

Schedule schedule_of(const std::string& block, const std::string& input, Reuse reuse,
                     const std::string& device = "h200") {
  return make_schedule(TypedBlock::infer(Block::parse(block), TensorType::parse(input)),
                       Device::by_name(device).description(), reuse);
}

TEST(Schedule, OfTheReferenceBlocks) {
  const std::vector<std::pair<std::string, int>> sweeps = {{"conv3d_gn_mean", 1},
                                                           {"conv3d_hardswish_gn_mean", 1},
                                                           {"conv3d_hardswish_gn_mean_k3", 1},
                                                           {"conv_transpose3d_relu_gn", 2},
                                                           {"conv2d_gn_tanh_hardswish_residual_lse", 2},
                                                           {"conv3d_gn_mean_tail", 1},
                                                           {"conv3d_hardswish_gn_mean_tail", 1},
                                                           {"conv_transpose3d_relu_gn_tail", 2},
                                                           {"conv2d_gn_tanh_hardswish_residual_lse_tail", 2}};
  for (const auto& [name, count] : sweeps) {
    const ReferenceBlock* block = find_reference_block(name);
    ASSERT_NE(block, nullptr) << name;
    const Schedule schedule =
        schedule_of(std::string(block->notation), std::string(block->input), Reuse::kRecompute);
    EXPECT_EQ(schedule.sweep_count(), count) << name;
    EXPECT_EQ(stored_count(schedule), 0) << name;
  }
}

TEST(Schedule, OfBlocksThatEndInAMeanNeverWritesTheConvolution) {
  for (const char* name : {"conv3d_gn_mean", "conv3d_hardswish_gn_mean"}) {
    const ReferenceBlock* block = find_reference_block(name);
    const Schedule schedule =
        schedule_of(std::string(block->notation), std::string(block->input), Reuse::kByCost);
    EXPECT_EQ(schedule.stored_bytes(4), 0) << name;
    EXPECT_TRUE(schedule.decisions.empty()) << name;
  }
}

TEST(Schedule, StoresAConvolutionWhenAskedTo) {
  const Schedule schedule =
      schedule_of("conv2d(8, k=3) | group_norm(4) | relu", "f32[1,4,16,16]", Reuse::kStore);
  EXPECT_EQ(schedule.sweep_count(), 2);
  EXPECT_EQ(stored_count(schedule), 1);
  ASSERT_EQ(schedule.decisions.size(), 1U);
  EXPECT_EQ(schedule.decisions[0].chosen, "store");
  EXPECT_EQ(schedule.decisions[0].reason, "asked for");
}

// The second convolution needs the norm of the first one's result whole while its own sweep starts from another source.
TEST(Schedule, SaysWhyAValueIsStoredThatWasNotToBe) {
  const Schedule schedule =
      schedule_of("conv2d(8, k=3) as y | group_norm(2) as g | conv2d(8, k=3, pad=1) | add(g)",
                  "f32[1,4,16,16]", Reuse::kRecompute);
  ASSERT_EQ(schedule.decisions.size(), 1U);
  EXPECT_EQ(schedule.decisions[0].chosen, "store");
  EXPECT_EQ(schedule.decisions[0].reason, "another sweep needs it whole");
}

TEST(Schedule, OnAnH200RecomputesAThinConvolutionAndStoresAThickOne) {
  const std::vector<std::pair<std::string, std::string>> chosen = {
      {"conv2d_gn_tanh_hardswish_residual_lse", "recompute"}, {"conv_transpose3d_relu_gn", "store"}};
  for (const auto& [name, choice] : chosen) {
    const ReferenceBlock* block = find_reference_block(name);
    const Schedule schedule =
        schedule_of(std::string(block->notation), std::string(block->input), Reuse::kByCost);
    EXPECT_EQ(schedule.sweep_count(), 2) << name;
    EXPECT_EQ(stored_count(schedule), choice == "store" ? 1 : 0) << name;
    ASSERT_EQ(schedule.decisions.size(), 1U) << name;
    const Decision& decision = schedule.decisions[0];
    EXPECT_EQ(decision.chosen, choice) << name;
    ASSERT_EQ(decision.alternatives.size(), 2U) << name;
    for (const Alternative& other : decision.alternatives) {
      EXPECT_GT(other.seconds, 0) << name;
      EXPECT_FALSE(other.detail.empty()) << name;
    }
  }
}

TEST(Schedule, OfBlocksOfRealNetworks) {
  const std::vector<Expectation> expectations = {
      {"group_norm(32) | silu", "f32[1,128,16,16]", 2, 0},
      {"group_norm(32, affine=false) | mul(scale) | add(shift) | silu", "f32[2,64,8,8]", 2, 0},
      {"conv3d(32, k=3, pad=1) | group_norm(32) | add(skip) | silu", "f32[1,16,4,6,6]", 2, 0},
      {"conv3d(32, k=3, pad=1) | instance_norm(affine=true) | leaky_relu(0.01)", "f32[1,8,6,6,6]", 2, 0},
      {"group_norm(32) | silu | conv2d(32, k=3, pad=1) | add(x)", "f32[1,32,12,12]", 2, 0},
      {"l2_normalize(c) | mul(gamma) | silu", "f32[1,32,4,6,6]", 2, 1},
      {"layer_norm(c)", "f32[2,32,6,6]", 2, 2},
      {"conv2d(16, k=3, pad=1, bias=false) | batch_norm | relu", "f32[1,8,12,12]", 1, 0},
      {"conv2d(16, k=3) | min(c, keepdim) | tanh | tanh", "f32[2,3,8,8]", 1, 0},
      {"mean(h,w) | linear(10)", "f32[2,16,6,6]", 2, 0},
      {"instance_norm | relu", "f32[2,8,10,10]", 2, 0},
      {"softmax(c)", "f32[2,8,10,10]", 2, 2},
      {"softmax(h,w)", "f32[2,8,10,10]", 2, 0},
      {"relu | mean(h,w)", "f32[2,8,10,10]", 1, 0},
      {"group_norm(4) | mean(h,w)", "f32[2,8,10,10]", 1, 0},
      {"group_norm(4) | sum(c,h,w)", "f32[2,8,10,10]", 1, 0},
      {"silu | mul(2) | add(skip)", "f32[2,8,10,10]", 1, 0},
      {"conv1d(16, k=3, pad=1) | gelu", "f32[1,8,64]", 1, 0},
      {"group_norm(4) | silu | conv2d(8, k=3, pad=1) | group_norm(4) | silu | conv2d(8, k=3, pad=1) | add(x)",
       "f32[1,8,12,12]", 4, 1},
      {"rms_norm(c)", "f32[2,16,6,6]", 2, 1},
  };
  // A device that computes what is convolved while it is staged.
  DeviceDescription device = Device::by_name("h200").description();
  device.tf32_rate = 0;
  for (const Expectation& expected : expectations) {
    const Schedule schedule =
        make_schedule(TypedBlock::infer(Block::parse(expected.block), TensorType::parse(expected.input)),
                      device, Reuse::kRecompute);
    EXPECT_EQ(schedule.sweep_count(), expected.sweeps) << expected.block;
    EXPECT_EQ(stored_count(schedule), expected.stored) << expected.block;
  }
}

// Tensor cores read it from memory, in the type that the block gives it.
TEST(Schedule, StoresWhatTensorCoresConvolve) {
  const Schedule schedule = schedule_of("group_norm(4) | silu | conv2d(8, k=3, pad=1) | add(x)",
                                        "bf16[1,8,12,12]", Reuse::kRecompute);
  EXPECT_EQ(schedule.sweep_count(), 3);
  EXPECT_EQ(stored_count(schedule), 1);
  for (const Slot& slot : schedule.slots)
    if (slot.kind == SlotKind::kStored) {
      EXPECT_EQ(slot.dtype, DType::kBF16);
    }
}

}  // namespace
}  // namespace fuseblock
