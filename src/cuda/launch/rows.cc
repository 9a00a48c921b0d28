#include "cuda/launch/rows.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "cuda/launch/fixed_numbers.h"
#include "fuseblock/error.h"

namespace fuseblock::cuda {
namespace {

constexpr int kThreadsOfWarp = 32;
constexpr std::int64_t kMostVectorBytes = 16;
// What the device code keeps beside the planner's count.
constexpr int kStaticBytes = 256;
// Blocks; what all GPUs with clusters take.
constexpr std::int64_t kLargestCluster = 8;
// Without barriers: the chunks by which a first sweep is to lead, and bytes of a thread's chunks in registers, of which as many are
// there as that takes. 17 warps of a multiprocessor, the taker among them, have 96 registers a thread, 16 have 128:
// bf16[1,512,16,180,320] took 610 us with 32 bytes of 512 threads and 608 with 64 of 480, but 753 and 663 with 32 more.
// A unit that is larger than the ring is not for it: f32[2,32,128,128,128] took 393 us in place of 368.
constexpr std::int64_t kWantedLead = 6;
constexpr std::int64_t kManyWarps = 17;
constexpr double kHeldBytesOfMany = 32;
constexpr double kHeldBytes = 64;
constexpr double kHeldBytesAsked = 128;  // for measuring, where units may be larger, too

// What a division costs, in the time in which all multiprocessors read and write 16 KB each, about a microsecond on a
// large GPU. Fitted to the times of some hundred divisions on an H200.
struct Cost {
  static constexpr double kBytes = 16384;
  static constexpr double kAgain = 0.43;      // a step that comes from L2, beside one that comes from memory,
  static constexpr double kAgainLong = 0.75;  // and a long one
  static constexpr double kAlone = 0.4;       // a block's statistics in each round
  static constexpr double kCluster = 1.0;     // those of a cluster,
  static constexpr double kTeam = 2.4;        // and of other teams
  // Where the ring has no room for the next unit while these are merged; with long steps, where nothing is read again, too.
  static constexpr double kNoRoom = 0.5;
  static constexpr double kNoRoomLong = 1.5;
  // A round without barriers, where the ring holds three units, two, two of long steps, and one, less for every chunk by which
  // first sweeps lead: in many rounds and steps; or of 16-bit elements, in some rounds of two long steps, for teams that are
  // neither small nor few. Of the shapes that were tried with these, others were slower: teams of 64 and of 5 blocks and
  // fewer, and f32.
  static constexpr double kAhead = 0.4;
  static constexpr double kAheadTwo = 0.9;
  static constexpr double kAheadLong = 0.7;
  static constexpr double kAheadOne = 1.9;
  static constexpr double kLead = 0.2;
  static constexpr double kFewer = 0.28;  // and of kRowsBesideTaker threads, more
  static constexpr double kManyRounds = 16;
  static constexpr std::int64_t kManySteps = 4;
  static constexpr double kSomeRounds = 8;
  static constexpr std::int64_t kSomeBlocks = 8;
  static constexpr std::int64_t kSomeTeams = 4;
  static constexpr std::int64_t kLongSteps = 2;
  static constexpr int kLongVector = 8;
  // Of a team's lists, before the launch; without barriers nothing is cleared, but the other figures were fitted with it.
  static constexpr double kClearing = 1.3;
  static constexpr double kFirst =
      0.27;  // a step of the first unit's first sweep, which has nothing beside it
  static constexpr double kLong = 0.955;  // a piece of a long step, beside one of others
  // A unit of a block that has units by itself, one after the other, be they large or small: by the times of two sweeps over one
  // tensor of 16 shapes in bf16 and f32. So bf16[32,320,64,64] took 66.5 us with one block of 512 threads a
  // multiprocessor and 55.2 with two of 256.
  static constexpr double kAloneRound = 1.1;
};

std::int64_t unit_elements(const KernelCut& cut, const Extents& domain) {
  return cut.unit_channels * domain[2] * domain[3] * domain[4];
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Chunks by which a first sweep leads where the ring holds the units under way, but for `held` chunks of each in registers.
std::int64_t lead_ahead(const RowsConstants& constants, std::int64_t steps, std::int64_t held) {
  return constants.ring - constants.ahead * (steps - held) + held - kRowsDelay;
}
double most_held_bytes(const RowsConstants& constants) {
  return constants.blocks * (constants.threads / 32 + 1) < kManyWarps ? kHeldBytes : kHeldBytesOfMany;
}

// Chunks of a unit in registers, where one unit is in the ring: those that it has no room for, and as many more as let the first
// sweep lead.
std::int64_t held_chunks(const RowsConstants& constants, const RowsSweeps& sweeps, std::int64_t steps) {
  const auto most = static_cast<std::int64_t>(most_held_bytes(constants) / sweeps.bytes);
  std::int64_t held = std::max<std::int64_t>(steps - constants.ring, 0);
  while (held < std::min(most, steps - 1) &&
         lead_ahead(constants, steps, held) < std::min(kWantedLead, steps - held))
    ++held;
  return held;
}

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

RowsChoice RowsChoice::parse(const std::string& text) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"team", "threads", "blocks", "pieces", "ring", "kept", "ahead",
                                       "apart", "lead", "begun", "barriers", "registers", "cluster"});
  constexpr std::array<std::optional<int> RowsChoice::*, kNames.size()> kFields = {
      &RowsChoice::team,   &RowsChoice::threads, &RowsChoice::blocks,   &RowsChoice::pieces,
      &RowsChoice::ring,   &RowsChoice::kept,    &RowsChoice::ahead,    &RowsChoice::apart,
      &RowsChoice::lead,   &RowsChoice::begun,   &RowsChoice::barriers, &RowsChoice::registers,
      &RowsChoice::cluster};
  RowsChoice choice;
  for (const FixedNumber& fixed : fixed_numbers("FUSEBLOCK_ROWS", text, kNames, "lead"))
    choice.*kFields[fixed.name] = fixed.number;
  check_threads("FUSEBLOCK_ROWS", choice.threads.value_or(kThreadsOfWarp));
  if (choice.pieces.value_or(1) < 1) throw UserError("FUSEBLOCK_ROWS: pieces=: expected 1 or more, got 0");
  return choice;
}

