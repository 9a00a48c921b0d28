#include "cuda/launch/columns.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <vector>

namespace fuseblock::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 2;  // a multiprocessor, so that a thread may have 128 registers
constexpr int kMostVectorBytes = 16;
// Registers of a thread for what it keeps between sweeps, and for the numbers of one step.
constexpr int kKeptRegisters = 32;
constexpr int kStepRegisters = 60;
constexpr int kBothRegisters = 64;
// With gathered sums, whose sweeps have no more numbers at a time.
constexpr int kSumsBothRegisters = 72;
constexpr int kSumRegisters = 32;
constexpr int kAllRegisters = 92;
// Of a thread that merges the statistics of a team's warps, and what it costs where it needs more.
constexpr int kTeamRegisters = 64;
constexpr double kSpilled = 40;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The widest vector that divides the run of elements it lies along.
int vector_of(const ColumnsWork& work) {
  const std::int64_t along = work.access == ColumnsAccess::kAlongPositions ? work.positions : work.channels;
  std::int64_t vector = std::max(1, kMostVectorBytes / work.smallest_bytes);
  while (vector > 1 && along % vector != 0) vector /= 2;
  return static_cast<int>(vector);
}

int step_registers(const ColumnsWork& work, int positions, int elements) {
  const int words = work.real_bytes / 4;
  return positions * elements * work.results * words + positions * elements * work.input_bytes / 4 +
         elements * work.channel_inputs * words;
}

// What a candidate costs for each element: the unit is one instruction of the program. Nothing where a thread or a block
// cannot hold it. Less than 128 neighbouring bytes that a warp reads of a row waste some of the memory's bandwidth;
// reading again takes what L2 gives. Says where gathered sums stay.
std::optional<double> cost_of(const Gpu& gpu, const ColumnsWork& work, ColumnsConstants& constants) {
  const int steps = columns_steps(constants, work.channels);
  const int slots = constants.lanes * constants.team;
  const int patch = constants.positions * constants.elements;
  const int step_bytes = patch * work.input_bytes;
  const int tile = columns_tile(constants);
  const int lists = constants.team == 1 ? 0 : (constants.team + 1) * tile * work.state_bytes + 512;
  const int kept = steps * step_bytes / 4;
  const int registers =
      kept + (steps > 1 ? step_registers(work, constants.positions, constants.elements) : 0);
  const int sum_registers = steps * constants.elements * work.sums * work.real_bytes / 4;
  constants.sums_in_shared =
      work.sums > 0 && (constants.residency != Residency::kRegisters || sum_registers > kSumRegisters ||
                        registers + sum_registers > kAllRegisters);
  // Sums in registers are merged in shared memory, too.
  const std::int64_t sum_bytes = std::int64_t{sum_registers} * 4 * kThreads + (work.sums > 0 ? 256 : 0);
  const jit::Architecture& limits = *gpu.architecture;
  if (sum_bytes + lists > limits.shared_bytes_block) return std::nullopt;
  // An addition to a number in shared memory is three instructions.
  double residence = constants.sums_in_shared ? 2.0 * work.sums / constants.positions : 0.0;
  if (constants.team * work.state_bytes / 4 > kTeamRegisters) residence += kSpilled;
  switch (constants.residency) {
    case Residency::kRegisters:
      if (kept > kKeptRegisters || registers > (work.sums > 0 ? kSumsBothRegisters : kBothRegisters))
        return std::nullopt;
      break;
    case Residency::kShared: {
      const std::int64_t bytes = std::int64_t{steps} * step_bytes * kThreads + sum_bytes + lists;
      const auto fits = [&](int blocks) {
        return bytes <= limits.shared_bytes_multiprocessor / blocks - limits.shared_bytes_reserved;
      };
      if (bytes > limits.shared_bytes_block || (!fits(2) && work.sweeps == 1)) return std::nullopt;
      // With one block a multiprocessor nothing moves while it computes.
      residence += fits(3) ? 1.5 : fits(2) ? 2.5 : 12;
      break;
    }
    case Residency::kNowhere: residence += work.sweeps > 1 ? 12 : 5; break;
  }
  const std::int64_t row =
      work.access == ColumnsAccess::kAlongPositions
          ? std::int64_t{32 / constants.lanes} * constants.vector
          : std::min<std::int64_t>(std::int64_t{constants.lanes} * constants.vector, work.channels) *
                (steps == 1 && constants.team == 1 && constants.elements == constants.vector
                     ? 32 / constants.lanes
                     : 1);
  const double bytes = static_cast<double>(row) * work.smallest_bytes;
  const double narrow = bytes >= 128 ? 0 : bytes >= 64 ? 3 : bytes >= 32 ? 8 : 20;
  const double merge =
      12.0 * std::log2(constants.lanes) + (constants.team == 1 ? 0.0 : 40.0 / constants.positions);
  const double used =
      static_cast<double>(work.channels) / (static_cast<double>(steps) * slots * constants.elements);
  // What one addition to a statistic costs is shared by the elements of a step.
  const double each =
      (10 + 6.0 / constants.elements + merge / (steps * constants.elements)) / used + narrow + residence;
  // Fewer tiles than blocks leave multiprocessors idle.
  const std::int64_t tiles = work.access == ColumnsAccess::kAlongPositions
                                 ? work.samples * ceil_div(work.positions, tile)
                                 : ceil_div(work.samples * work.positions, tile);
  const double blocks = static_cast<double>(gpu.multiprocessors) * kBlocks;
  const double filled = static_cast<double>(tiles) / blocks;
  const double idle = filled >= 1 ? std::ceil(filled) / filled : 1 / filled;
  const double outside =
      static_cast<double>(tiles * tile) / static_cast<double>(work.samples * work.positions);
  return each * std::max(idle, 1.0) * outside;
}

