#include "cuda/launch/conv_deep.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace fuseblock::cuda {
namespace {

constexpr int kCellBytes = 16;
constexpr int kStepBytes = 2 * kCellBytes;  // of a position or an output channel, in one step of products
// What the device code keeps beside the planner's count.
constexpr int kStaticBytes = 256;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t group_in(const ConvWideWork& work) { return work.conv.in_channels / work.conv.geometry.groups; }
std::int64_t group_out(const ConvWideWork& work) { return work.conv.channels / work.conv.geometry.groups; }
int chunks(const ConvDeepConstants& constants, const ConvWideWork& work) {
  return static_cast<int>(ceil_div(group_in(work) * work.element_bytes, constants.chunk_steps * kStepBytes));
}
int plane_taps(const ConvWideWork& work) {
  return static_cast<int>(work.conv.geometry.filter[1] * work.conv.geometry.filter[2]);
}
// From one row of positions to the next.
std::int64_t pitch_of(const ConvDeepConstants& constants, const ConvWideWork& work) {
  const ConvGeometry& geometry = work.conv.geometry;
  return constants.strip + (geometry.filter[2] - 1) * geometry.dilation[2];
}
// Positions of the input that a tile meets in a plane.
std::int64_t box_positions(const ConvDeepConstants& constants, const ConvWideWork& work) {
  const ConvGeometry& geometry = work.conv.geometry;
  return constants.tile() + (geometry.filter[1] - 1) * geometry.dilation[1] * pitch_of(constants, work) +
         (geometry.filter[2] - 1) * geometry.dilation[2];
}
// Whether two neighbouring positions lie beside each other in memory at even places.
bool has_pairs(const ConvDeepConstants& constants, const ConvWideWork& work) {
  return constants.dense && work.conv.in[2] % 2 == 0 && constants.strip % 2 == 0 &&
         pitch_of(constants, work) % 2 == 0;
}
// Of the input in a plane, as device/conv_deep_input.cuh counts.
std::int64_t box_items(const ConvDeepConstants& constants, const ConvWideWork& work) {
  const std::int64_t positions = box_positions(constants, work);
  if (!constants.pairs) return positions;
  const std::int64_t halves =
      work.conv.window().pad[2] % 2 == 0 ? 0 : positions / pitch_of(constants, work) + 2;
  return (positions + 1) / 2 + halves;
}
// Of a chunk, for each stager.
std::int64_t thread_items(const ConvDeepConstants& constants, const ConvWideWork& work) {
  return ceil_div(2 * constants.chunk_steps * box_items(constants, work), ConvDeepConstants::kStagers);
}
// Registers that hold an item on its way.
int item_registers(const ConvDeepConstants& constants, const ConvWideWork& work) {
  const int loads = work.vectors ? 4 : kCellBytes / work.element_bytes;
  return constants.pairs && work.element_bytes == 4 ? 2 * loads : loads;
}
// Items on their way by each stager, as many as its registers hold and as even over its rounds as can be.
int pieces_of(const ConvDeepConstants& constants, const ConvWideWork& work) {
  constexpr int kOther = 50;
  const std::int64_t items = thread_items(constants, work);
  const std::int64_t most = (constants.producer_registers() - kOther) / (item_registers(constants, work) + 1);
  return static_cast<int>(ceil_div(items, ceil_div(items, most)));
}
int slot_bytes(const ConvDeepConstants& constants) {
  return constants.parts() * constants.chunk_steps * ConvDeepConstants::kRowChannels * kStepBytes;
}
std::int64_t image_bytes(const ConvDeepConstants& constants, const ConvWideWork& work) {
  const std::int64_t quad = box_positions(constants, work) / 2 * 2 + 1;
  return constants.parts() * 2 * constants.chunk_steps * quad * kCellBytes;
}
std::int64_t shared_begin(const ConvDeepConstants& constants, const ConvWideWork& work) {
  return ceil_div(constants.channel_groups * constants.stages * slot_bytes(constants) +
                      constants.images * image_bytes(constants, work),
                  128) *
         128;
}

// Whether a consumer has registers for its sums.
bool has_registers(const ConvDeepConstants& constants) {
  return constants.needed_registers() <= constants.consumer_registers();
}

bool fits(const ConvDeepConstants& constants, const ConvWideWork& work, const Gpu& gpu) {
  return conv_deep_bytes(constants, work) <= gpu.architecture->shared_bytes_block - kStaticBytes;
}

// Clocks that a consumer takes for a tile beside its products: its program above all.
double program_clocks(const ConvDeepConstants& constants) { return 2000 + 40.0 * constants.columns; }

// Clocks of the products of a tile with one depth of the filter. A product of 64 x N takes the tensor cores N
// / 2 clocks, and shared memory 16 + N / 4 for both factors.
double depth_clocks(const ConvDeepConstants& constants, const ConvWideWork& work) {
  constexpr double kOverlap = 0.15;  // what is left of the smaller of both
  const double groups = constants.channel_groups * constants.tile_groups;
  const double products = constants.mode == ConvMode::kStrict ? 3 : 1;
  const double columns = constants.columns;
  const double read = ConvDeepConstants::kRowChannels / 4.0 + columns / 4;
  return plane_taps(work) * chunks(constants, work) * constants.chunk_steps * groups * products *
         (std::max(columns / 2, read) + kOverlap * std::min(columns / 2, read));
}

// Taps whose products are added rounded at once in strict mode, as device/conv_deep.cuh has it.
int taps_together(const ConvDeepConstants& constants) {
  return constants.chunk_steps > 3 ? 1 : 6 / constants.chunk_steps;
}

// Clocks of a multiprocessor for all tiles. What is behind shared memory gives about 24 bytes a clock. The
// program runs alone, and so do the sums of strict mode that are added up; what a tap takes beside its
// products is what an H200 took longer for taps of half as many channels.
double cost_of(const ConvDeepConstants& constants, const ConvWideWork& work, const Gpu& gpu) {
  constexpr double kMemoryRate = 24;
  constexpr double kTap = 250;
  constexpr double kPromote = 100;
  constexpr double kItem = 100, kLoad = 25;
  const double filter_depths = static_cast<double>(work.conv.geometry.filter[0]);
  const double taps = filter_depths * plane_taps(work) * chunks(constants, work);
  const double tensor = filter_depths * depth_clocks(constants, work);
  const double copied = taps * constants.channel_groups * slot_bytes(constants) +
                        filter_depths * chunks(constants, work) * 2 * constants.chunk_steps *
                            static_cast<double>(box_positions(constants, work)) * kCellBytes;
  const double staging = filter_depths * chunks(constants, work) *
                         static_cast<double>(thread_items(constants, work)) *
                         (kItem + kLoad * item_registers(constants, work));
  double tile = std::max({tensor, copied / kMemoryRate, staging}) + taps * kTap + program_clocks(constants);
  if (constants.mode == ConvMode::kStrict)
    tile += taps / taps_together(constants) * (kPromote + constants.columns);
  if (constants.stages < 5) tile *= constants.stages == 3 ? 1.05 : 1.01;
  if (constants.images < 3) tile *= 1.015;
  return tile * static_cast<double>(ceil_div(conv_deep_tiles(constants, work, 1).all(), gpu.multiprocessors));
}

constexpr int kMostColumns = 256;
constexpr int kFewestColumns = 32;
constexpr int kMostSteps = 4;
// Taps in a ring of weights, and staged chunks.
std::vector<std::pair<int, int>> rings() {
  std::vector<std::pair<int, int>> result;
  for (const int stages : {5, 4, 6, 3})
    for (const int images : {3, 4, 2, 6}) result.emplace_back(stages, images);
  return result;
}

// The divisions that take least; none where no tile fits.
Cheapest<ConvDeepConstants> cheapest_conv_deep(const Gpu& gpu, const ConvWideWork& work, std::size_t most) {
  const ConvWishes& wishes = work.wishes;
  Cheapest<ConvDeepConstants> found(most);
  ConvDeepConstants trial;
  trial.mode = work.mode;
  trial.vectors = work.vectors;
  trial.dense = work.dense;
  trial.far = work.far;
  const std::int64_t width = work.conv.out[2];
  const std::int64_t all_steps = ceil_div(group_in(work) * work.element_bytes, kStepBytes);
  for (const int channel_groups : {2, 1})
    for (int columns = kMostColumns; columns >= kFewestColumns; columns -= 8)
      for (std::int64_t strips = 1; strips == 1 || ceil_div(width, strips) >= 16; strips *= 2)
        for (int steps = static_cast<int>(std::min<std::int64_t>(all_steps, kMostSteps)); steps >= 1; --steps)
          for (const auto& [stages, images] : rings()) {
            if (columns != wishes.columns.value_or(columns) ||
                channel_groups != wishes.groups.value_or(channel_groups) ||
                steps != wishes.chunk.value_or(steps) || stages != wishes.ring.value_or(stages) ||
                images != wishes.images.value_or(images))
              continue;
            trial.channel_groups = channel_groups;
            trial.tile_groups = 2 / channel_groups;
            trial.columns = columns;
            trial.strip = static_cast<int>(ceil_div(width, strips));
            if (trial.strip != wishes.strip.value_or(trial.strip)) continue;
            trial.chunk_steps = steps;
            trial.stages = stages;
            trial.images = images;
            trial.pairs = has_pairs(trial, work);
            trial.items = static_cast<int>(box_items(trial, work));
            trial.pieces = pieces_of(trial, work);
            if (!has_registers(trial) || !fits(trial, work, gpu)) continue;
            trial.shared_begin = static_cast<int>(shared_begin(trial, work));
            found.add(cost_of(trial, work, gpu), trial);
          }
  return found;
}

}  // namespace

