// How the kernel `slices_cluster` divides its work: units of `slices` that fit into the registers of a cluster.
#include <algorithm>

#include "cuda/launch/registers.h"
#include "cuda/launch/slices.h"

namespace fuseblock::cuda {
namespace {

constexpr int kWarpThreads = 32;
constexpr int kMostThreads = 1024;
constexpr int kGranule = 128;  // threads of a multiprocessor, a warp in each of its four parts
// Of a warp that are one tile of moments (device/vector_statistics.cuh).
constexpr int kTilePositions = 64;
// What all GPUs with clusters take.
constexpr int kLargestCluster = 8;
constexpr int kMostBlocks = 4;
constexpr int kMostChannels = 512;  // whose lists fit into shared memory

// The widest group that was measured to be faster; one of 256 channels was not.
constexpr int kWidestGroup = 64;

// Figures of the cost model, seconds on an H200, fitted to the times of a hundred divisions of 14 shapes (4 % apart on average): of a
// launch with its statistics; of each element of a multiprocessor, each thread, each vector of a thread, whose code is read; of each
// block of a cluster and each further one of a multiprocessor; shares of the bytes' time, and of that of sectors and lines of which
// a slice has only some.
constexpr double kLaunch = 5.3e-6;
constexpr double kElement = 0.09e-9;
constexpr double kThread = 0.6e-9;
constexpr double kPiece = 0.03e-6;
constexpr double kMember = 0.04e-6;
constexpr double kShared = 0.09e-6;
constexpr double kBytes = 0.79;
constexpr double kWasted = 0.15;
constexpr double kDefaultBandwidth = 2e12;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Registers that a thread wants.
int registers_wanted(const SlicesWork& work, int vector, int pieces) {
  const int vectors = pieces * vector * work.input_bytes / kRegisterBytes;
  // Sums, channels' values, addresses; counted in compiled code.
  const int others = work.smallest_bytes == 8 ? 96 : 34 + 4 * vector;
  return vectors + others + 24 * (work.statistics - 1);
}

double memory_seconds(const Gpu& gpu, const SlicesWork& work, std::int64_t channels) {
  const double bandwidth = gpu.memory_bandwidth > 0 ? gpu.memory_bandwidth : kDefaultBandwidth;
  const double elements = static_cast<double>(work.samples * work.channels * work.positions);
  return elements * (work.input_bytes + work.output_bytes) / bandwidth *
         (kBytes + kWasted * (slice_waste(work, channels) - 1));
}

// Of a multiprocessor's threads, each with so many elements. Its four parts have a warp each at a time.
double block_seconds(std::int64_t threads, int elements) {
  const std::int64_t whole = ceil_div(threads, kGranule) * kGranule;
  return static_cast<double>(whole) * (elements * kElement + kThread);
}

// Rows of a unit: how many, of a warp at the same time, and warps that share one.
struct Rows {
  std::int64_t count, of_warp, warps;
};

Rows rows_of(const SlicesWork& work, const SlicesWidth& width) {
  const std::int64_t columns = width.channels * width.constants.row_positions / width.constants.vector;
  return {ceil_div(work.positions, width.constants.row_positions),
          std::max<std::int64_t>(1, kWarpThreads / columns), ceil_div(columns, kWarpThreads)};
}

// Threads of a block: for its rows, `parts` of which are a thread's or another block's, and for each channel.
std::int64_t threads_of(const Rows& rows, std::int64_t channels, int parts) {
  const std::int64_t threads = rows.warps * kWarpThreads;
  return threads * std::max(ceil_div(rows.count, rows.of_warp * parts), ceil_div(channels, threads));
}

// Blocks of a multiprocessor with which all units are at work at once; 0 where there are none.
int blocks_for(std::int64_t units, int cluster) {
  for (int blocks = 1; blocks <= kMostBlocks; ++blocks)
    if (units <= clusters_at_once(cluster, blocks)) return blocks;
  return 0;
}

}  // namespace

bool suits_clusters(const Gpu& gpu, const SlicesWork& work) {
  return has_measured_clusters(gpu) && work.group_statistics && work.passes == 2 && work.statistics == 1 &&
         work.inputs == 1 && work.smallest_bytes < 8 && work.group <= kWidestGroup;
}

std::optional<SlicesDivision> divide_cluster(const Gpu& gpu, const SlicesWork& work, const SlicesWidth& width,
                                             const SlicesChoice& choice) {
  std::optional<SlicesDivision> best;
  const bool fits = gpu.architecture->clusters && width.channels <= kMostChannels;
  if (!fits || work.passes < 2 || work.statistics == 0) return best;
  const Rows rows = rows_of(work, width);
  const std::int64_t units = work.samples * (work.channels / width.channels);
  // An empty batch has no clusters.
  if (units == 0) return best;
  const double memory = memory_seconds(gpu, work, width.channels);
  for (int cluster = 2; cluster <= kLargestCluster; ++cluster) {
    if (choice.cluster > 0 && cluster != choice.cluster) continue;
    const int at_once = blocks_for(units, cluster);
    if (at_once == 0 && choice.cluster == 0) continue;
    for (int pieces = 1; pieces * rows.of_warp <= kTilePositions; ++pieces) {
      if (choice.pieces > 0 && pieces != choice.pieces) continue;
      const std::int64_t threads = threads_of(rows, width.channels, cluster * pieces);
      if (threads > kMostThreads || (choice.threads > 0 && threads != choice.threads)) continue;
      int blocks = choice.blocks > 0 ? choice.blocks : std::max(at_once, 1);
      const int wanted = registers_wanted(work, width.constants.vector, pieces);
      // Who asks for clusters takes those that wait for others.
      while (choice.cluster > 0 && blocks > 1 && wanted > registers_of(threads, blocks)) --blocks;
      if (wanted > registers_of(threads, blocks)) continue;
      const double seconds = memory + block_seconds(blocks * threads, pieces * width.constants.vector) +
                             kLaunch + pieces * kPiece + cluster * kMember + (blocks - 1) * kShared;
      if (best && seconds >= best->seconds) continue;
      best = SlicesDivision{width.constants, width.channels, cluster, static_cast<int>(units), 1, 1};
      best->constants.cluster = best->constants.team = cluster;
      best->constants.pieces = pieces;
      best->constants.threads = static_cast<int>(threads);
      best->constants.blocks = blocks;
      best->constants.ring = 0;
      best->units = units;
      best->seconds = seconds;
    }
  }
  return best;
}

}  // namespace fuseblock::cuda