std::vector<Residency> residencies(KernelResidency wanted) {
  switch (wanted) {
    case KernelResidency::kRegisters: return {Residency::kRegisters};
    case KernelResidency::kShared: return {Residency::kShared};
    case KernelResidency::kMemory: return {Residency::kNowhere};
    case KernelResidency::kByCost: break;
  }
  return {Residency::kRegisters, Residency::kShared, Residency::kNowhere};
}

// The ways in which lanes and warps may share a position, for threads of so many positions and channels in a step.
void add_candidates(std::vector<ColumnsConstants>& candidates, const ColumnsWork& work,
                    ColumnsConstants candidate) {
  const int vector = candidate.access == ColumnsAccess::kAlongChannels ? candidate.vector : 1;
  for (int lanes : {1, 2, 4, 8, 16, 32})
    for (int team : {1, 2, 4, 8}) {
      if (lanes * team * vector >= 2 * work.channels && lanes * team > 1) continue;
      candidate.lanes = lanes;
      candidate.team = team;
      candidates.push_back(candidate);
    }
}

}  // namespace

std::string residency_name(Residency residency) {
  switch (residency) {
    case Residency::kRegisters: return "registers";
    case Residency::kShared: return "shared";
    case Residency::kNowhere: return "memory";
  }
  throw InternalError("an unknown residency");
}

int columns_steps(const ColumnsConstants& constants, std::int64_t channels) {
  return static_cast<int>(
      ceil_div(channels, std::int64_t{constants.lanes} * constants.team * constants.elements));
}

int columns_tile(const ColumnsConstants& constants) {
  return constants.threads / (constants.lanes * constants.team) * constants.positions;
}

ColumnsDivision divide_tiles(const Gpu& gpu, const ColumnsWork& work, const ColumnsConstants& constants,
                             const ColumnsText& text) {
  const std::int64_t tile = columns_tile(constants);
  ColumnsDivision division;
  division.sample_tiles = ceil_div(work.positions, tile);
  division.tiles = constants.access == ColumnsAccess::kAlongChannels && !text.by_sample
                       ? ceil_div(work.samples * work.positions, tile)
                       : work.samples * division.sample_tiles;
  division.blocks = std::min<std::int64_t>(division.tiles, std::numeric_limits<int>::max());
  if (text.sums == 0) return division;
  const jit::Architecture& limits = *gpu.architecture;
  const bool several = text.shared_bytes + limits.shared_bytes_reserved <=
                       limits.shared_bytes_multiprocessor / constants.blocks;
  const std::int64_t resident = std::int64_t{gpu.multiprocessors} * (several ? constants.blocks : 1);
  division.block_tiles = ceil_div(division.tiles, resident);
  division.blocks = ceil_div(division.tiles, division.block_tiles);
  division.bundle = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(division.blocks))));
  division.spans = text.by_sample ? work.samples : 1;
  return division;
}

ColumnsConstants divide_columns(const Gpu& gpu, const ColumnsWork& work, const KernelChoices& choices) {
  ColumnsConstants constants;
  constants.access = work.access;
  constants.threads = kThreads;
  constants.blocks = kBlocks;
  constants.vector = work.access == ColumnsAccess::kStrided ? 1 : vector_of(work);
  const bool along_channels = work.access == ColumnsAccess::kAlongChannels;
  std::vector<ColumnsConstants> candidates;
  for (int positions : {1, 2, 4, 8})
    for (int elements : {1, 2, 4, 8, 16}) {
      if (along_channels ? elements % constants.vector != 0 : positions != constants.vector) continue;
      if (step_registers(work, positions, elements) > kStepRegisters) continue;
      constants.positions = positions;
      constants.elements = elements;
      add_candidates(candidates, work, constants);
    }
  if (candidates.empty()) {
    constants.positions = along_channels ? 1 : constants.vector;
    constants.elements = along_channels ? constants.vector : 1;
    add_candidates(candidates, work, constants);
  }
  std::optional<ColumnsConstants> best;
  double least = 0;
  std::set<int> tiles;
  for (ColumnsConstants& candidate : candidates)
    for (Residency residency : residencies(choices.residency)) {
      candidate.residency = residency;
      const std::optional<double> cost = cost_of(gpu, work, candidate);
      if (!cost) continue;
      tiles.insert(columns_tile(candidate));
      if (choices.tile > 0 && columns_tile(candidate) != choices.tile) continue;
      if (best && *cost >= least) continue;
      least = *cost;
      best = candidate;
    }
  if (best) return *best;
  if (tiles.empty())
    throw UserError("residency: expected another one, no tile of a kernel `columns` can be kept there");
  std::string list;
  for (int tile : tiles) list += (list.empty() ? "" : ", ") + std::to_string(tile);
  throw UserError("tile: expected one that a kernel `columns` can have here, of " + list +
                  " positions; got " + std::to_string(choices.tile));
}

}  // namespace fuseblock::cuda