int conv_deep_bytes(const ConvDeepConstants& constants, const ConvWideWork& work) {
  return static_cast<int>(shared_begin(constants, work)) +
         conv_deep_shared(constants, work.values_bytes, work.list_numbers);
}

ConvDeepTiles conv_deep_tiles(const ConvDeepConstants& constants, const ConvWideWork& work,
                              std::int64_t blocks) {
  const Spatial& out = work.conv.out;
  const ConvGeometry window = work.conv.window();
  ConvDeepTiles tiles;
  // The last row ends with its last position.
  tiles.of_strip =
      ceil_div((out[1] - 1) * pitch_of(constants, work) + std::min<std::int64_t>(constants.strip, out[2]),
               constants.tile());
  tiles.of_plane = tiles.of_strip * ceil_div(out[2], constants.strip);
  tiles.of_span = tiles.of_plane * out[0];
  tiles.spans = window.batch * window.groups * ceil_div(group_out(work), constants.block_channels());
  tiles.weight_bytes = window.groups * ceil_div(group_out(work), ConvDeepConstants::kRowChannels) *
                       chunks(constants, work) * plane_taps(work) * window.filter[0] * slot_bytes(constants);
  std::int64_t depths = 0;  // that meet the input, of all planes
  for (std::int64_t k = 0; k < window.filter[0]; ++k) {
    const std::int64_t begin = std::clamp<std::int64_t>(window.pad[0] - k * window.dilation[0], 0, out[0]);
    depths +=
        std::clamp<std::int64_t>(work.conv.in[0] + window.pad[0] - k * window.dilation[0], begin, out[0]) -
        begin;
  }
  // Every block has a tile where no tile costs more than a block's share.
  const auto depth_cost =
      std::max<std::int64_t>(1, std::llround(depth_clocks(constants, work) / program_clocks(constants)));
  const std::int64_t cost = (depths * depth_cost + out[0]) * tiles.of_plane * tiles.spans;
  const bool weighted = cost >= (window.filter[0] * depth_cost + 1) * blocks;
  tiles.depth_cost = weighted ? depth_cost : 0;
  tiles.cost = weighted ? cost : tiles.all();
  return tiles;
}

