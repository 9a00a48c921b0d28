#include "cuda/launch/slices.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "fuseblock/error.h"

namespace fuseblock::cuda {
namespace {

constexpr int kMostVectorBytes = 16;
constexpr int kLeastCopyBytes = 4;
constexpr int kWarpThreads = 32;
// What the device code keeps beside the planner's count.
constexpr int kStaticBytes = 256;
// Chunks of a ring that keep the memory busy while others stay for the next pass.
constexpr int kLookahead = 2;
constexpr int kLeastRing = 3;

// Figures of the cost model: seconds of a round of statistics that nobody hides, of a block alone and of a team; and
// instructions of an element in all its passes and of a thread's chunk in one.
constexpr double kBlockRound = 1e-6;
constexpr double kTeamRound = 4.5e-6;
constexpr double kElementInstructions = 14;
constexpr double kChunkInstructions = 50;
// Thread instructions that a multiprocessor issues in a second, at two thirds of its peak.
constexpr double kIssueRate = 128 * 1.7e9 * 0.66;
// Bytes a second, and of L2, where the device's description has none.
constexpr double kDefaultBandwidth = 2e12;
constexpr double kDefaultCache = 40e6;
// The share of L2 that holds what is read again, and what such a read costs beside one from memory.
constexpr double kCacheShare = 0.6;
constexpr double kCachedCost = 0.4;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

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
  const int row_warps = static_cast<int>(ceil_div(rows.columns, kWarpThreads));
  rows.lists = constants.threads / kWarpThreads / row_warps;
  rows.stride = rows.lists * (rows.columns < kWarpThreads ? kWarpThreads / rows.columns : 1);
  return rows;
}

// What memory moves for each byte of a slice's rows, which are whole sectors of 32 bytes or not; 64 bytes are what it
// moves best.
double waste(const SlicesWork& work, std::int64_t channels) {
  if (channels == work.channels) return 1;
  const std::int64_t run = channels * work.smallest_bytes;
  const double ragged = static_cast<double>(32 - std::gcd(run, std::int64_t{32}));
  const double sectors = 1 + ragged / static_cast<double>(run);
  return sectors * (run >= 128 ? 1.0 : run >= 64 ? 1.08 : 1.6);
}

}  // namespace

SlicesChoice SlicesChoice::parse(const std::string& text) {
  SlicesChoice choice;
  const std::array<std::pair<std::string_view, int SlicesChoice::*>, 8> fields = {{
      {"channels", &SlicesChoice::channels},
      {"team", &SlicesChoice::team},
      {"vector", &SlicesChoice::vector},
      {"pieces", &SlicesChoice::pieces},
      {"threads", &SlicesChoice::threads},
      {"blocks", &SlicesChoice::blocks},
      {"ring", &SlicesChoice::ring},
      {"ahead", &SlicesChoice::ahead},
  }};
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    const std::string_view name = word.substr(0, word.find('='));
    const std::string_view value = word.substr(std::min(word.size(), name.size() + 1));
    const auto* field =
        std::find_if(fields.begin(), fields.end(), [&](const auto& each) { return each.first == name; });
    int number = 0;
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number);
    if (field == fields.end() || parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() ||
        number < 0)
      throw UserError(
          "FUSEBLOCK_SLICES: `" + std::string(word.substr(0, 40)) +
          "` is none of channels=, team=, vector=, pieces=, threads=, blocks=, ring= and ahead= with a "
          "number");
    choice.*(field->second) = number;
  }
  return choice;
}

