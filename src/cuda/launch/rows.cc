#include "cuda/launch/rows.h"

#include <algorithm>

namespace fuseblock::cuda {
namespace {

constexpr std::int64_t kMostVectorBytes = 16;
// What the device code keeps beside the planner's count.
constexpr int kStaticBytes = 256;
// Copies under way that keep the memory busy while a unit's chunks stay in the ring.
constexpr int kLookahead = 4;

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

// Tries every size of teams. The unit of cost is a step of all threads; what is read again costs less than a first read,
// since it comes from L2, and a team's barrier as much as two steps.
RowsDivision divide_rows(const Gpu& gpu, const KernelCut& cut, const Extents& domain,
                         const RowsConstants& constants) {
  const std::int64_t blocks = std::int64_t{gpu.multiprocessors} * constants.blocks;
  const std::int64_t units = domain[0] * (domain[1] / cut.unit_channels);
  const std::int64_t chunks = ceil_div(unit_elements(cut, domain), 32 * constants.vector * constants.pieces);
  const std::int64_t warps = constants.threads / 32;
  const int keepable = std::max(0, constants.ring - kLookahead);
  RowsDivision best;
  double least = 0;
  for (std::int64_t team = 1; team <= blocks; ++team) {
    const std::int64_t teams = std::min(blocks / team, units);
    const std::int64_t rounds = ceil_div(units, teams);
    const std::int64_t steps = ceil_div(chunks, team * warps);
    // Everything stays where the ring takes it, even without copies ahead.
    const std::int64_t kept = steps <= constants.ring ? steps : keepable;
    const double again = 0.6 * static_cast<double>(steps - kept);
    const double barrier = team == 1 ? 0.5 : 2.0;
    const double cost = static_cast<double>(rounds) * (2 * static_cast<double>(steps) + again + barrier);
    if (best.units > 0 && cost >= least) continue;
    least = cost;
    best = {static_cast<int>(team), static_cast<int>(teams), static_cast<int>(steps), static_cast<int>(kept),
            units};
  }
  return best;
}

}  // namespace fuseblock::cuda