double conv_deep_clocks(const Gpu& gpu, const ConvWideWork& work) {
  return cost_of(divide_conv_deep(gpu, work), work, gpu);
}

bool conv_deepens(const Gpu& gpu, const ConvWideWork& work) {
  constexpr std::int64_t kFewestBytes = 64;  // of the channels of a position
  constexpr std::int64_t kFewestChannels = 32;
  constexpr int kFewestTaps = 3;
  constexpr std::int64_t kFewestPositions = 64;  // of a plane
  const ConvSum& conv = work.conv;
  if (work.wishes.deep.value_or(1) == 0) return false;
  if (gpu.architecture->compute_major != 9 || !gpu.architecture->exact) return false;
  if (conv.geometry.stride != Spatial{1, 1, 1} || plane_taps(work) < kFewestTaps) return false;
  if (group_in(work) * work.element_bytes < kFewestBytes || group_out(work) < kFewestChannels) return false;
  if (conv.out[1] * conv.out[2] < kFewestPositions) return false;
  return !cheapest_conv_deep(gpu, work, 1).empty();
}

ConvDeepConstants divide_conv_deep(const Gpu& gpu, const ConvWideWork& work) {
  const Cheapest<ConvDeepConstants> found = cheapest_conv_deep(gpu, work, 1);
  if (found.empty()) throw InternalError("a convolution whose smallest tile does not fit shared memory");
  return found.best();
}

std::vector<Division> conv_deep_divisions(const Gpu& gpu, const ConvWideWork& work) {
  constexpr int kBand = 32;  // numbers of columns that a shape has
  std::vector<Division> result;
  for (const int groups : {2, 1})
    for (int steps = kMostSteps; steps >= 1; --steps)
      for (int most = kMostColumns; most >= kFewestColumns; most -= kBand) {
        ConvWideWork trial = work;
        ConvWishes& wishes = trial.wishes = {};
        wishes.groups = groups;
        wishes.chunk = steps;
        const std::string shape = wishes.text() + ",columns up to " + std::to_string(most);
        Cheapest<ConvDeepConstants> found(kDivisionsOfShape);
        for (int columns = most; columns > most - kBand && columns >= kFewestColumns; columns -= 8) {
          wishes.columns = columns;
          const auto some = cheapest_conv_deep(gpu, trial, kDivisionsOfShape);
          for (const auto& [cost, constants] : some.kept()) found.add(cost, constants);
        }
        for (const auto& [cost, constants] : found.kept()) {
          wishes.columns = constants.columns;
          wishes.strip = constants.strip;
          wishes.ring = constants.stages;
          wishes.images = constants.images;
          result.push_back({"conv_deep", shape, wishes.text(), cost});
        }
      }
  return result;
}

}  // namespace fuseblock::cuda