// Tries every size of teams. A cluster is for units that are all at work at once: its barrier holds up whoever would go on
// to the next one.
RowsDivision divide_rows(const Gpu& gpu, const KernelCut& cut, const Extents& domain,
                         const RowsConstants& constants, const RowsSweeps& sweeps, const RowsChoice& choice) {
  const int wanted = choice.team.value_or(0);
  const std::int64_t blocks = std::int64_t{gpu.multiprocessors} * constants.blocks;
  const std::int64_t units = domain[0] * (domain[1] / cut.unit_channels);
  const std::int64_t chunks = ceil_div(unit_elements(cut, domain), 32 * constants.vector * constants.pieces);
  const std::int64_t warps = constants.threads / 32;
  const bool single = sweeps.count == 1;
  // A cluster has one barrier, which the next unit's first sweep would share with the last one's.
  const bool clusters =
      gpu.architecture->clusters && (single || !sweeps.last_statistics) && constants.ahead == 0;
  const int ahead = std::max(constants.ahead, 1);
  const bool is_long = !single && constants.pieces >= kRowsLong;
  const double step =
      sweeps.bytes * constants.threads * constants.blocks / Cost::kBytes * (is_long ? Cost::kLong : 1.0);
  if (wanted > blocks)
    throw UserError("team: expected at most the " + std::to_string(blocks) +
                    " thread blocks that this GPU runs at once, got " + std::to_string(wanted));
  RowsDivision best = {.steps = 0};
  for (std::int64_t team = 1; team <= blocks; ++team) {
    if (wanted > 0 && team != wanted) continue;
    // Parts of the GPU have multiprocessors left over that do not divide into large clusters.
    const std::int64_t at_work = team == 2 ? blocks : blocks * 3 / 4;
    const bool cluster =
        clusters && (team == 2 || team == 4 || team == kLargestCluster) && units * team <= at_work;
    // An empty batch has no units, and nothing is launched for it.
    const std::int64_t teams = std::clamp<std::int64_t>(blocks / team, 1, std::max<std::int64_t>(units, 1));
    const auto rounds = static_cast<double>(ceil_div(units, teams));
    const std::int64_t steps = ceil_div(chunks, team * warps);
    // With barriers nobody would wait for a block without elements before its lists are used again.
    if (team > 1 && !cluster && constants.ahead == 0 && (team - 1) * warps * steps >= chunks) {
      if (wanted == 0) continue;
      throw UserError("team: expected blocks that all have elements of a unit, which has " +
                      std::to_string(chunks) + " chunks of a warp, " + std::to_string(warps) +
                      " warps in a block; got " + std::to_string(wanted) + " blocks");
    }
    // A single sweep lets go of a chunk at once, so that all of them pass through the ring.
    const std::int64_t most_kept = ahead > 1 ? (constants.ring - kRowsDelay) / ahead : constants.ring;
    std::int64_t kept =
        constants.ring == 0 ? 0
        : single            ? steps
                 : std::min<std::int64_t>({steps, most_kept, choice.kept.value_or(constants.ring)});
    // Without barriers no chunk is read again: some stay in registers, where the ring has too little room for the next unit.
    std::int64_t held = constants.ahead == 1 ? steps - kept : 0;
    if (constants.ahead == 1 && !choice.kept) {
      held = held_chunks(constants, sweeps, steps);
      kept = steps - held;
    }
    const std::int64_t lead = lead_ahead(constants, steps, held);
    const double most_held = choice.ahead              ? kHeldBytesAsked
                             : steps <= constants.ring ? most_held_bytes(constants)
                                                       : 0;
    if (constants.ahead > 0 &&
        (kept + held < steps || kept > most_kept || static_cast<double>(held) * sweeps.bytes > most_held))
      continue;
    const std::int64_t room = single ? constants.ring : constants.ring - ahead * kept;
    const bool has_room = rounds == 1 || room >= (is_long ? kRowsDelay + 1 : 2 * kRowsDelay);
    // Without barriers only where that was measured to be faster, unless it is asked for.
    const bool whole_units = kept + held == steps && constants.blocks == 1;
    const bool one_after_other = whole_units && teams == 1 && rounds >= Cost::kManyRounds && !is_long;
    const bool three_units = constants.ahead == kRowsMostAhead && steps >= Cost::kManySteps;
    const bool two_short = constants.ahead == 2 && steps >= Cost::kManySteps;
    const bool one_unit = constants.ahead == 1 && (held > 0 || constants.ring - steps < kRowsDelay);
    const bool two_units = whole_units && constants.ahead == 2 && is_long && steps == Cost::kLongSteps &&
                           constants.vector >= Cost::kLongVector && team >= Cost::kSomeBlocks &&
                           teams >= Cost::kSomeTeams && rounds >= Cost::kSomeRounds;
    const bool ahead_pays = (one_after_other && (three_units || two_short || one_unit)) || two_units;
    if (constants.ahead > 0 && !choice.ahead && !ahead_pays) continue;
    const double no_room = is_long && steps == kept ? Cost::kNoRoomLong : Cost::kNoRoom;
    const double with_barriers = (team == 1 ? Cost::kAlone
                                  : cluster ? Cost::kCluster
                                            : Cost::kTeam) +
                                 (has_room ? 0 : no_room);
    const double one_ahead = Cost::kAheadOne -
                             Cost::kLead * static_cast<double>(std::min(lead, kWantedLead)) +
                             (constants.threads == kRowsBesideTaker ? Cost::kFewer : 0);
    const double merging = constants.ahead == 0                ? with_barriers
                           : constants.ahead == kRowsMostAhead ? Cost::kAhead
                           : two_units                         ? Cost::kAheadLong
                           : two_short                         ? Cost::kAheadTwo
                                                               : one_ahead;
    const double all = step * static_cast<double>(steps);
    const double unit =
        all + step * (is_long ? Cost::kAgainLong : Cost::kAgain) * static_cast<double>(steps - kept - held) +
        merging;
    const double cost = rounds * unit + Cost::kFirst * all + (team == 1 || cluster ? 0 : Cost::kClearing);
    if (best.units > 0 && cost >= best.cost) continue;
    best.cost = cost;
    best.team = static_cast<int>(team);
    best.cluster = cluster;
    best.teams = static_cast<int>(teams);
    best.steps = static_cast<int>(steps);
    best.again = static_cast<int>(steps - kept);
    best.lead = constants.ring == 0 ? 0
                : constants.ahead > 0
                    ? static_cast<int>(std::min(lead, steps - std::max<std::int64_t>(held, 1)))
                    : static_cast<int>(std::min(room - kRowsDelay, steps));
    best.lead = std::min(best.lead, choice.lead.value_or(best.lead));
    best.units = units;
  }
  const std::int64_t rounds = ceil_div(units, best.teams);
  if (sweeps.small && best.team == 1 && rounds > 1)
    best.cost += static_cast<double>(rounds) * Cost::kAloneRound;
  return best;
}

}  // namespace fuseblock::cuda
