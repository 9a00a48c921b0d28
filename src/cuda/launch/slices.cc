#include "cuda/launch/slices.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "cuda/launch/fixed_numbers.h"

namespace fuseblock::cuda {
namespace {

constexpr int kMostVectorBytes = 16;
constexpr int kLeastCopyBytes = 4;
constexpr int kMostChunkBytes = 64;
constexpr int kWarpThreads = 32;
// What the device code keeps beside the planner's count.
constexpr int kStaticBytes = 256;
// Chunks of a ring that keep the memory busy while others stay for the next pass.
constexpr int kSpare = 2;
constexpr int kLeastRing = 3;
// Chunks of a ring, a lane's each, of which a warp can tell where they lie.
constexpr int kMostDealtRing = 32;
// Of a unit that has chunks in registers: an int counts them.
constexpr std::int64_t kMostRegisterRows = 1'000'000'000;
// Of moments in a team's list.
constexpr int kListBytes = 24;

// Figures of the cost model: seconds of a block's own part of a round of statistics, and of what a team's blocks wait for
// each other: at least, where statistics of channels go through L2 twice, and where is_16_bit_forward for each doubling of the team;
// what is left of both where two teams share a multiprocessor, and where two or four small ones do, which do not all wait at the
// same time;
// instructions of an element in all its passes and of a thread's chunk in one.
constexpr double kBlockRound = 4e-6;
constexpr double kTeamRound = 6e-6;
constexpr double kMemberRound = 1e-6;
constexpr double kShared = 0.9;
constexpr int kSmallTeam = 8;
constexpr double kSharedByTwo = 0.7;
constexpr double kSharedByFour = 0.4;
constexpr double kElementInstructions = 14;
constexpr double kChunkInstructions = 50;
// Thread instructions that a multiprocessor issues in a second, at two thirds of its peak.
constexpr double kIssueRate = 128 * 1.7e9 * 0.66;
// The share of the blocks that keeps the memory busy; bytes a second, and of L2, where the device's description has none.
constexpr double kSaturating = 0.7;
constexpr double kDefaultBandwidth = 2e12;
constexpr double kDefaultCache = 40e6;
// The share of L2 that holds what is read again, and what such a read costs beside one from memory: of one tensor, of several, and where
// is_16_bit_forward.
constexpr double kCacheShare = 0.5;
constexpr double kCachedCost = 0.5;
constexpr double kSeveralCachedCost = 0.6;
constexpr double kForwardCachedCost = 0.9;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// What chunks that are dealt out, four blocks of a multiprocessor and the figures of both were measured for. Backward, over two tensors,
// chunks that are dealt out took 4 to 6 % longer.
bool is_16_bit_forward(const SlicesWork& work) {
  return work.inputs == 1 && work.smallest_bytes == 2 && work.group_statistics;
}

struct Rows {
  std::int64_t slots;
  int columns;
  int lists;
  int stride;
};

Rows rows_of(const SlicesConstants& constants, std::int64_t channels) {
  Rows rows{};
  rows.slots = channels * constants.row_positions;
  rows.columns = static_cast<int>(rows.slots / constants.vector);
  rows.lists = slices_lists(constants, rows.columns);
  const bool several = rows.columns < kWarpThreads && !constants.packed;
  rows.stride = rows.lists * (several ? kWarpThreads / rows.columns : 1);
  return rows;
}

// What memory takes for the bytes of a slice's rows beside those of a run without gaps: sectors of 32 bytes that are not
// whole, lines of which a request has only some, and pages of which few bytes are wanted at a time. Teams take
// neighbouring slices and go through them side by side.
double waste(const SlicesWork& work, std::int64_t channels, std::int64_t teams) {
  if (channels == work.channels) return 1;
  const std::int64_t beside = channels * work.smallest_bytes * std::min(teams, work.channels / channels);
  const double pages = beside >= 512   ? 1.03
                       : beside >= 256 ? 1.06
                       : beside >= 128 ? 1.15
                       : beside >= 64  ? 1.4
                                       : 2.0;
  return slice_waste(work, channels) * pages;
}

// Chunks that a block's ring takes, beside so many bytes of shared memory.
int ring_of(const Gpu& gpu, const SlicesWidth& width, const SlicesConstants& constants, int shared_bytes) {
  const jit::Architecture& limits = *gpu.architecture;
  const int block_bytes =
      std::min(limits.shared_bytes_block,
               limits.shared_bytes_multiprocessor / constants.blocks - limits.shared_bytes_reserved);
  const int chunk_bytes = std::max(1, width.vector_bytes) * constants.pieces * constants.threads;
  return (block_bytes - shared_bytes) / chunk_bytes;
}

// Tries every size of teams, or the one that is wanted, and leaves what costs least in `best`. `register_ring`: the chunks of
// the ring where others are in registers.
void best_team(const Gpu& gpu, const SlicesWork& work, std::int64_t channels,
               const SlicesConstants& constants, int register_ring, const SlicesChoice& choice,
               std::optional<SlicesDivision>& best) {
  const Rows rows = rows_of(constants, channels);
  const std::int64_t chunk_rows = std::int64_t{rows.stride} * constants.pieces;
  const std::int64_t chunks = ceil_div(ceil_div(work.positions, constants.row_positions), chunk_rows);
  const std::int64_t units = work.samples * (work.channels / channels);
  const std::int64_t blocks = std::int64_t{gpu.multiprocessors} * constants.blocks;
  const double bandwidth = gpu.memory_bandwidth > 0 ? gpu.memory_bandwidth : kDefaultBandwidth;
  const double cache = kCacheShare * (gpu.cache_bytes > 0 ? gpu.cache_bytes : kDefaultCache);
  const double elements = static_cast<double>(chunk_rows * rows.slots);
  const double instructions =
      constants.pieces * constants.vector * kElementInstructions * work.input_bytes / work.smallest_bytes +
      work.passes * kChunkInstructions;
  // Seconds of a chunk of one block, where it has the whole GPU.
  const double issue = constants.threads * instructions / (kIssueRate * gpu.multiprocessors);

  const bool forward = is_16_bit_forward(work);
  const double cached_cost = forward           ? kForwardCachedCost
                             : work.inputs > 1 ? kSeveralCachedCost
                                               : kCachedCost;
  const bool any_order = may_have_registers(work) && choice.own == 0 && !constants.ahead;
  const int most_registers = work.positions < kMostRegisterRows ? std::max(0, choice.registers) : 0;

  for (std::int64_t members = 1; members <= blocks; ++members) {
    if (choice.team > 0 && members != choice.team) continue;
    const std::int64_t steps = ceil_div(chunks, members);
    // Chunks in registers beside those in the ring, never all.
    std::int64_t registers =
        any_order ? std::min<std::int64_t>({most_registers, steps - 1, register_ring - 1}) : 0;
    if (steps > register_ring + registers && (members == 1 || register_ring > kMostDealtRing)) registers = 0;
    if (constants.packed && registers == 0) continue;
    const int ring = registers > 0 ? register_ring : constants.ring;
    const bool deals = any_order && ring <= kMostDealtRing;
    const std::int64_t on_chip = ring + registers;
    const bool stays = work.passes == 1 || steps <= on_chip;
    const bool dealt = !stays && deals && members > 1;
    // Everyone has some of the unit.
    const std::int64_t team = dealt ? members : ceil_div(chunks, steps);
    const std::int64_t teams = std::min(blocks / team, std::max<std::int64_t>(units, 1));
    const std::int64_t rounds = ceil_div(units, teams);
    const std::int64_t spare = choice.spare > 0 ? choice.spare : kSpare;
    const std::int64_t kept = stays ? steps : std::max<std::int64_t>(registers + 1, on_chip - spare);
    // Chunks of a block: where they are dealt out, a block that has one fewer takes more of the others.
    const double share =
        dealt ? static_cast<double>(chunks) / static_cast<double>(team) : static_cast<double>(steps);
    if (constants.ahead && (rounds == 1 || work.statistics == 0)) continue;
    // The unit that was begun ahead has its chunks beside those of the one before.
    if (constants.ahead && work.passes > 1 && 2 * steps > constants.ring) continue;
    const double at_work = static_cast<double>(team * teams);
    const double wasted = waste(work, channels, teams);
    const double read = elements * work.input_bytes * wasted / bandwidth;
    const double written = elements * work.output_bytes * wasted / bandwidth;
    const double again = (share - static_cast<double>(kept)) * (work.passes - 1);
    const double hits =
        again > 0 ? std::min(1.0, cache / (again * elements * work.input_bytes * at_work)) : 0;
    // Blocks that are idle leave their share of the memory to the others, up to a point, but not their instructions.
    const auto all = static_cast<double>(blocks);
    const double sharing = std::max(at_work, kSaturating * all);
    const double sweeps = share * std::max((read + written) * sharing, issue * all) +
                          again * read * (1 - hits * (1 - cached_cost)) * sharing;
    const bool groups = forward && few_parts(team, channels / work.group);
    const double doublings = forward ? std::log2(static_cast<double>(team)) : 0;
    const double exchange = std::max(groups ? 0 : kTeamRound, kMemberRound * doublings);
    double waits = team == 1 ? 0 : exchange * work.statistics;
    if (constants.ahead) waits = std::max(waits - exchange, waits - sweeps);
    double round = work.statistics == 0 ? 0 : kBlockRound + waits;
    const bool small = groups && team <= kSmallTeam;
    if (constants.blocks > 1 && 2 * team <= blocks)
      round *= !small ? (dealt ? 1 : kShared) : constants.blocks > 2 ? kSharedByFour : kSharedByTwo;
    // Four blocks of a multiprocessor were slower in large teams, and where something is read again.
    if (constants.blocks > 2 && choice.blocks == 0 && !(small && stays)) continue;
    // What a team's blocks hand over is cleared, written and read, by two lists in turn.
    const std::int64_t lists = forward && rounds == 1 ? 1 : 2;
    const double list_bytes =
        team == 1 ? 0 : static_cast<double>(lists * teams * (team + 1) * channels * kListBytes);
    const double seconds = static_cast<double>(rounds) * (sweeps + round) + 3 * list_bytes / bandwidth;
    if (best && seconds >= best->seconds) continue;
    best = SlicesDivision{constants,
                          channels,
                          static_cast<int>(team),
                          static_cast<int>(teams),
                          static_cast<int>(steps),
                          static_cast<int>(kept)};
    best->constants.ring = ring;
    best->constants.again = kept < steps;
    best->constants.dealt = dealt;
    best->constants.registers = static_cast<int>(registers);
    best->constants.lead =
        dealt && registers > 0
            ? static_cast<int>(std::min<std::int64_t>(std::max(0, choice.lead), steps - on_chip))
            : 0;
    best->constants.team = static_cast<int>(team);
    best->units = units;
    best->seconds = seconds;
  }
}

}  // namespace

double slice_waste(const SlicesWork& work, std::int64_t channels) {
  if (channels == work.channels) return 1;
  const std::int64_t run = channels * work.smallest_bytes;
  const double ragged = static_cast<double>(32 - std::gcd(run, std::int64_t{32}));
  const double lines = run >= 128 ? 1 : run >= 64 ? 1.15 : 1.6;
  return (1 + ragged / static_cast<double>(run)) * lines;
}

bool may_have_registers(const SlicesWork& work) {
  return is_16_bit_forward(work) && work.passes == 2 && !work.last_statistics;
}

SlicesChoice SlicesChoice::parse(const std::string& text) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"channels", "team", "vector", "pieces", "threads", "blocks", "ring", "ahead", "own", "spare",
       "registers", "lead", "packed", "cluster", "whole"});
  constexpr std::array<int SlicesChoice::*, kNames.size()> kFields = {
      &SlicesChoice::channels, &SlicesChoice::team,    &SlicesChoice::vector,    &SlicesChoice::pieces,
      &SlicesChoice::threads,  &SlicesChoice::blocks,  &SlicesChoice::ring,      &SlicesChoice::ahead,
      &SlicesChoice::own,      &SlicesChoice::spare,   &SlicesChoice::registers, &SlicesChoice::lead,
      &SlicesChoice::packed,   &SlicesChoice::cluster, &SlicesChoice::whole};
  SlicesChoice choice;
  for (const FixedNumber& fixed : fixed_numbers("FUSEBLOCK_SLICES", text, kNames))
    choice.*kFields[fixed.name] = fixed.number;
  if (choice.threads > 0) check_threads("FUSEBLOCK_SLICES", choice.threads);
  return choice;
}

