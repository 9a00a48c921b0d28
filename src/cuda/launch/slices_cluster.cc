// How units of the kernel `slices` are divided that fit into the registers of a cluster.
#include <algorithm>

#include "cuda/launch/slices.h"

namespace fuseblock::cuda {
namespace {

constexpr int kWarpThreads = 32;
constexpr int kMostThreads = 1024;
constexpr int kRegisterBytes = 4;
constexpr int kRegistersOfMultiprocessor = 65536;
constexpr int kMostRegisters = 255;
// Of a thread, beside its vectors, where the arithmetic is in single precision: sums, channels' values, addresses.
constexpr int kOtherRegisters = 56;
// What all GPUs with clusters take.
constexpr int kLargestCluster = 8;

// Figures of the cost model, fitted to an H200.
constexpr double kLaunch = 7.5e-6;
constexpr double kElementInstructions = 18;
constexpr double kIssueRate = 128 * 1.7e9 * 0.66;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Registers that a thread may have.
int registers_of(int threads, int blocks) {
  return std::min(kMostRegisters, kRegistersOfMultiprocessor / (threads * blocks) / 8 * 8);
}

}  // namespace

std::optional<SlicesDivision> divide_cluster(const Gpu& gpu, const SlicesWork& work, const SlicesWidth& width,
                                             const SlicesChoice& choice) {
  std::optional<SlicesDivision> best;
  const bool open = choice.team == 0 && choice.ring == 0 && choice.ahead == 0 && choice.cluster != 1;
  if (!gpu.architecture->clusters || !open || work.passes < 2 || work.statistics == 0) return best;
  const std::int64_t columns = width.channels * width.constants.row_positions / width.constants.vector;
  const std::int64_t row_warps = ceil_div(columns, kWarpThreads);
  const std::int64_t warp_rows = std::max<std::int64_t>(1, kWarpThreads / columns);
  const std::int64_t rows = ceil_div(work.positions, width.constants.row_positions);
  const std::int64_t units = work.samples * (work.channels / width.channels);
  const int other = work.smallest_bytes == 8 ? 2 * kOtherRegisters : kOtherRegisters;
  for (int cluster = 2; cluster <= 2 * kLargestCluster; ++cluster) {
    if (choice.cluster > 0 ? cluster != choice.cluster : cluster != kLargestCluster) continue;
    for (int pieces = 1; pieces <= 64; ++pieces) {
      if (choice.pieces > 0 && pieces != choice.pieces) continue;
      const std::int64_t warps = ceil_div(rows, warp_rows * pieces * cluster) * row_warps;
      const std::int64_t threads = choice.threads > 0 ? choice.threads : warps * kWarpThreads;
      if (threads > kMostThreads || threads < warps * kWarpThreads || threads < width.channels) continue;
      const int wanted = pieces * width.constants.vector * work.input_bytes / kRegisterBytes + other;
      for (int blocks : {2, 1}) {
        if (choice.blocks > 0 && blocks != choice.blocks) continue;
        if (wanted > registers_of(static_cast<int>(threads), blocks)) continue;
        const std::int64_t at_once = std::int64_t{gpu.multiprocessors} * blocks;
        // All at work at once.
        if (units * cluster > at_once && choice.cluster == 0) continue;
        const std::int64_t of_multiprocessor = ceil_div(units * cluster, gpu.multiprocessors);
        const double issue =
            static_cast<double>(of_multiprocessor * threads * pieces * width.constants.vector) *
            kElementInstructions / kIssueRate;
        const double seconds = kLaunch + issue;
        if (best && seconds >= best->seconds) continue;
        best = SlicesDivision{width.constants, width.channels, cluster, static_cast<int>(units), 1, 1};
        best->constants.cluster = cluster;
        best->constants.team = cluster;
        best->constants.pieces = pieces;
        best->constants.threads = static_cast<int>(threads);
        best->constants.blocks = blocks;
        best->constants.ring = 0;
        best->units = units;
        best->seconds = seconds;
      }
    }
  }
  return best;
}

}  // namespace fuseblock::cuda