std::vector<SlicesWidth> slices_widths(const SlicesWork& work, const SlicesChoice& choice) {
  std::vector<SlicesWidth> widths;
  SlicesConstants constants;
  constants.pieces = choice.pieces > 0 ? choice.pieces : work.input_bytes > kLeastCopyBytes ? 1 : 2;
  const auto add = [&](int vector, std::int64_t channels, std::int64_t row_positions) {
    if (choice.channels > 0 && choice.channels != channels) return;
    SlicesWidth width = {constants, channels};
    width.constants.vector = vector;
    width.constants.row_positions = static_cast<int>(row_positions);
    // Two blocks of 256 threads; a row that is wider than that takes one of 512.
    for (const auto& [threads, blocks] : {std::pair{256, 2}, std::pair{512, 1}}) {
      width.constants.threads = choice.threads > 0 ? choice.threads : threads;
      width.constants.blocks = choice.blocks > 0 ? choice.blocks : blocks;
      if (channels * row_positions > std::int64_t{vector} * width.constants.threads) continue;
      widths.push_back(width);
      return;
    }
  };
  for (int vector = std::max(1, kMostVectorBytes / work.smallest_bytes);
       vector * work.smallest_bytes >= kLeastCopyBytes; vector /= 2) {
    const bool wanted = choice.vector == 0 || choice.vector == vector;
    if (wanted && work.channels % vector == 0) {
      for (std::int64_t groups = 1; groups <= work.channels / work.group; ++groups) {
        const std::int64_t channels = groups * work.group;
        if (work.channels % channels == 0 && channels % vector == 0) add(vector, channels, 1);
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
  const jit::Architecture& limits = *gpu.architecture;
  SlicesConstants constants = width.constants;
  const int block_bytes =
      std::min(limits.shared_bytes_block,
               limits.shared_bytes_multiprocessor / constants.blocks - limits.shared_bytes_reserved);
  const int chunk_bytes = std::max(1, width.chunk_bytes) * constants.threads;
  constants.ring = (block_bytes - width.shared_bytes - kStaticBytes) / chunk_bytes;
  if (choice.ring > 0) constants.ring = std::min(constants.ring, choice.ring);
  if (constants.ring < kLeastRing) return std::nullopt;

  const Rows rows = rows_of(constants, width.channels);
  const std::int64_t chunk_rows = std::int64_t{rows.stride} * constants.pieces;
  const std::int64_t chunks = ceil_div(ceil_div(work.positions, constants.row_positions), chunk_rows);
  const std::int64_t units = work.samples * (work.channels / width.channels);
  const std::int64_t blocks = std::int64_t{gpu.multiprocessors} * constants.blocks;

  // Seconds of one block's chunk where all blocks are at work: memory or instructions.
  const double bandwidth = gpu.memory_bandwidth > 0 ? gpu.memory_bandwidth : kDefaultBandwidth;
  const double elements = static_cast<double>(chunk_rows * rows.slots);
  const double read = elements * work.input_bytes * waste(work, width.channels) / bandwidth;
  const double written = elements * work.output_bytes * waste(work, width.channels) / bandwidth;
  const double thread_instructions =
      constants.pieces * constants.vector * kElementInstructions * work.input_bytes / work.smallest_bytes +
      work.passes * kChunkInstructions;
  const double issue = constants.threads * thread_instructions / (kIssueRate * gpu.multiprocessors);
  const double chunk = std::max(read + written, issue);
  const double cache = kCacheShare * (gpu.cache_bytes > 0 ? gpu.cache_bytes : kDefaultCache);
  const double round_seconds = work.passes == 1 ? 0 : kTeamRound * (work.passes - 1);

  SlicesDivision best;
  for (std::int64_t wanted = 1; wanted <= blocks; ++wanted) {
    if (choice.team > 0 && wanted != choice.team) continue;
    const std::int64_t steps = ceil_div(chunks, wanted);
    // Everyone has some of the unit.
    const std::int64_t team = ceil_div(chunks, steps);
    const std::int64_t teams = std::min(blocks / team, units);
    const std::int64_t rounds = ceil_div(units, teams);
    const std::int64_t kept = steps <= constants.ring ? steps : std::max(1, constants.ring - kLookahead);
    const bool fits_two = 2 * steps <= constants.ring && rounds > 1 && work.passes > 1;
    const bool ahead = fits_two && choice.ahead != 0;
    const auto again = static_cast<double>((steps - kept) * (work.passes - 1));
    // Blocks that are idle leave their share of the memory to the others, up to twice as much.
    const double busy = std::max(0.5, static_cast<double>(team * teams) / static_cast<double>(blocks));
    const double at_once = static_cast<double>(blocks) * busy;
    const double again_bytes = again * elements * work.input_bytes * static_cast<double>(team * teams);
    const double hits = again_bytes > 0 ? std::min(1.0, cache / again_bytes) : 0;
    const double sweeps =
        at_once * (static_cast<double>(steps) * chunk + again * read * (1 - hits * (1 - kCachedCost)));
    double round = team == 1 ? kBlockRound : round_seconds;
    if (ahead) round = 0.5e-6 + std::max(0.0, round - 0.5 * sweeps);
    const double seconds = static_cast<double>(rounds) * (sweeps + round);
    if (best.units > 0 && seconds >= best.seconds) continue;
    best.constants = constants;
    best.constants.again = kept < steps;
    best.channels = width.channels;
    best.team = static_cast<int>(team);
    best.teams = static_cast<int>(teams);
    best.steps = static_cast<int>(steps);
    best.kept = static_cast<int>(kept);
    best.ahead = ahead;
    best.units = units;
    best.seconds = seconds;
  }
  if (best.units == 0) return std::nullopt;
  return best;
}

}  // namespace fuseblock::cuda
