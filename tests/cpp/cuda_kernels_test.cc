// How schedules are cut into the kernels of the CUDA engine: which steps one launch does.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "cuda/arrange.h"
#include "cuda/conv_sum.h"
#include "cuda/emit/formula_text.h"
#include "cuda/kernels.h"
#include "cuda/launch/conv.h"
#include "cuda/launch/conv_deep.h"
#include "cuda/launch/conv_roll.h"
#include "cuda/launch/conv_wide.h"
#include "fuseblock/plan.h"

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
    constexpr std::array<const char*, 9> kNames = {"rows",   "columns", "finalise",  "pool",       "host",
                                                   "slices", "conv",    "conv_wide", "conv_direct"};
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
      // Both sweeps of a norm over channels, and all three of its gradient, are one launch, the gradients of
      // its parameters among them.
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
  // The piece with statistics of each channel comes behind the others and keeps nothing that it does not
  // need.
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

// Blocks over a convolution: those with few channels are one launch for each sweep, the others store it
// first.
// What a kernel `rows` reads may all vary over some axes alone: then there is nothing for a ring.
TEST(CudaKernels, InputsThatAreSpreadOverPositions) {
  for (const char* layout : {"", ":cl"}) {
    const Plan plan =
        Plan::make(Block::parse("add(skip) | group_norm(2)"), std::string("f32[2,6,5,1]") + layout,
                   {{"skip", TensorType::parse("f32[1,6,5,7]")}}, Device::by_name("h200"));
    EXPECT_NE(plan.explain().find("  1  rows"), std::string::npos) << plan.explain();
  }
}

TEST(CudaKernels, CutsOfConvolutions) {
  const std::vector<Expectation> expectations = {
      {"conv3d(24, k=3) | group_norm(8) | mean(c,d,h,w)", "f32[128,3,24,32,32]", "conv", ""},
      {"conv3d(16, k=4) | hardswish | group_norm(4) | mean(d,h,w)", "f32[1024,3,16,32,32]", "conv", ""},
      {"conv2d(64, k=3) as y | group_norm(16) | tanh | hardswish | add(y) | logsumexp(c, keepdim)",
       "f32[128,8,128,128]", "conv conv", ""},
      {"conv2d(64, k=3) | silu", "bf16[2,8,32,32]", "conv", ""},
      {"conv2d(64, k=3)", "bf16[2,8,32,32]", "conv", ""},
      // Many channels; transposes, whose windows are flipped ones; groups. What needs reductions over
      // channels is stored.
      {"conv_transpose3d(128, k=3, bias=false) | relu | group_norm(8)", "f32[16,64,32,32,32]",
       "conv_wide rows", ""},
      {"conv2d(128, k=3, pad=1) | group_norm(32) | silu", "bf16[1,128,256,256]", "conv_wide rows", ""},
      {"conv3d(32, k=3, pad=1) | instance_norm(affine=true) | leaky_relu(0.01)", "bf16[2,32,64,64,64]",
       "conv_wide rows", ""},
      {"conv2d(128, k=3) | group_norm(8) | mean(h,w)", "f32[8,64,32,32]", "conv_wide", ""},
      {"conv2d(64, k=1, groups=4)", "f32[2,64,32,32]", "conv_wide", ""},
      {"conv_transpose2d(8, k=3) | group_norm(2)", "f32[2,8,32,32]", "conv_wide conv_wide", ""},
      {"conv2d(256, k=3) | softmax(c)", "f32[2,256,32,32]", "conv_wide columns", ""},
      // What a norm in front leaves is stored.
      {"group_norm(4) | silu | conv2d(8, k=3, pad=1)", "f32[2,8,32,32]", "rows conv", ""},
      {"group_norm(4) | silu | conv2d(128, k=3, pad=1)", "bf16[2,128,32,32]", "rows conv_wide", ""},
      // f64, one channel a group, transposes with strides, padding that repeats elements.
      {"conv2d(64, k=3) | silu", "f64[2,8,32,32]", "conv_direct rows", ""},
      {"conv2d(8, k=3, groups=8) | silu", "f32[2,8,32,32]", "conv_direct rows", ""},
      {"conv_transpose2d(16, k=2, stride=2) | relu", "f32[2,16,32,32]", "conv_direct rows", ""},
      {"conv2d(8, k=3, pad=1, pad_mode=reflect)", "f32[2,8,32,32]", "conv_direct", ""},
  };
  for (const Expectation& expected : expectations)
    EXPECT_EQ(kernels_of(typed(expected.block, expected.input)), expected.forward) << expected.block;
}

