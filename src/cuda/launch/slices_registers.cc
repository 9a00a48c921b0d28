// Which divisions of the kernel `slices` have chunks in registers (device/slices_registers.cuh) without being asked: those of the
// kinds that were measured to be faster, on an H200 (docs/norms-measured.md).
#include "cuda/launch/slices.h"

namespace fuseblock::cuda {
namespace {

constexpr int kMultiprocessors = 132;
constexpr int kPieces = 4;

// Chunks dealt out among the blocks of a team, each with a multiprocessor to itself.
constexpr int kDealtThreads = 512;
constexpr int kDealtRegisters = 3;
constexpr int kDealtSpare = 3;
constexpr int kDealtLead = 30;
// Where a thread keeps more numbers of each channel, such as a scale and a shift of the sample, fewer threads, which have more
// registers: with 512 compiled code had some chunks in local memory, and bf16[1,128,20,256,256] with a scale and a shift took 275 us
// in place of 253.
constexpr int kDealtNumbers = 3;
constexpr int kScaledThreads = 384;
constexpr int kScaledRegisters = 4;
constexpr int kScaledLead = 16;

// A unit in one block, where there were four of a multiprocessor: as many registers as a thread of 384 can spare, units that fill
// most of a block's memory, and several rounds with hardly an idle block.
constexpr int kAloneThreads = 384;
constexpr int kAloneRegisters = 5;
constexpr int kAloneLeastSteps = 8;
constexpr int kAloneLeastRounds = 3;
constexpr double kAloneBusy = 0.9;

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

}  // namespace

std::optional<SlicesChoice> choose_registers(const Gpu& gpu, const SlicesWork& work,
                                             const SlicesDivision& division) {
  const SlicesConstants& constants = division.constants;
  const bool hopper = gpu.architecture->compute_major == 9 && gpu.multiprocessors >= kMultiprocessors;
  const bool measured =
      may_have_registers(work) && work.leaves_registers && work.input_bytes == 2 && work.output_bytes == 2;
  // Groups that are whole vectors, or vectors that are whole groups.
  const bool whole = work.group % constants.vector == 0 || constants.vector % work.group == 0;
  if (!hopper || !measured || !whole || constants.cluster > 1 || constants.row_positions > 1)
    return std::nullopt;
  if (constants.dealt && constants.blocks == 1 && constants.threads == kDealtThreads &&
      constants.pieces == kPieces) {
    const bool many = work.hoisted_numbers > kDealtNumbers;
    // Lists of parts are short, so that no block stays away for their sake.
    SlicesChoice choice =
        blocks_alone(division, gpu.multiprocessors / division.teams, many ? kScaledThreads : kDealtThreads,
                     many ? kScaledRegisters : kDealtRegisters);
    choice.spare = kDealtSpare;
    choice.lead = many ? kScaledLead : kDealtLead;
    return choice;
  }
  if (constants.blocks > 2 && !constants.again)
    return blocks_alone(division, 1, kAloneThreads, kAloneRegisters);
  return std::nullopt;
}

bool suits_registers(const Gpu& gpu, const SlicesDivision& division) {
  const SlicesConstants& constants = division.constants;
  if (constants.dealt)
    return constants.registers == (constants.threads == kScaledThreads ? kScaledRegisters : kDealtRegisters);
  if (division.team > 1 || constants.again || constants.registers != kAloneRegisters) return false;
  const std::int64_t rounds = (division.units + gpu.multiprocessors - 1) / gpu.multiprocessors;
  return division.steps >= kAloneLeastSteps && rounds >= kAloneLeastRounds &&
         static_cast<double>(division.units) >=
             kAloneBusy * static_cast<double>(rounds * gpu.multiprocessors);
}

}  // namespace fuseblock::cuda
