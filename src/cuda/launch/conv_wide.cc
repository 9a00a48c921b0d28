#include "cuda/launch/conv_wide.h"

#include <algorithm>
#include <array>
#include <vector>

namespace fuseblock::cuda {
namespace {

constexpr int kCellBytes = 16;
constexpr int kStepBytes = 2 * kCellBytes;  // of a position or an output channel, in one step of products
constexpr int kTilesBytes = 128;            // what is known of tiles
// What the device code keeps beside the planner's count.
constexpr int kStaticBytes = 256;
constexpr int kOtherRegisters = 56;
constexpr int kMostRegisters = 255;
constexpr int kRegisters = 65536;  // of a multiprocessor

int ceil_div(int a, int b) { return (a + b - 1) / b; }
std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

int group_in(const ConvWideWork& work) {
  return static_cast<int>(work.conv.in_channels / work.conv.geometry.groups);
}
int group_out(const ConvWideWork& work) {
  return static_cast<int>(work.conv.channels / work.conv.geometry.groups);
}
int chunks(const ConvWideConstants& constants, const ConvWideWork& work) {
  return ceil_div(group_in(work) * work.element_bytes, constants.chunk_steps * kStepBytes);
}
int taps(const ConvWideWork& work) {
  const Spatial& filter = work.conv.geometry.filter;
  return static_cast<int>(filter[0] * filter[1] * filter[2]);
}
int stage_bytes(const ConvWideConstants& constants) {
  return constants.row_taps * constants.chunk_steps * constants.block_channels() * kStepBytes;
}
int image_bytes(const ConvWideConstants& constants) {
  return constants.box.quad * constants.chunk_steps * kStepBytes;
}
int image_cells(const ConvWideConstants& constants, const ConvWideWork& work) {
  return 2 * constants.chunk_steps * constants.box.positions(work.conv.geometry);
}

int thread_cells(const ConvWideConstants& constants, const ConvWideWork& work) {
  return ceil_div(image_cells(constants, work), constants.threads);
}

int shared_bytes(const ConvWideConstants& constants, const ConvWideWork& work) {
  const int numbers = constants.warp_rows() * constants.block_channels() * work.list_numbers +
                      2 * constants.columns * constants.threads * work.kept_numbers;
  const int offsets = thread_cells(constants, work) * constants.threads * (constants.far ? 8 : 4);
  return (work.values_bytes + 4 * std::max(numbers, 16) + offsets + kTilesBytes + 127) / 128 * 128;
}

// Whether a thread has registers for its sums, for both factors of a step and for the cells under way. The
// count is rough: `slack` is how often it may have them.
bool has_registers(const ConvWideConstants& constants, const ConvWideWork& work, double slack) {
  const int parts = work.mode == ConvMode::kStrict ? 2 : 1;
  const int cell = constants.vectors ? 4 : kCellBytes / work.element_bytes;
  const int needed = parts * (4 * constants.rows * constants.columns + 4 * constants.rows + 8) +
                     constants.pieces * (cell + 1) + kOtherRegisters;
  return needed <= slack * std::min(kMostRegisters, kRegisters / (constants.threads * constants.blocks));
}

bool fits(const ConvWideConstants& constants, const ConvWideWork& work, const Gpu& gpu) {
  const jit::Architecture& limits = *gpu.architecture;
  const int room = std::min(limits.shared_bytes_block, limits.shared_bytes_multiprocessor / constants.blocks -
                                                           limits.shared_bytes_reserved) -
                   kStaticBytes;
  return conv_wide_bytes(constants, work) <= room;
}

// Clocks of a multiprocessor for all tiles. Products of 16 x 8 are 0.62 a clock, instructions four, shared
// memory gives 128 bytes and what is behind it about 24; these overlap, but not wholly. A barrier and the
// start of a tile are held against them.
double cost_of(const ConvWideConstants& constants, const ConvWideWork& work, const Gpu& gpu) {
  constexpr double kProductRate = 0.62;
  constexpr double kSharedRate = 128;
  constexpr double kMemoryRate = 24;
  constexpr double kInstructionRate = 4;
  constexpr double kOverlap = 0.75;
  constexpr double kBarrier = 60;
  constexpr double kTile = 1000;
  // Instructions of a thread: for a cell that is staged, for an element of the result.
  constexpr double kCell = 50;
  constexpr double kElement = 16;
  const int warps = constants.threads / 32;
  const int parts = work.mode == ConvMode::kStrict ? 3 : 1;
  const double staged = chunks(constants, work);
  const double steps = staged * constants.chunk_steps * taps(work);
  const double products = steps * warps * constants.rows * constants.columns * parts;
  const double read = steps * warps * (constants.rows * 512 + constants.columns * 256);
  const double copied =
      steps * constants.block_channels() * kStepBytes + staged * image_cells(constants, work) * kCellBytes;
  const double elements = static_cast<double>(warps) * constants.rows * constants.columns * 4;
  const double instructions = products * 1.4 + staged * thread_cells(constants, work) * warps * kCell;
  const std::array<double, 4> clocks = {products / kProductRate, read / kSharedRate, copied / kMemoryRate,
                                        instructions / kInstructionRate};
  const double most = *std::max_element(clocks.begin(), clocks.end());
  const double sum = clocks[0] + clocks[1] + clocks[2] + clocks[3];
  const double stages = steps / (constants.row_taps * constants.chunk_steps);
  // Other blocks of the multiprocessor go on meanwhile.
  const double alone =
      (stages * kBarrier + elements * kElement / kInstructionRate + kTile) / constants.blocks;
  const double tile = most + (1 - kOverlap) * (sum - most) + alone;
  const auto blocks = std::int64_t{gpu.multiprocessors} * constants.blocks;
  return tile * constants.blocks *
         static_cast<double>(ceil_div(conv_wide_tiles(constants, work).all(), blocks));
}

std::vector<int> divisors(int number) {
  std::vector<int> result;
  for (int i = number; i >= 1; --i)
    if (number % i == 0) result.push_back(i);
  return result;
}

// What remains to be chosen: the strip, the depth of a chunk, the stages.
void try_shape(ConvWideConstants trial, const ConvWideWork& work, const Gpu& gpu, double slack,
               Cheapest<ConvWideConstants>& found) {
  constexpr int kMostPieces = 2;
  constexpr int kMostStageSteps = 8;
  const ConvWishes& wishes = work.wishes;
  const auto width = static_cast<int>(work.conv.out[2]);
  const auto filter_columns = static_cast<int>(work.conv.geometry.filter[2]);
  const auto filter_rows = static_cast<int>(work.conv.geometry.filter[1]);
  for (int strips = 1; strips == 1 || ceil_div(width, strips) >= 16; strips *= 2) {
    const int strip = ceil_div(width, strips);
    if (strip != wishes.strip.value_or(strip)) continue;
    trial.box = conv_box(work.conv, trial.tile(), strip);
    for (const int chunk_steps : {1, 2, 4}) {
      trial.chunk_steps = chunk_steps;
      if (chunk_steps != wishes.chunk.value_or(chunk_steps)) continue;
      if (chunk_steps > 1 && (chunk_steps - 1) * kStepBytes >= group_in(work) * work.element_bytes) continue;
      for (const int row_taps : divisors(filter_columns)) {
        trial.row_taps = row_taps;
        if (row_taps != wishes.taps.value_or(row_taps)) continue;
        if (row_taps * chunk_steps > kMostStageSteps && row_taps > 1) continue;
        const int stages =
            static_cast<int>(work.conv.geometry.filter[0]) * filter_rows * filter_columns / row_taps;
        trial.pieces = std::min(ceil_div(thread_cells(trial, work), stages), kMostPieces);
        trial.shared_bytes = shared_bytes(trial, work);
        if (!has_registers(trial, work, slack)) continue;
        trial.stages = 4;
        while (trial.stages > 2 && !fits(trial, work, gpu)) --trial.stages;
        if (!fits(trial, work, gpu)) continue;
        found.add(cost_of(trial, work, gpu) * (trial.stages == 2 ? 1.1 : 1), trial);
      }
    }
  }
}

}  // namespace

int conv_wide_bytes(const ConvWideConstants& constants, const ConvWideWork& work) {
  return shared_bytes(constants, work) + 2 * image_bytes(constants) +
         constants.stages * stage_bytes(constants);
}

ConvWideTiles conv_wide_tiles(const ConvWideConstants& constants, const ConvWideWork& work) {
  const Spatial& out = work.conv.out;
  ConvWideTiles tiles;
  tiles.of_strip = ceil_div(out[0] * out[1] * constants.box.strip, std::int64_t{constants.tile()});
  tiles.of_span = tiles.of_strip * ceil_div(out[2], std::int64_t{constants.box.strip});
  const std::int64_t blocks =
      work.conv.geometry.groups * ceil_div(group_out(work), constants.block_channels());
  tiles.spans = work.conv.geometry.batch * blocks;
  tiles.weight_bytes = blocks * chunks(constants, work) * taps(work) * constants.chunk_steps *
                       constants.block_channels() * kStepBytes;
  return tiles;
}

namespace {

// Threads and blocks a multiprocessor.
constexpr std::array<std::pair<int, int>, 5> kBlocks = {{{256, 1}, {128, 2}, {256, 2}, {128, 3}, {128, 1}}};

Cheapest<ConvWideConstants> cheapest_conv_wide(const Gpu& gpu, const ConvWideWork& work, double slack,
                                               std::size_t most_kept) {
  const ConvWishes& wishes = work.wishes;
  Cheapest<ConvWideConstants> found(most_kept);
  ConvWideConstants trial;
  trial.mode = work.mode;
  trial.vectors = work.vectors;
  trial.far = work.far;
  const int columns = ceil_div(group_out(work), 8);
  for (const auto& [threads, blocks] : kBlocks)
    for (const int warp_columns : {1, 2})
      for (const int most : {8, 6, 4, 2})
        for (const int rows : {4, 2, 1}) {
          trial.threads = threads;
          trial.blocks = blocks;
          trial.warp_columns = warp_columns;
          trial.columns = most;
          trial.rows = rows;
          if (threads != wishes.threads.value_or(threads) || blocks != wishes.blocks.value_or(blocks) ||
              warp_columns != wishes.beside.value_or(warp_columns) ||
              most != wishes.products.value_or(most) || rows != wishes.rows.value_or(rows))
            continue;
          // Blocks of channels that are mostly empty have smaller ones beside them.
          if (most > 2 && warp_columns * (most - 2) >= columns) continue;
          try_shape(trial, work, gpu, slack, found);
        }
  return found;
}

}  // namespace

ConvWideConstants divide_conv_wide(const Gpu& gpu, const ConvWideWork& work) {
  // Who asks for blocks may have spilled registers.
  const Cheapest<ConvWideConstants> found = cheapest_conv_wide(gpu, work, work.wishes.blocks ? 2 : 1, 1);
  if (!found.empty()) return found.best();
  if (work.wishes.any()) throw NotSupportedError("conv_wide: a convolution has no division like that");
  throw InternalError("a convolution whose smallest tile does not fit shared memory");
}

std::vector<Division> conv_wide_divisions(const Gpu& gpu, const ConvWideWork& work) {
  constexpr double kCountedTwice = 1.15;
  std::vector<Division> result;
  for (const auto& [threads, blocks] : kBlocks)
    for (const int beside : {1, 2})
      for (const int columns : {8, 6, 4, 2})
        for (const int rows : {4, 2, 1}) {
          ConvWideWork trial = work;
          ConvWishes& wishes = trial.wishes = {};
          wishes.threads = threads;
          wishes.blocks = blocks;
          wishes.rows = rows;
          wishes.products = columns;
          wishes.beside = beside;
          const std::string shape = wishes.text();
          const auto found = cheapest_conv_wide(gpu, trial, kCountedTwice, kDivisionsOfShape);
          for (const auto& [cost, constants] : found.kept()) {
            wishes.chunk = constants.chunk_steps;
            wishes.taps = constants.row_taps;
            wishes.strip = constants.box.strip;
            result.push_back({"conv_wide", shape, wishes.text(), cost});
          }
        }
  return result;
}

}  // namespace fuseblock::cuda