// Tiles of convolutions on GPUs with much and little shared memory.
TEST(CudaKernels, TilesOfConvolutionsFit) {
  struct Case {
    std::string block;
    std::string input;
    ConvMode mode;
  };
  const std::vector<Case> cases = {
      {"conv3d(16, k=4)", "f32[8,3,16,32,32]", ConvMode::kTf32},
      {"conv3d(24, k=3)", "f32[8,3,24,32,32]", ConvMode::kStrict},
      {"conv2d(64, k=3)", "f32[8,8,128,128]", ConvMode::kStrict},
      {"conv2d(64, k=7, stride=2, pad=3)", "bf16[2,3,224,224]", ConvMode::k16Bits},
      {"conv2d(5, k=3, pad=1)", "f32[1,1,2000,3001]", ConvMode::kTf32},
      {"conv1d(3, k=9, dilation=7, pad=40)", "f16[1,2,100]", ConvMode::k16Bits},
  };
  for (const Case& each : cases)
    for (const char* architecture : {"sm_80", "sm_89", "sm_90a"}) {
      const Schedule schedule = arranged_schedule(typed(each.block, each.input));
      ConvWork work;
      work.conv = conv_sum(schedule, schedule.steps[0].sweep.source);
      work.mode = each.mode;
      work.element_bytes = each.mode == ConvMode::k16Bits ? 2 : 4;
      const Gpu gpu = {&jit::architecture(architecture), 100};
      constexpr int kShared = 20'000;
      const ConvConstants constants = divide_conv(gpu, work, kShared);
      const std::int64_t bytes =
          work.conv.in_channels * constants.volume * work.element_bytes * constants.stages + kShared;
      EXPECT_LE(bytes, gpu.architecture->shared_bytes_block) << each.block << " " << architecture;
      EXPECT_LE(bytes * constants.blocks, gpu.architecture->shared_bytes_multiprocessor) << each.block;
      EXPECT_GE(constants.plane, constants.pitch * constants.box[1]);
      EXPECT_GE(constants.volume, constants.plane * constants.box[0]);
      EXPECT_EQ(constants.box[2] % constants.vector, 0);
      EXPECT_EQ(constants.pitch % constants.vector, 0);
      EXPECT_EQ((constants.lead - work.conv.geometry.pad[2]) * (constants.vector == 1 ? 1 : 0), 0);
      EXPECT_EQ(constants.lead % constants.vector, 0);
    }
}

// The same with many channels; a stage of weights is a whole part of a filter row.
TEST(CudaKernels, TilesOfWideConvolutionsFit) {
  struct Case {
    std::string block;
    std::string input;
    ConvMode mode;
  };
  const std::vector<Case> cases = {
      {"conv_transpose3d(128, k=3)", "f32[16,64,32,32,32]", ConvMode::kTf32},
      {"conv_transpose3d(128, k=3)", "f32[16,64,32,32,32]", ConvMode::kStrict},
      {"conv2d(512, k=3, pad=1)", "bf16[1,512,64,64]", ConvMode::k16Bits},
      {"conv2d(64, k=1)", "f32[1,4000,8,8]", ConvMode::kStrict},
      {"conv1d(40, k=31, pad=15)", "f16[1,24,5000]", ConvMode::k16Bits},
      {"conv2d(16, k=7, stride=2, pad=3)", "f32[1,16,224,2000]", ConvMode::kTf32},
      {"conv3d(8, k=3, dilation=2)", "f32[2,8,9,9,9]", ConvMode::kStrict},
  };
  for (const Case& each : cases)
    for (const char* architecture : {"sm_80", "sm_89", "sm_90a"})
      for (const bool vectors : {false, true}) {
        const Schedule schedule = arranged_schedule(typed(each.block, each.input));
        ConvWideWork work;
        work.conv = conv_sum(schedule, schedule.steps[0].sweep.source);
        work.mode = each.mode;
        work.element_bytes = each.mode == ConvMode::k16Bits ? 2 : 4;
        work.values_bytes = 30'000;
        work.list_numbers = 3;
        work.kept_numbers = 2;
        work.vectors = vectors;
        const Gpu gpu = {&jit::architecture(architecture), 100};
        const ConvWideConstants constants = divide_conv_wide(gpu, work);
        const int bytes = conv_wide_bytes(constants, work);
        EXPECT_LE(bytes, gpu.architecture->shared_bytes_block) << each.block << " " << architecture;
        EXPECT_LE(bytes * constants.blocks, gpu.architecture->shared_bytes_multiprocessor) << each.block;
        EXPECT_EQ(work.conv.geometry.filter[2] % constants.row_taps, 0);
        EXPECT_EQ(constants.columns % 2, 0);
        EXPECT_GE(constants.stages, 2);
        const ConvWideTiles tiles = conv_wide_tiles(constants, work);
        EXPECT_GE(tiles.of_span * constants.tile(), work.conv.out[0] * work.conv.out[1] * work.conv.out[2]);
        EXPECT_EQ(tiles.weight_bytes % 16, 0);
      }
}

