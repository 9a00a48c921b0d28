// How kernels `columns` divide their work: every division fits the GPU, covers all tiles, and is what was asked for.
#include <gtest/gtest.h>

#include "cuda/launch/columns.h"

namespace fuseblock::cuda {
namespace {

constexpr std::int64_t kMostSumBytes = 65536;

ColumnsWork work_of(ColumnsAccess access, std::int64_t channels, int element_bytes, int sums) {
  ColumnsWork work;
  work.access = access;
  work.channels = channels;
  work.positions = 4096;
  work.samples = 2;
  work.smallest_bytes = element_bytes;
  work.input_bytes = 2 * element_bytes;
  work.real_bytes = element_bytes == 8 ? 8 : 4;
  work.state_bytes = 6 * work.real_bytes;
  work.sweeps = 3;
  work.results = 4;
  work.channel_inputs = 2;
  work.sums = sums;
  return work;
}

// Bytes of shared memory that a block takes, as the text counts them.
std::int64_t shared_bytes(const ColumnsWork& work, const ColumnsConstants& constants) {
  const std::int64_t steps = columns_steps(constants, work.channels);
  const std::int64_t lists =
      constants.team == 1
          ? 0
          : std::int64_t{constants.team + 1} * columns_tile(constants) * work.state_bytes + 256;
  std::int64_t tile = lists;
  if (constants.residency == Residency::kShared)
    tile += steps * constants.positions * constants.elements * work.input_bytes * constants.threads;
  const std::int64_t sums = steps * constants.elements * work.sums * work.real_bytes * constants.threads;
  return constants.sums_in_shared ? tile + sums : std::max(tile, sums);
}

TEST(CudaColumns, EveryDivisionFitsEveryGpu) {
  for (const jit::Architecture& architecture : jit::architectures())
    for (const ColumnsAccess access :
         {ColumnsAccess::kAlongPositions, ColumnsAccess::kAlongChannels, ColumnsAccess::kStrided})
      for (const int element_bytes : {2, 4, 8})
        for (const int sums : {0, 1, 2, 5})
          for (const std::int64_t channels :
               {1, 2, 3, 10, 31, 64, 77, 320, 512, 1000, 2048, 4096, 8192, 20000}) {
            const ColumnsWork work = work_of(access, channels, element_bytes, sums);
            if (channels * sums * work.real_bytes > kMostSumBytes) continue;
            const ColumnsConstants constants = divide_columns({&architecture, 100}, work);
            // The flag of `is_last_of` is static.
            EXPECT_LE(shared_bytes(work, constants) + (sums > 0 ? 128 : 0), architecture.shared_bytes_block)
                << architecture.name << " " << channels << " channels of " << element_bytes << " bytes, "
                << sums << " sums";
            EXPECT_GE(columns_tile(constants), 1);
            EXPECT_EQ(sums == 0 && constants.sums_in_shared, false);
          }
}

TEST(CudaColumns, BlocksHaveAllTilesOnce) {
  const Gpu gpu = {&jit::architecture("sm_90a"), 132};
  for (const std::int64_t positions : {1, 7, 100, 4096, 65536})
    for (const std::int64_t samples : {1, 3, 64})
      for (const bool by_sample : {false, true}) {
        ColumnsWork work = work_of(ColumnsAccess::kAlongChannels, 320, 2, 2);
        work.positions = positions;
        work.samples = samples;
        const ColumnsConstants constants = divide_columns(gpu, work);
        ColumnsText text;
        text.sums = 2;
        text.by_sample = by_sample;
        const ColumnsDivision division = divide_tiles(gpu, work, constants, text);
        EXPECT_LE(division.blocks, 264);
        EXPECT_GE(division.blocks * division.block_tiles, division.tiles);
        EXPECT_LT((division.blocks - 1) * division.block_tiles, division.tiles);
        EXPECT_GE(division.bundles() * division.bundle, division.blocks);
        EXPECT_GE(division.tiles * columns_tile(constants), positions * samples);
        EXPECT_EQ(division.spans, by_sample ? samples : 1);
        if (by_sample) {
          EXPECT_EQ(division.tiles % division.sample_tiles, 0);
        }
      }
}

TEST(CudaColumns, ATileThatCannotBeIsRefused) {
  const Gpu gpu = {&jit::architecture("sm_90a"), 132};
  const ColumnsWork work = work_of(ColumnsAccess::kAlongPositions, 320, 2, 2);
  EXPECT_EQ(columns_tile(divide_columns(gpu, work, {.tile = 64})), 64);
  EXPECT_EQ(divide_columns(gpu, work, {.residency = KernelResidency::kMemory}).residency,
            Residency::kNowhere);
  EXPECT_EQ(divide_columns(gpu, work, {.residency = KernelResidency::kShared}).residency, Residency::kShared);
  EXPECT_THROW(divide_columns(gpu, work, {.tile = 7}), UserError);
  const ColumnsWork large = work_of(ColumnsAccess::kAlongPositions, 20000, 4, 0);
  EXPECT_THROW(divide_columns(gpu, large, {.residency = KernelResidency::kRegisters}), UserError);
}

TEST(CudaColumns, ChoicesForKernelsThatNoPlanOfAPairHasAreRefused) {
  const TypedBlock block =
      TypedBlock::infer(Block::parse("group_norm(8)"), TensorType::parse("f32[2,16,8,8]"));
  const Device h200 = Device::by_name("h200");
  EXPECT_NO_THROW(Plan::make_training(block, {}, h200, {.kernels = {.team = 1}}));
  EXPECT_THROW(Plan::make_training(block, {}, h200, {.kernels = {.tile = 64}}), UserError);
}

}  // namespace
}  // namespace fuseblock::cuda
