#include "cuda/launch/rows.h"

#include <algorithm>
#include <string>

#include "fuseblock/error.h"

namespace fuseblock::cuda {
namespace {

constexpr std::int64_t kMostVectorBytes = 16;
// What the device code keeps beside the planner's count.
constexpr int kStaticBytes = 256;
// Steps of a sweep in which a copy arrives.
constexpr int kDelay = 2;
// Blocks; what all GPUs with clusters take.
constexpr std::int64_t kLargestCluster = 8;
// The time that clearing lists takes, in steps.
constexpr double kClearing = 2.5;

std::int64_t unit_elements(const KernelCut& cut, const Extents& domain) {
  return cut.unit_channels * domain[2] * domain[3] * domain[4];
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

int rows_vector(const KernelCut& cut, const Extents& domain, std::int64_t smallest) {
  std::int64_t vector = kMostVectorBytes / smallest;
  while (vector > 1 && unit_elements(cut, domain) % vector != 0) vector /= 2;
  return vector * smallest < 4 ? 0 : static_cast<int>(vector);
}

int rows_ring(const Gpu& gpu, const RowsConstants& constants, int vector_bytes, int shared_bytes) {
  const jit::Architecture& limits = *gpu.architecture;
  const int block =
      std::min(limits.shared_bytes_block,
               limits.shared_bytes_multiprocessor / constants.blocks - limits.shared_bytes_reserved);
  return std::max(0, (block - shared_bytes - kStaticBytes) / (vector_bytes * constants.threads));
}

// Tries every size of teams. The unit of cost is a step in which all threads read one chunk and write one, about a
// microsecond on a large GPU. Besides its steps a unit costs what it reads again, which comes from L2, and the time in which
// its statistics are merged; that is shorter where the ring has room for chunks of the next unit. The first read and the
// last write have nothing beside them. Lists in memory are cleared before the launch.
RowsDivision divide_rows(const Gpu& gpu, const KernelCut& cut, const Extents& domain,
                         const RowsConstants& constants, const RowsSweeps& sweeps, int wanted) {
  const std::int64_t blocks = std::int64_t{gpu.multiprocessors} * constants.blocks;
  const std::int64_t units = domain[0] * (domain[1] / cut.unit_channels);
  const std::int64_t chunks = ceil_div(unit_elements(cut, domain), 32 * constants.vector * constants.pieces);
  const std::int64_t warps = constants.threads / 32;
  const bool single = sweeps.count == 1;
  // A cluster has one barrier, which the next unit's first sweep would share with the last one's.
  const bool clusters = gpu.architecture->clusters && (single || !sweeps.last_statistics);
  if (wanted > blocks)
    throw UserError("team: expected at most the " + std::to_string(blocks) +
                    " thread blocks that this GPU runs at once, got " + std::to_string(wanted));
  RowsDivision best;
  double least = 0;
  for (std::int64_t team = 1; team <= blocks; ++team) {
    if (wanted > 0 && team != wanted) continue;
    const bool cluster = clusters && (team == 2 || team == 4 || team == kLargestCluster);
    // The multiprocessors of a part of the GPU may not divide into the largest clusters.
    const std::int64_t held = team == kLargestCluster && cluster ? blocks - blocks / 32 : blocks;
    const std::int64_t teams = std::min(std::max<std::int64_t>(held / team, 1), units);
    const std::int64_t rounds = ceil_div(units, teams);
    const std::int64_t steps = ceil_div(chunks, team * warps);
    // A single sweep lets go of a chunk at once, so that all of them pass through the ring.
    const std::int64_t kept = constants.ring == 0 ? 0
                              : single            ? steps
                                                  : std::min<std::int64_t>(steps, constants.ring);
    const std::int64_t room = single ? constants.ring : constants.ring - kept;
    const double merging = (team == 1 ? 0.5 : 1.0) * (room >= 2 * kDelay ? 1.0 : 2.0);
    const double unit = static_cast<double>(steps) + 0.5 * static_cast<double>(steps - kept) + merging;
    const double once = (single ? 0 : static_cast<double>(steps)) + (team == 1 || cluster ? 0 : kClearing);
    const double cost = static_cast<double>(rounds) * unit + once;
    if (best.units > 0 && cost >= least) continue;
    least = cost;
    best.team = static_cast<int>(team);
    best.cluster = cluster;
    best.teams = static_cast<int>(teams);
    best.steps = static_cast<int>(steps);
    best.again = static_cast<int>(steps - kept);
    best.lead = constants.ring == 0 ? 0 : static_cast<int>(std::min(room - kDelay, steps));
    best.units = units;
  }
  return best;
}

}  // namespace fuseblock::cuda
