// How the kernel `slices_whole` divides its work: whole samples, all of them on chip at once.
#include <algorithm>
#include <array>

#include "cuda/launch/registers.h"
#include "cuda/launch/slices.h"

namespace fuseblock::cuda {
namespace {

constexpr int kVectorBytes = 16;
constexpr std::array<int, 2> kThreads = {512, 640};
// Of a thread, beside its vectors: what sweeps take of its channels, sums, addresses.
constexpr int kOtherRegisters = 72;
// Vectors of a thread in registers, where shared memory has room for the others: as many as leave it enough.
constexpr std::array<int, 3> kRegistersWanted = {8, 4, 1};
// Positions of a thread, whose sums lose at most so many roundings of their variance for each channel.
constexpr int kMostRows = 64;
// Groups of a sample, of which a warp takes a few.
constexpr std::int64_t kMostGroups = 128;
constexpr std::int64_t kMostPositions = 1'000'000'000;
// Bytes of the input, in 16 bits: smaller ones took longer than in clusters, and f32 was not measured.
constexpr std::int64_t kLeastBytes = 8'000'000;
// The least share of threads that have a column, and of multiprocessors that have a block.
constexpr double kBusy = 0.9;

std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Bytes of shared memory beside the columns, or a few more: statistics and values of each channel, parts of groups of each row.
std::int64_t other_bytes(const SlicesWork& work, std::int64_t lists, std::int64_t columns) {
  return 1024 + work.channels * 48 + lists * (columns + work.channels / work.group) * 2 * 12;
}

}  // namespace

std::optional<SlicesDivision> divide_whole(const Gpu& gpu, const SlicesWork& work,
                                           const SlicesChoice& choice) {
  const bool asked = choice.whole > 0;
  const bool suits = work.group_statistics && work.passes == 2 && work.statistics == 1 &&
                     !work.last_statistics && work.inputs == 1 && work.smallest_bytes < 8 &&
                     work.leaves_registers && work.positions < kMostPositions &&
                     work.channels / work.group <= kMostGroups;
  const int vector = kVectorBytes / std::max(1, work.smallest_bytes);
  const std::int64_t columns = work.channels / vector;
  if (!suits || columns == 0 || work.channels % vector != 0 || work.samples == 0 || work.positions == 0 ||
      (!asked && !has_measured_clusters(gpu)))
    return std::nullopt;
  const std::int64_t most_team = gpu.multiprocessors / work.samples;
  std::optional<SlicesDivision> best;
  std::int64_t busiest = 0;
  for (const int threads : kThreads) {
    const int block = choice.threads > 0 ? choice.threads : threads;
    const std::int64_t lists = block / columns;
    const std::int64_t busy = lists * columns * kThreads.back() / block;
    if (static_cast<double>(busy) < kBusy * kThreads.back() || busy <= busiest) continue;
    const std::int64_t wanted = choice.team > 0 ? std::min<std::int64_t>(choice.team, most_team) : most_team;
    if (wanted < 2) continue;
    const std::int64_t rows = quotient_up(work.positions, wanted * lists);
    const std::int64_t team = quotient_up(work.positions, rows * lists);
    const int vector_bytes = vector * work.input_bytes;
    const std::int64_t room = (gpu.architecture->shared_bytes_block - other_bytes(work, lists, columns)) /
                              (std::int64_t{block} * vector_bytes);
    if (room < 0) continue;
    const std::int64_t most =
        (registers_of(block, 1) - kOtherRegisters) * std::int64_t{kRegisterBytes} / vector_bytes;
    const auto fitting = std::find_if(kRegistersWanted.begin(), kRegistersWanted.end(),
                                      [&](int each) { return each <= most; });
    if (team < 2 || fitting == kRegistersWanted.end()) continue;
    const std::int64_t in_registers = choice.registers > 0 ? choice.registers : *fitting;
    const std::int64_t registers = std::max(std::min(in_registers, rows), rows - room);
    if (registers > most || rows > kMostRows) continue;
    busiest = busy;
    best = SlicesDivision{{},
                          work.channels,
                          static_cast<int>(team),
                          static_cast<int>(work.samples),
                          static_cast<int>(rows),
                          static_cast<int>(rows)};
    best->constants.threads = block;
    best->constants.blocks = 1;
    best->constants.vector = vector;
    best->constants.pieces = 1;
    best->constants.ring = static_cast<int>(rows - registers);
    best->constants.registers = static_cast<int>(registers);
    best->constants.packed = true;
    best->constants.whole = true;
    best->constants.team = static_cast<int>(team);
    best->units = work.samples;
  }
  const std::int64_t bytes = work.samples * work.positions * work.channels * work.input_bytes;
  const bool all_busy = best && static_cast<double>(best->team * work.samples) >= kBusy * gpu.multiprocessors;
  const bool measured = work.input_bytes == 2 && work.output_bytes == 2 && bytes >= kLeastBytes;
  if (!asked && (!all_busy || !measured)) return std::nullopt;
  return best;
}

}  // namespace fuseblock::cuda
