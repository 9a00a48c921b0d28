// Which divisions of the kernel `slices` have chunks in registers (device/slices_registers.cuh) without being asked: those of the
// kinds that were measured to be faster, on an H200 (docs/norms-measured.md).
#include <algorithm>
#include <cmath>

#include "cuda/launch/slices.h"

namespace fuseblock::cuda {
namespace {

constexpr int kMultiprocessors = 132;
constexpr int kWarpThreads = 32;
constexpr int kPieces = 4;
constexpr int kVector = 8;     // elements of 16 bits
constexpr double kBusy = 0.9;  // at least, of threads or of blocks

// Chunks dealt out among the blocks of a team, each with a multiprocessor to itself.
constexpr int kDealtThreads = 512;
constexpr int kDealtRegisters = 3;
constexpr int kDealtSpare = 3;
constexpr int kDealtLead = 30;
// Where a thread keeps more numbers of each channel, such as a scale and a shift of the sample, and has channels of several groups,
// fewer threads, which have more registers: with 512 compiled code had some chunks in local memory, and bf16[1,128,20,256,256] with a
// scale and a shift took 275 us in place of 253. In groups of whole vectors it has none, and bf16[1,512,256,256] takes 51.9 in place of 54.6.
constexpr int kDealtNumbers = 3;
constexpr int kScaledThreads = 384;
constexpr int kScaledRegisters = 4;
constexpr int kScaledLead = 16;

// All channels of a sample, rows going on from warp to warp (device/slices_rows_packed.cuh), where their vectors are no power of two:
// slices that suit warps are then runs of memory that are no whole lines. Blocks have as many threads as such rows keep busy. Of few
// samples all are at work at once; of more of them teams whose blocks have as many chunks as was best for 32,320,64,64 (67 us, with
// half as many 75) and 16,640,64,64 (67 and 76), and no smaller teams, which were not measured. Fewer steps than 2,960,64,64 has, which
// gained least, are for others, and so are chunks in registers that are not as many as were measured.
constexpr int kPackedLeastThreads = 384;
constexpr int kPackedMostThreads = 512;
constexpr int kPackedRegisters = 3;
constexpr int kPackedLeastSteps = 4;
constexpr int kPackedFewSamples = 4;
constexpr double kPackedSteps = 10.7;
constexpr int kPackedLeastTeam = 8;

// A unit in one block, where there were four of a multiprocessor: as many registers as a thread of 384 can spare, units that fill
// most of a block's memory, and several rounds with hardly an idle block.
constexpr int kAloneThreads = 384;
constexpr int kAloneRegisters = 5;
constexpr int kAloneLeastSteps = 8;
constexpr int kAloneLeastRounds = 3;

SlicesChoice blocks_alone(const SlicesDivision& division, int team, int threads, int registers) {
  SlicesChoice choice;
  choice.channels = static_cast<int>(division.channels);
  choice.vector = division.constants.vector;
  choice.team = team;
  choice.pieces = kPieces;
  choice.threads = threads;
  choice.blocks = 1;
  choice.registers = registers;
  return choice;
}

// Threads of a block that have whole rows of so many vectors, and are busy; 0: none.
int packed_threads(int columns) {
  int best = 0, most = 0;
  for (int threads = kPackedLeastThreads; threads <= kPackedMostThreads; threads += kWarpThreads) {
    const int busy = threads / columns * columns;
    if (busy <= most || busy < kBusy * threads) continue;
    best = threads;
    most = busy;
  }
  return best;
}

// Blocks of a team; 0: none that leave hardly a block idle.
int packed_team(const Gpu& gpu, const SlicesWork& work, int rows) {
  const std::int64_t blocks = gpu.multiprocessors;
  if (work.samples <= kPackedFewSamples)
    return static_cast<int>(blocks / std::max<std::int64_t>(1, work.samples));
  const double chunks = static_cast<double>(work.positions) / rows;
  const std::int64_t team = std::max<std::int64_t>(1, std::llround(chunks / kPackedSteps));
  const std::int64_t at_once = std::max<std::int64_t>(1, blocks / team);
  const std::int64_t rounds = (work.samples + at_once - 1) / at_once;
  const std::int64_t teams = (work.samples + rounds - 1) / rounds;
  if (static_cast<double>(work.samples) < kBusy * static_cast<double>(rounds * teams)) return 0;
  return blocks / teams < kPackedLeastTeam ? 0 : static_cast<int>(blocks / teams);
}

std::optional<SlicesChoice> choose_packed(const Gpu& gpu, const SlicesWork& work,
                                          const SlicesDivision& division) {
  const int vector = division.constants.vector;
  const int columns = static_cast<int>(work.channels) / vector;
  const int threads = (columns & (columns - 1)) == 0 ? 0 : packed_threads(columns);
  // What was measured: vectors of 16 bytes, groups of an odd number of them, or that begin inside of one, few numbers of a channel.
  const bool groups =
      work.group % vector == 0 ? work.group / vector % 2 == 1 : vector % static_cast<int>(work.group) != 0;
  if (threads == 0 || vector != kVector || !groups || work.hoisted_numbers > kDealtNumbers)
    return std::nullopt;
  const int team = packed_team(gpu, work, threads / columns * kPieces);
  if (team == 0) return std::nullopt;
  SlicesChoice choice = blocks_alone(division, team, threads, kPackedRegisters);
  choice.channels = static_cast<int>(work.channels);
  choice.spare = kDealtSpare;
  choice.lead = kDealtLead;
  choice.packed = 1;
  return choice;
}

}  // namespace

std::vector<SlicesChoice> choose_registers(const Gpu& gpu, const SlicesWork& work,
                                           const SlicesDivision& division, const SlicesChoice& fixed) {
  const SlicesConstants& constants = division.constants;
  const bool hopper = gpu.architecture->compute_major == 9 && gpu.multiprocessors >= kMultiprocessors;
  const bool measured =
      may_have_registers(work) && work.leaves_registers && work.input_bytes == 2 && work.output_bytes == 2;
  std::vector<SlicesChoice> found;
  if (!hopper || !measured || constants.cluster > 1 || constants.row_positions > 1) return found;
  const bool all_channels = fixed.channels == 0 || fixed.channels == work.channels;
  if (const auto packed = choose_packed(gpu, work, division); packed && all_channels && fixed.packed != 0)
    found.push_back(*packed);
  // Groups that are whole vectors, or vectors that are whole groups.
  const bool whole_vectors = work.group % constants.vector == 0;
  if (!whole_vectors && constants.vector % work.group != 0) return found;
  if (constants.dealt && constants.blocks == 1 && constants.threads == kDealtThreads &&
      constants.pieces == kPieces) {
    const bool many = work.hoisted_numbers > kDealtNumbers && !whole_vectors;
    // Lists of parts are short, so that no block stays away for their sake.
    SlicesChoice choice =
        blocks_alone(division, gpu.multiprocessors / division.teams, many ? kScaledThreads : kDealtThreads,
                     many ? kScaledRegisters : kDealtRegisters);
    choice.spare = kDealtSpare;
    choice.lead = many ? kScaledLead : kDealtLead;
    found.push_back(choice);
  } else if (constants.blocks > 2 && !constants.again) {
    found.push_back(blocks_alone(division, 1, kAloneThreads, kAloneRegisters));
  }
  return found;
}

bool suits_registers(const Gpu& gpu, const SlicesDivision& division) {
  const SlicesConstants& constants = division.constants;
  if (constants.packed) return constants.registers == kPackedRegisters && division.steps >= kPackedLeastSteps;
  if (constants.dealt)
    return constants.registers == (constants.threads == kScaledThreads ? kScaledRegisters : kDealtRegisters);
  if (division.team > 1 || constants.again || constants.registers != kAloneRegisters) return false;
  const std::int64_t rounds = (division.units + gpu.multiprocessors - 1) / gpu.multiprocessors;
  return division.steps >= kAloneLeastSteps && rounds >= kAloneLeastRounds &&
         static_cast<double>(division.units) >= kBusy * static_cast<double>(rounds * gpu.multiprocessors);
}

}  // namespace fuseblock::cuda