std::vector<SlicesWidth> slices_widths(const SlicesWork& work, const SlicesChoice& choice) {
  std::vector<SlicesWidth> widths;
  if (work.positions == 0) return widths;
  const auto add = [&](int vector, std::int64_t channels, std::int64_t row_positions) {
    if (choice.channels > 0 && choice.channels != channels) return;
    SlicesWidth width = {{}, channels};
    width.constants.vector = vector;
    width.constants.row_positions = static_cast<int>(row_positions);
    // Two blocks of 256 threads a multiprocessor, one of 512 for wide rows and much shared memory, or four of 128 that wait in turn.
    for (const auto& [threads, blocks] : {std::pair{256, 2}, std::pair{512, 1}, std::pair{128, 4}}) {
      if (blocks > 2 && (work.inputs > 1 || work.smallest_bytes != 2)) continue;
      width.constants.threads = choice.threads > 0 ? choice.threads : threads;
      width.constants.blocks = choice.blocks > 0 ? choice.blocks : blocks;
      if (channels * row_positions > std::int64_t{vector} * width.constants.threads) continue;
      widths.push_back(width);
      if (choice.threads > 0) return;
    }
  };
  for (int vector = std::max(1, kMostVectorBytes / work.smallest_bytes);
       vector * work.smallest_bytes >= kLeastCopyBytes; vector /= 2) {
    const bool wanted = choice.vector == 0 || choice.vector == vector;
    if (wanted && work.channels % vector == 0) {
      for (std::int64_t groups = 1; groups <= work.channels / work.group; ++groups) {
        const std::int64_t channels = groups * work.group;
        if (work.channels % channels != 0 || channels % vector != 0) continue;
        add(vector, channels, 1);
      }
    } else if (wanted && work.positions * work.channels % vector == 0) {
      // Several positions with all their channels are whole vectors.
      add(vector, work.channels, vector / std::gcd(std::int64_t{vector}, work.channels));
    }
    if (vector == 1 || (!widths.empty() && choice.vector == 0)) break;
  }
  return widths;
}

std::optional<SlicesDivision> divide_slices(const Gpu& gpu, const SlicesWork& work, const SlicesWidth& width,
                                            const SlicesChoice& choice) {
  std::optional<SlicesDivision> best;
  for (int pieces : {1, 2, 4}) {
    if (choice.pieces > 0 ? pieces != choice.pieces
                          : pieces > 1 && pieces * width.vector_bytes > kMostChunkBytes)
      continue;
    SlicesConstants constants = width.constants;
    constants.pieces = pieces;
    constants.ahead = choice.ahead > 0;
    const auto ring = [&](int shared_bytes) {
      const int most = ring_of(gpu, width, constants, shared_bytes);
      return choice.ring > 0 ? std::min(most, choice.ring) : most;
    };
    const int shared_bytes = width.shared_bytes + (constants.ahead ? width.unit_bytes : 0) + kStaticBytes;
    constants.ring = ring(shared_bytes);
    if (constants.ring < kLeastRing) continue;
    best_team(gpu, work, width.channels, constants,
              ring(width.register_bytes > 0 ? width.register_bytes : shared_bytes), choice, best);
  }
  return best;
}

}  // namespace fuseblock::cuda