// Divisions of `conv_deep` fit, cover the result, and leave no block without a tile.
TEST(CudaKernels, DeepConvolutionsFit) {
  struct Case {
    const char* block;
    const char* input;
    ConvMode mode;
    bool taken;
  };
  const std::vector<Case> cases = {
      {"conv_transpose3d(128, k=3)", "f32[16,64,32,32,32]", ConvMode::kTf32, true},
      {"conv_transpose3d(128, k=3)", "f32[16,64,32,32,32]", ConvMode::kStrict, true},
      {"conv2d(512, k=3, pad=1)", "bf16[1,512,64,64]", ConvMode::k16Bits, true},
      {"conv2d(130, k=3, pad=1)", "f32[1,100,9,2000]", ConvMode::kStrict, true},
      {"conv1d(40, k=31, pad=15)", "f16[1,40,5000]", ConvMode::k16Bits, true},
      {"conv3d(48, k=3, dilation=2)", "f32[2,32,19,19,19]", ConvMode::kStrict, true},
      {"conv2d(96, k=3, groups=3)", "f32[2,96,32,32]", ConvMode::kTf32, true},
      {"conv2d(64, k=1)", "f32[1,64,64,64]", ConvMode::kStrict, false},
      {"conv2d(64, k=3, stride=2)", "f32[1,64,64,64]", ConvMode::kStrict, false},
      {"conv2d(64, k=3)", "f32[1,8,64,64]", ConvMode::kTf32, false},
      {"conv2d(16, k=3)", "f32[1,64,64,64]", ConvMode::kTf32, false},
  };
  const Gpu gpu = {&jit::architecture("sm_90a"), 132};
  for (const Case& each : cases) {
    const Schedule schedule = arranged_schedule(typed(each.block, each.input));
    ConvWideWork work;
    work.conv = conv_sum(schedule, schedule.steps[0].sweep.source);
    work.mode = each.mode;
    work.element_bytes = each.mode == ConvMode::k16Bits ? 2 : 4;
    work.values_bytes = 10'000;
    work.list_numbers = 3;
    EXPECT_EQ(conv_deepens(gpu, work), each.taken) << each.block;
    EXPECT_FALSE(conv_deepens({&jit::architecture("sm_100a"), 132}, work)) << each.block;
    if (!each.taken) continue;
    const ConvDeepConstants constants = divide_conv_deep(gpu, work);
    EXPECT_LE(conv_deep_bytes(constants, work), gpu.architecture->shared_bytes_block) << each.block;
    EXPECT_EQ(constants.columns % 8, 0);
    EXPECT_LE(constants.columns, each.mode == ConvMode::kStrict ? 184 : 256);
    EXPECT_GE(constants.stages, 3);
    for (const std::int64_t blocks : {std::int64_t{1}, std::int64_t{132}, std::int64_t{100'000}}) {
      const ConvDeepTiles tiles = conv_deep_tiles(constants, work, blocks);
      const std::int64_t filter_depths = work.conv.geometry.filter[0];
      EXPECT_GE(tiles.of_span * constants.tile(), work.conv.out[0] * work.conv.out[1] * work.conv.out[2]);
      EXPECT_EQ(tiles.weight_bytes % 16, 0);
      EXPECT_GE(tiles.cost, tiles.all());
      if (tiles.depth_cost != 0) {
        EXPECT_GE(tiles.cost, blocks * (tiles.depth_cost * filter_depths + 1)) << each.block;
      }
    }
    work.wishes = ConvWishes::parse("columns=32");
    EXPECT_EQ(divide_conv_deep(gpu, work).columns, 32) << each.block;
    for (const char* wishes : {"deep=0", "columns=20"}) {
      work.wishes = ConvWishes::parse(wishes);
      EXPECT_FALSE(conv_deepens(gpu, work)) << each.block << " " << wishes;
    }
  }
}

// The input of tiles that go on to the next plane: rows that only one plane needs follow those of the other.
TEST(CudaKernels, BoxesOfWideConvolutions) {
  const Schedule schedule = arranged_schedule(typed("conv3d(16, k=3)", "f32[2,16,9,6,12]"));
  const ConvSum conv = conv_sum(schedule, schedule.steps[0].sweep.source);
  // 16 positions in strips of ten columns are three rows at most, of four in a plane.
  const ConvBox box = conv_box(conv, 16, 10);
  EXPECT_EQ(box.crossings, 1);
  EXPECT_EQ(box.rows, 3 + 2 + 2);
  EXPECT_EQ(box.columns, 12);
  // Eight neighbouring positions are in different banks of 16 bytes, whether a row ends among them or not.
  EXPECT_EQ(box.pitch, 18);
  EXPECT_GE(box.quad, 3 * box.rows * box.pitch);
  EXPECT_EQ(box.quad % 8, 4);
}

// What FUSEBLOCK_CONV asks for is what the division has.
TEST(CudaKernels, WishesForTheDivisionOfConvolutions) {
  const Schedule schedule = arranged_schedule(typed("conv3d(16, k=4)", "f32[8,3,16,32,32]"));
  ConvWork work;
  work.conv = conv_sum(schedule, schedule.steps[0].sweep.source);
  work.mode = ConvMode::kTf32;
  const Gpu gpu = {&jit::architecture("sm_90a"), 132};
  work.wishes = ConvWishes::parse("threads=128,blocks=3,rows=2,stages=1,promote=8,down=0,tile=2x5x29");
  const ConvConstants constants = divide_conv(gpu, work, 0);
  EXPECT_EQ(constants.threads, 128);
  EXPECT_EQ(constants.blocks, 3);
  EXPECT_EQ(constants.rows, 2);
  EXPECT_EQ(constants.stages, 1);
  EXPECT_EQ(constants.promote, 8);
  EXPECT_FALSE(constants.down);
  EXPECT_EQ(constants.tile, (std::array<int, 3>{2, 5, 29}));
  // Products below each other need rows by the number of products.
  work.wishes = ConvWishes::parse("rows=4,tile=1x6x29");
  EXPECT_FALSE(divide_conv(gpu, work, 0).down);
  work.wishes = ConvWishes::parse("blocks=2,tile=13x29x29");
  EXPECT_THROW(divide_conv(gpu, work, 0), NotSupportedError);
  for (const char* text : {"warps=4", "rows", "rows=", "rows=x", "rows=0", "threads=100", "stages=3",
                           "tile=3x4", "tile=0x1x1", "tile="})
    EXPECT_THROW(ConvWishes::parse(text), UserError) << text;
}

ConvWork work_of(const std::string& block, const std::string& input, ConvMode mode) {
  const Schedule schedule = arranged_schedule(typed(block, input));
  ConvWork work;
  work.conv = conv_sum(schedule, schedule.steps[0].sweep.source);
  work.mode = mode;
  work.element_bytes = mode == ConvMode::k16Bits ? 2 : 4;
  return work;
}

// Which convolutions roll over the depth, by rows of which elements; strips that fit.
TEST(CudaKernels, ConvolutionsThatRoll) {
  using Pack = std::array<int, 3>;
  struct Case {
    std::string block;
    std::string input;
    ConvMode mode;
    Pack pack;  // 0 where it does not
  };
  constexpr Pack kNot = {0, 0, 0};
  const std::vector<Case> cases = {
      {"conv3d(24, k=3)", "f32[8,3,24,32,32]", ConvMode::kTf32, {4, 1, 1}},
      {"conv3d(24, k=3)", "bf16[8,3,24,32,32]", ConvMode::k16Bits, {2, 1, 4}},
      {"conv3d(16, k=4)", "f32[8,3,16,32,32]", ConvMode::kStrict, {1, 1, 4}},
      {"conv3d(16, k=4)", "f16[8,3,16,32,32]", ConvMode::k16Bits, {1, 2, 4}},
      {"conv2d(64, k=3)", "f32[8,8,128,128]", ConvMode::kStrict, {4, 1, 1}},
      {"conv2d(5, k=3, pad=1)", "f32[1,1,2000,3001]", ConvMode::kTf32, {1, 1, 4}},
      // Rows of the image are as many as a row of bytes has elements.
      {"conv2d(8, k=(4,5))", "f32[1,1,30,40]", ConvMode::kStrict, {1, 4, 1}},
      {"conv3d(8, k=3, dilation=(1,2,3))", "f32[2,3,9,9,9]", ConvMode::kStrict, {4, 1, 1}},
      // Strides, dilated depths, groups, flipped windows.
      {"conv2d(24, k=3, stride=(1,2))", "f32[2,3,24,24]", ConvMode::kTf32, kNot},
      {"conv3d(8, k=3, dilation=(2,1,1))", "f32[2,3,9,9,9]", ConvMode::kStrict, kNot},
      {"conv2d(8, k=3, groups=2)", "f32[2,4,9,9]", ConvMode::kStrict, kNot},
      {"conv_transpose2d(8, k=3)", "f32[2,4,9,9]", ConvMode::kStrict, kNot},
      // More weights than there is room for, more sums than registers, an input too far apart.
      {"conv2d(64, k=7)", "f32[2,3,64,64]", ConvMode::kStrict, kNot},
      {"conv3d(64, k=3)", "f32[2,1,8,8,8]", ConvMode::kStrict, kNot},
      {"conv3d(64, k=4)", "f32[2,1,8,8,8]", ConvMode::kStrict, kNot},
      {"conv2d(8, k=5, dilation=(2,400), pad=(0,800))", "f32[1,1,20,40]", ConvMode::kStrict, kNot},
  };
  const Gpu gpu = {&jit::architecture("sm_90a"), 132};
  for (const Case& each : cases) {
    const ConvWork work = work_of(each.block, each.input, each.mode);
    EXPECT_EQ(conv_rolls(gpu, work), each.pack != kNot) << each.block << " " << each.input;
    for (const char* other : {"sm_80", "sm_89", "sm_100a", "sm_120"})
      EXPECT_FALSE(conv_rolls({&jit::architecture(other), 132}, work)) << each.block << " " << other;
    if (each.pack == kNot) continue;
    EXPECT_EQ(conv_roll_pack(work.conv, work.element_bytes), each.pack) << each.block << " " << each.input;
    constexpr int kShared = 70'000;
    const ConvRollConstants constants =
        divide_conv_roll(gpu, work, [](const ConvRollConstants&) { return kShared; });
    const int bytes = constants.stage_bytes + kShared;
    EXPECT_LE(bytes, gpu.architecture->shared_bytes_block) << each.block;
    EXPECT_LE(bytes * constants.blocks, gpu.architecture->shared_bytes_multiprocessor) << each.block;
    const auto tiles = conv_roll_tiles(constants, work.conv);
    const ConvSum form = constants.folded ? folded(work.conv) : work.conv;
    EXPECT_GE(tiles[0] * constants.threads / 2 * constants.products(), form.out[1] * constants.width)
        << each.block;
    EXPECT_GE(tiles[1] * constants.width, form.out[2]) << each.block;
    EXPECT_GE(tiles[2] * constants.depths, form.out[0]) << each.block;
    EXPECT_LE(constants.width, 512);
    EXPECT_TRUE(!constants.windows || constants.pack[2] == 4) << each.block;
  }
}

// What FUSEBLOCK_CONV asks of strips.
TEST(CudaKernels, WishesForStrips) {
  const Gpu gpu = {&jit::architecture("sm_90a"), 132};
  ConvWork work = work_of("conv2d(16, k=3)", "f32[8,8,128,128]", ConvMode::kTf32);
  const auto divided = [&](const std::string& wishes) {
    work.wishes = ConvWishes::parse(wishes);
    return divide_conv_roll(gpu, work, [](const ConvRollConstants&) { return 20'000; });
  };
  EXPECT_FALSE(divided("fold=0").folded);
  EXPECT_TRUE(divided("fold=1").folded);
  const ConvRollConstants constants = divided("threads=256,rows=2,blocks=1");
  EXPECT_EQ(constants.threads, 256);
  EXPECT_EQ(constants.rows, 2);
  EXPECT_EQ(constants.blocks, 1);
  EXPECT_THROW(divided("threads=512,rows=4,blocks=8"), NotSupportedError);
  EXPECT_THROW(divided("threads=96"), NotSupportedError);
  // Depths are not rows of an image.
  work = work_of("conv3d(16, k=3)", "f32[8,3,9,16,16]", ConvMode::kTf32);
  EXPECT_THROW(divided("fold=1"), NotSupportedError);
  EXPECT_EQ(ConvWishes::parse("roll=0").roll, 0);
}

// Four neighbouring taps of eight neighbouring positions are eleven neighbouring words.
TEST(CudaKernels, ReadsWithoutConflicts) {
  const Schedule schedule = arranged_schedule(typed("conv2d(8, k=4)", "f32[1,3,35,35]"));
  ConvWork work;
  work.conv = conv_sum(schedule, schedule.steps[0].sweep.source);
  work.mode = ConvMode::kTf32;
  ConvConstants constants;
  constants.pitch = 35;
  constants.plane = 35 * 35;
  constants.volume = constants.plane;
  EXPECT_EQ(conv_conflicts(constants, work), 1);
  // With three taps a row the fourth term is in the next row: in the same bank where rows are 32 words apart.
  const Schedule three = arranged_schedule(typed("conv2d(8, k=3)", "f32[1,3,34,32]"));
  work.conv = conv_sum(three, three.steps[0].sweep.source);
  constants.pitch = 32;
  constants.plane = constants.volume = 34 * 32;
  EXPECT_GT(conv_conflicts(constants, work), 1.3);
}

// A convolution that two sweeps read is stored once.
TEST(CudaKernels, AStoredConvolutionIsComputedOnce) {
  const Schedule schedule = arranged_schedule(
      typed("conv2d(64, k=3, groups=2) as y | group_norm(16) | add(y) | logsumexp(c)", "f32[2,8,32,32]"));
  int sources = 0;
  for (const ScheduleStep& step : schedule.steps)
    if (step.kind == StepKind::kSweep && step.sweep.source >= 0) ++sources;
  EXPECT_EQ(sources, 1);
}

// A hardswish is found in its formula, other selects are left alone.
TEST(CudaKernels, HardswishIsOneFunction) {
  auto statements = [](const std::string& block) {
    const Schedule schedule = arranged_schedule(typed(block, "f32[2,8,4,4]"));
    Text text;
    write_statements(
        text, schedule.steps[0].sweep.steps, [](int) { return std::string("x"); }, "real", true,
        Rounding{.branchless = true});
    return text.str();
  };
  EXPECT_NE(statements("hardswish").find("= branchless::hardswish(x);"), std::string::npos);
  EXPECT_NE(statements("relu | hardswish").find("= branchless::hardswish("), std::string::npos);
  EXPECT_EQ(statements("hardsigmoid | leaky_relu(0.1)").find("hardswish"), std::string::npos);
}

TEST(CudaKernels, GradientsByWeightsAreRefused) {
  const TypedBlock backward = typed("conv2d(8, k=3) | relu", "f32[1,3,8,8]").backward();
  EXPECT_THROW(cut_into_kernels(arranged_schedule(backward)), NotSupportedError);
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
