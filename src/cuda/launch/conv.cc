#include "cuda/launch/conv.h"

#include <algorithm>
#include <vector>

namespace fuseblock::cuda {
namespace {

constexpr int kWarpRows = 16;
constexpr int kBanks = 32;
// What the device code keeps beside the planner's count.
constexpr int kStaticBytes = 256;
constexpr int kOtherRegisters = 48;
// Steps whose sums are promoted together in strict mode: what tensor cores cut off stays below one rounding
// of f32.
constexpr int kPromoted = 4;

int depth_of(ConvMode mode) { return mode == ConvMode::k16Bits ? 16 : 8; }
int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Of the registers that threads of a block of this shape can have, how many those of a division that is
// measured may need by the planner's count, which is rough.
constexpr double kCountedTwice = 1.15;

int steps_of(const ConvWork& work) {
  return ceil_div(static_cast<int>(work.conv.terms()), depth_of(work.mode));
}

// The box of a tile, and how it lies in shared memory.
void lay_out(ConvConstants& constants, const ConvWork& work) {
  const ConvGeometry& geometry = work.conv.geometry;
  for (std::size_t i = 0; i < 3; ++i)
    constants.box[i] = static_cast<int>((constants.tile[i] - 1) * geometry.stride[i] +
                                        (geometry.filter[i] - 1) * geometry.dilation[i] + 1);
  constants.vector = 1;
  constants.lead = static_cast<int>(geometry.pad[2]);
  const auto row = static_cast<int>(work.conv.in[2]);
  if (work.dense && constants.tile[2] == work.conv.out[2]) {
    int vector = 16 / work.element_bytes;
    while (row % vector != 0) vector /= 2;
    const int needed =
        std::max(constants.box[2] - constants.lead, 1);  // columns of the tensor and the padding behind it
    constants.vector = vector;
    constants.lead = ceil_div(constants.lead, vector) * vector;
    constants.box[2] = constants.lead + ceil_div(needed, vector) * vector;
  }
  constants.pitch = constants.box[2];
  constants.plane = constants.box[1] * constants.pitch;
  constants.volume = constants.box[0] * constants.plane;
}

int stage_bytes(const ConvConstants& constants, const ConvWork& work) {
  return static_cast<int>(work.conv.in_channels) * constants.volume * work.element_bytes;
}

// Rows and planes further apart where that spares conflicts.
void spread(ConvConstants& constants, const ConvWork& work) {
  constexpr int kWays = 4;
  const int unit = std::max(constants.vector, 4 / work.element_bytes);
  const int step = std::max(unit, kBanks / 8 * 4 / work.element_bytes);
  const ConvConstants close = constants;
  double least = conv_conflicts(close, work);
  for (int row = 0; row < kWays; ++row)
    for (int plane = 0; plane < kWays; ++plane) {
      ConvConstants trial = close;
      trial.pitch = ceil_div(close.pitch, unit) * unit + row * step;
      trial.plane = trial.pitch * trial.box[1] + plane * step;
      trial.volume = trial.plane * trial.box[0];
      const double found = conv_conflicts(trial, work) * (1 + 0.01 * (row + plane));
      if (found >= least) continue;
      least = found;
      constants = trial;
    }
}

}  // namespace

double conv_conflicts(const ConvConstants& constants, const ConvWork& work) {
  const ConvGeometry& geometry = work.conv.geometry;
  const auto terms = static_cast<int>(work.conv.terms());
  const int depth = depth_of(work.mode);
  const auto taps = static_cast<int>(geometry.filter[0] * geometry.filter[1] * geometry.filter[2]);
  const auto height = static_cast<int>(geometry.filter[1]);
  const auto width = static_cast<int>(geometry.filter[2]);
  auto offset_of = [&](int k) {
    if (k >= terms) return 0;
    return k / taps * constants.volume +
           k / (width * height) % static_cast<int>(geometry.filter[0]) *
               static_cast<int>(geometry.dilation[0]) * constants.plane +
           k / width % height * static_cast<int>(geometry.dilation[1]) * constants.pitch +
           k % width * static_cast<int>(geometry.dilation[2]);
  };
  int reads = 0;
  int wavefronts = 0;
  for (int step = 0; step < steps_of(work); ++step)
    for (int term = 0; term < depth / 4; ++term) {
      std::array<int, 32> words = {};
      std::array<int, kBanks> counts = {};
      int most = 1;
      for (int lane = 0; lane < 32; ++lane) {
        const int t = lane % 4;
        const int k = step * depth + (depth == 16 ? 2 * t + term % 2 + term / 2 * 8 : t + 4 * term);
        const int place = lane / 4 * static_cast<int>(geometry.stride[2]) + offset_of(k);
        const int word = place * work.element_bytes / 4;
        words[static_cast<std::size_t>(lane)] = word;
        if (std::find(words.begin(), words.begin() + lane, word) == words.begin() + lane)
          most = std::max(most, ++counts[static_cast<std::size_t>(word % kBanks)]);
      }
      ++reads;
      wavefronts += most;
    }
  return static_cast<double>(wavefronts) / std::max(reads, 1);
}

std::array<std::int64_t, 3> conv_tiles(const ConvConstants& constants, const ConvSum& conv) {
  std::array<std::int64_t, 3> tiles = {};
  for (std::size_t i = 0; i < 3; ++i) tiles[i] = (conv.out[i] + constants.tile[i] - 1) / constants.tile[i];
  return tiles;
}

ConvItems conv_items(std::int64_t samples, std::int64_t tiles, std::int64_t blocks, double of_item,
                     std::int64_t at_once) {
  ConvItems best;
  for (std::int64_t items = 1; items <= std::min(tiles, 4 * blocks); ++items) {
    const std::int64_t rounds = (samples * items + blocks - 1) / blocks;
    const std::int64_t of_one = ((tiles + items - 1) / items + at_once - 1) / at_once;
    const double longest = static_cast<double>(rounds) * (static_cast<double>(of_one) + of_item);
    if (best.longest == 0 || longest < best.longest) best = {items, longest};
  }
  return best;
}

namespace {

// Bytes of shared memory that the stages of a block can have.
int room_for_stages(const Gpu& gpu, int blocks, int shared_bytes) {
  const jit::Architecture& limits = *gpu.architecture;
  return std::min(limits.shared_bytes_block,
                  limits.shared_bytes_multiprocessor / blocks - limits.shared_bytes_reserved) -
         shared_bytes - kStaticBytes;
}

// How a block's products are divided among warps and lanes, and blocks of how many threads, how many a
// multiprocessor, have the registers for it.
struct Shapes {
  ConvConstants base;
  std::vector<std::pair<int, int>> blocks;  // threads, blocks a multiprocessor; the best first
  int registers = 0;                        // of a thread
};

Shapes shapes_for(const ConvWork& work) {
  const ConvWishes& wishes = work.wishes;
  ConvConstants base;
  base.mode = work.mode;
  base.columns = ceil_div(static_cast<int>(work.conv.channels), 8);
  const int sums = work.mode == ConvMode::kStrict ? 2 : 1;
  base.rows = base.columns * sums <= 4 ? 4 : base.columns * sums <= 8 ? 2 : 1;
  // The program takes most of the time there, and wants registers and warps.
  if (work.over_channels) base.rows = std::min(base.rows, base.columns <= 4 ? 2 : 1);
  base.rows = wishes.rows.value_or(base.rows);
  base.promote = wishes.promote.value_or(work.mode == ConvMode::kStrict ? kPromoted : 0);
  const ConvGeometry& geometry = work.conv.geometry;
  base.down = base.rows > 1 && work.mode != ConvMode::k16Bits && geometry.filter[2] == 4 &&
              geometry.dilation[2] == 1 && geometry.filter[1] % 2 == 0 && geometry.dilation[1] == 1 &&
              geometry.stride[1] == 1 && wishes.down.value_or(1) != 0;
  // Sums of products, both factors, statistics or what is reduced over channels, and the rest.
  const int registers = 4 * base.rows * base.columns * sums + 4 * base.rows * sums + 2 * base.columns * sums +
                        2 * base.columns * work.channel_numbers + kOtherRegisters;
  Shapes shapes = {base, {{128, 2}, {128, 1}}, registers};
  if (registers <= 168) shapes.blocks = {{128, 3}, {128, 2}, {128, 1}};
  if (registers <= 128) shapes.blocks = {{256, 2}, {256, 1}};
  if (wishes.threads) shapes.blocks = {{*wishes.threads, 2}, {*wishes.threads, 1}};
  if (wishes.blocks) shapes.blocks = {{shapes.blocks[0].first, *wishes.blocks}};
  return shapes;
}

// The unit of cost is the time of a warp's product of 16 positions and eight channels; a copy of an input
// element and what a tile costs by itself (two barriers, the wait for its copies) are held against it. This
// is the cost of a tile, for blocks that share a multiprocessor.
double tile_cost(const ConvConstants& constants, const ConvWork& work) {
  constexpr double kCopyCost = 0.02;
  constexpr double kTileCost = 60;
  const double step_cost =
      steps_of(work) * constants.columns * constants.rows * (work.mode == ConvMode::kStrict ? 3 : 1);
  const int positions = constants.tile[0] * constants.tile[1] * constants.tile[2];
  const int rounds = ceil_div(ceil_div(positions, kWarpRows * constants.rows), constants.threads / 32);
  const double copied = static_cast<double>(work.conv.in_channels) * constants.box[0] * constants.box[1] *
                        constants.box[2] / constants.vector;
  const int resident = constants.blocks * constants.threads;
  const double waiting = (resident >= 512   ? 1
                          : resident >= 384 ? 1.1
                          : resident >= 256 ? 1.5
                                            : 2.1) *
                         (constants.stages == 2 || constants.blocks >= 2 ? 1 : 1.25);
  return (rounds * step_cost + copied * kCopyCost + kTileCost) * waiting * constants.blocks;
}

// The tiles to choose among.
std::vector<std::array<int, 3>> tiles_for(const ConvConstants& constants, const ConvWork& work) {
  if (work.wishes.tile) return {*work.wishes.tile};
  const Spatial& out = work.conv.out;
  const int together = constants.down ? constants.rows : 1;
  std::vector<std::array<int, 3>> tiles;
  for (const std::int64_t width :
       {out[2], std::int64_t{256}, std::int64_t{128}, std::int64_t{64}, std::int64_t{32}, std::int64_t{16}}) {
    if (width > out[2]) continue;
    for (std::int64_t height = together; height < std::min<std::int64_t>(out[1], 64) + together;
         height += together)
      for (std::int64_t deep = 1; deep <= std::min<std::int64_t>(out[0], 16); ++deep)
        tiles.push_back({static_cast<int>(deep), static_cast<int>(height), static_cast<int>(width)});
  }
  return tiles;
}

// The tiles for blocks of this shape that fit.
void try_tiles(ConvConstants trial, const ConvWork& work, const Gpu& gpu, int room,
               Cheapest<ConvConstants>& found) {
  const std::int64_t samples = work.conv.geometry.batch;
  const std::int64_t blocks = std::int64_t{gpu.multiprocessors} * trial.blocks;
  for (const std::array<int, 3>& tile : tiles_for(trial, work)) {
    if (trial.down && tile[1] % trial.rows != 0) continue;
    trial.tile = tile;
    lay_out(trial, work);
    // Some are laid out wider.
    if (stage_bytes(trial, work) * 5 / 4 * trial.stages > room) continue;
    const double cost_of_tile = tile_cost(trial, work);
    const auto extents = conv_tiles(trial, work.conv);
    const std::int64_t tiles = extents[0] * extents[1] * extents[2];
    const double all = static_cast<double>(samples * tiles);
    if (!found.takes(cost_of_tile * all / static_cast<double>(blocks))) continue;
    // What the block with most tiles takes.
    found.add(cost_of_tile * conv_items(samples, tiles, blocks).longest, trial);
  }
}

Cheapest<ConvConstants> cheapest_conv(const Gpu& gpu, const ConvWork& work, int shared_bytes,
                                      std::size_t most) {
  const ConvWishes& wishes = work.wishes;
  Shapes shapes = shapes_for(work);
  Cheapest<ConvConstants> found(most);
  while (true) {
    for (const auto& [threads, blocks] : shapes.blocks)
      for (const int stages : {2, 1}) {
        if (stages != wishes.stages.value_or(stages)) continue;
        shapes.base.threads = threads;
        shapes.base.blocks = blocks;
        shapes.base.stages = stages;
        try_tiles(shapes.base, work, gpu, room_for_stages(gpu, blocks, shared_bytes), found);
      }
    if (!found.empty() || !shapes.base.down) return found;
    shapes.base.down = false;
  }
}

}  // namespace

ConvConstants divide_conv(const Gpu& gpu, const ConvWork& work, int shared_bytes) {
  const Cheapest<ConvConstants> found = cheapest_conv(gpu, work, shared_bytes, 1);
  const ConvWishes& wishes = work.wishes;
  if (found.empty() && (wishes.tile || wishes.blocks || wishes.stages))
    throw NotSupportedError("FUSEBLOCK_CONV: a convolution has no division like that in shared memory");
  if (found.empty()) throw InternalError("a convolution whose smallest tile does not fit shared memory");
  const ConvConstants& best = found.best();
  ConvConstants wider = best;
  spread(wider, work);
  return stage_bytes(wider, work) * best.stages <= room_for_stages(gpu, best.blocks, shared_bytes) ? wider
                                                                                                   : best;
}

std::vector<Division> conv_divisions(const Gpu& gpu, const ConvWork& work, int shared_bytes) {
  std::vector<Division> result;
  for (const int threads : {128, 256})
    for (const int blocks : {1, 2, 3, 4})
      for (const int rows : {1, 2, 4})
        for (const int stages : {1, 2}) {
          ConvWork trial = work;
          ConvWishes& wishes = trial.wishes = {};
          wishes.roll = 0;
          wishes.threads = threads;
          wishes.blocks = blocks;
          wishes.rows = rows;
          wishes.stages = stages;
          constexpr int kRegisters = 65536;
          constexpr int kMostRegisters = 255;
          if (shapes_for(trial).registers >
              kCountedTwice * std::min(kMostRegisters, kRegisters / threads / blocks))
            continue;
          const std::string shape = wishes.text();
          const auto found = cheapest_conv(gpu, trial, shared_bytes, kDivisionsOfShape);
          for (const auto& [cost, constants] : found.kept()) {
            wishes.down = constants.down ? 1 : 0;
            wishes.tile = constants.tile;
            result.push_back({"conv", shape, wishes.text(), cost});
          }
        }
  return result;
}

}  // namespace fuseblock::cuda
