#include "cuda/launch/conv_roll.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace fuseblock::cuda {
namespace {

constexpr int kRowBytes = 16;
constexpr int kWarpgroup = 128;
constexpr int kProductRows = 64;
// What the device code keeps beside the planner's count.
constexpr int kStaticBytes = 256;
constexpr int kOtherRegisters = 32;
constexpr int kReducing = 45;  // more for reductions over channels
constexpr int kMostRegisters = 255;
constexpr int kRegisters = 65536;  // of a multiprocessor
// Of a block, and products of a warpgroup, to choose among.
constexpr std::array<int, 4> kThreads = {128, 256, 384, 512};
constexpr std::array<int, 4> kRows = {1, 2, 3, 4};
// One after the other in a strip, where filters have one depth.
constexpr std::array<int, 4> kRounds = {1, 4, 8, 16};
// Output channels from which on an H200 was faster with rounds: 48 in strict mode took 66 us in place of 93
// (conv2d_4_to_48_lse of benchmarks/gpu/held_out.cases); fewer are timed by `fuseblock tune` alone.
constexpr std::int64_t kRoundsChannels = 41;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct Chunks {
  std::int64_t c, h, w;

  std::int64_t steps() const { return ceil_div(c * h * w, 2); }
};

Chunks chunks_of(const ConvSum& conv, const std::array<int, 3>& pack) {
  return {ceil_div(conv.in_channels, pack[0]), ceil_div(conv.geometry.filter[1], pack[1]),
          ceil_div(conv.geometry.filter[2], pack[2])};
}

// Columns of a product.
int columns_of(const ConvSum& conv) {
  return static_cast<int>(conv.geometry.filter[0] * ceil_div(conv.channels, 8) * 8);
}

// Steps of products of a plane.
std::int64_t steps_of(const ConvRollConstants& constants, const ConvSum& conv) {
  return constants.taps ? conv_roll_slots(conv) / 2 : chunks_of(conv, constants.pack).steps();
}

std::int64_t pitch_of(const ConvRollConstants& constants, const ConvSum& conv) {
  if (constants.taps) return constants.width + (conv.geometry.filter[2] - 1) * conv.geometry.dilation[2];
  return constants.width +
         (chunks_of(conv, constants.pack).w - 1) * constants.pack[2] * conv.geometry.dilation[2];
}

std::int64_t strip_of(const ConvRollConstants& constants) {
  return std::int64_t{constants.squad_threads()} / kWarpgroup * constants.products() * kProductRows;
}

// Words of one staged plane of pairs.
std::int64_t span_of(const ConvRollConstants& constants, const ConvSum& conv) {
  return strip_of(constants) +
         (conv.geometry.filter[1] - 1) * conv.geometry.dilation[1] * pitch_of(constants, conv) +
         (conv.geometry.filter[2] - 1) * conv.geometry.dilation[2];
}

// Rows of 16 bytes of one staged plane.
std::int64_t stage_rows(const ConvRollConstants& constants, const ConvSum& conv) {
  if (constants.taps)
    return conv_roll_pair_planes(conv) * ((span_of(constants, conv) + 15) / 32 * 32 + 16) / 4;
  const Chunks chunks = chunks_of(conv, constants.pack);
  const std::int64_t of_chunk =
      strip_of(constants) +
      (chunks.h - 1) * constants.pack[1] * conv.geometry.dilation[1] * pitch_of(constants, conv) +
      (chunks.w - 1) * constants.pack[2] * conv.geometry.dilation[2];
  return chunks.c * of_chunk;
}

// Planes that are staged at a time.
std::int64_t stages_of(const ConvRollConstants& constants, const ConvSum& conv) {
  std::int64_t stages = 2;
  while (constants.taps && conv.geometry.filter[0] % stages != 0) ++stages;
  return stages;
}

// What a thread fetches at a time for a plane, or beside a round of one, and how often.
struct Fetches {
  std::int64_t number;
  int registers, instructions;
};

Fetches fetches_of(const ConvRollConstants& constants, const ConvWork& work) {
  if (constants.rounds > 1 && constants.flat) {
    const std::int64_t chunks = chunks_of(work.conv, constants.pack).c;
    return {
        ceil_div(stage_rows(constants, work.conv) / chunks, constants.threads * constants.rounds) * chunks, 6,
        20 + 16 / work.element_bytes};
  }
  if (constants.taps)
    return {
        ceil_div(conv_roll_pair_planes(work.conv) * ceil_div(span_of(constants, work.conv), constants.vector),
                 constants.squad_threads()),
        2 * constants.vector, 20 + 4 * constants.vector};
  if (!constants.windows)
    return {ceil_div(stage_rows(constants, work.conv), constants.threads * constants.rounds), 6,
            (constants.rounds > 1 ? 30 : 12) + 2 * 16 / work.element_bytes};
  const Chunks chunks = chunks_of(work.conv, constants.pack);
  const std::int64_t pitch = pitch_of(constants, work.conv);
  const std::int64_t rows = (strip_of(constants) + pitch - 2) / pitch + 1 +
                            (chunks.h - 1) * constants.pack[1] * work.conv.geometry.dilation[1];
  return {ceil_div(chunks.c * rows * ceil_div(constants.width, 4), constants.threads), 12, 60};
}

// Clocks of a multiprocessor for a strip's plane, on blocks that share it: of the tensor cores with what they
// read of shared memory, of instructions, and what one after the other takes at least.
double plane_clocks(const ConvRollConstants& constants, const ConvWork& work) {
  constexpr double kPlaneInstructions = 80;
  constexpr double kStripInstructions = 100;  // of a strip that begins, and for each fetch
  constexpr double kStripFetch = 40;
  constexpr double kLatency = 700;
  // Warps of a scheduler that give half of the instructions there could be.
  constexpr double kHalf = 2;
  const double columns = columns_of(work.conv);
  const double warpgroups = constants.squad_threads() / static_cast<double>(kWarpgroup);
  const int squads = constants.blocks * constants.squads;  // of a multiprocessor
  const double step = std::max(columns / 2, 16 + columns / 4) * (work.mode == ConvMode::kStrict ? 3 : 1);
  const std::int64_t steps = steps_of(constants, work.conv);
  const int parts = work.mode == ConvMode::kStrict ? 2 : 1;
  const double tensor = warpgroups * constants.rows * static_cast<double>(steps) * step;
  const Fetches fetches = fetches_of(constants, work);
  const double elements = constants.rows * 4 * static_cast<double>(ceil_div(work.conv.channels, 8));
  const double warps = warpgroups * squads;
  const auto planes = static_cast<double>(constants.depths + work.conv.geometry.filter[0] - 1);
  const double strip = kStripInstructions + kStripFetch * static_cast<double>(fetches.number);
  if (constants.rounds > 1) {
    // Of a round; warpgroups wait for each other behind all rounds alone.
    constexpr double kRoundLatency = 400;
    const double rows =
        static_cast<double>(stage_rows(constants, work.conv)) / constants.threads / constants.rounds;
    const double issue = warpgroups * (kPlaneInstructions + rows * fetches.instructions +
                                       elements * (work.over_channels ? 24 : 7));
    constexpr double kOverlap = 0.15;  // what is left of the smaller of both
    const double products = constants.blocks * tensor;
    const double instructions = constants.blocks * issue * (warps + kHalf) / warps;
    const double all = std::max(products, instructions) + kOverlap * std::min(products, instructions);
    return constants.rounds * std::max(all, (tensor + issue) / warpgroups + kRoundLatency) + strip + kLatency;
  }
  const double fetch = static_cast<double>(fetches.number) * fetches.instructions;
  if (constants.taps) {
    // Clocks of products and of instructions add up on an H200.
    const double program = elements * (work.itself ? 2.25 : 7);
    const double reads = constants.rows * (4.0 * static_cast<double>(steps) + 20) * parts;
    const double issue = warpgroups * (kPlaneInstructions + strip / planes + fetch + reads + program);
    return std::max(squads * (tensor + issue * (warps + kHalf) / warps), tensor + issue + kLatency);
  }
  const double issue =
      warpgroups * (kPlaneInstructions + strip / planes + fetch + elements * (work.over_channels ? 30 : 10));
  return std::max({squads * tensor, squads * issue * (warps + kHalf) / warps, tensor + issue + kLatency});
}

int registers_of(const ConvRollConstants& constants, const ConvWork& work) {
  const bool apart = work.mode == ConvMode::kStrict && constants.rounds == 1;  // the sums of a plane
  const int sums = columns_of(work.conv) / 2 * constants.rows * (apart ? 2 : 1);
  const Fetches fetches = fetches_of(constants, work);
  const auto columns = static_cast<int>(ceil_div(work.conv.channels, 8)) * 2;
  if (constants.taps) {
    constexpr int kOthers = 24;
    const int factors =
        static_cast<int>(steps_of(constants, work.conv)) * 4 * (work.mode == ConvMode::kStrict ? 2 : 1);
    return sums + factors + static_cast<int>(fetches.number) * fetches.registers +
           columns * (work.channel_numbers + (work.itself ? 0 : 1)) + kOthers;
  }
  const int reducing = constants.rounds == 1 ? kReducing : kReducing - 5;  // there a lane ends one position
  return sums + static_cast<int>(fetches.number) * fetches.registers / 2 +
         (work.over_channels ? columns + reducing : columns * (work.channel_numbers + 1)) + kOtherRegisters;
}

}  // namespace

std::optional<std::array<int, 3>> conv_roll_pack(const ConvSum& conv, int element_bytes) {
  const int elements = kRowBytes / element_bytes;
  const Spatial& filter = conv.geometry.filter;
  auto whole = [](std::int64_t extent, int pack) { return extent <= pack || extent % pack == 0; };
  std::optional<std::array<int, 3>> best;
  std::int64_t least = 0;
  for (int w = elements; w >= 1; w /= 2)
    for (int h = elements / w; h >= 1; h /= 2) {
      const std::array<int, 3> pack = {elements / w / h, h, w};
      if (!whole(filter[1], h) || !whole(filter[2], w)) continue;
      // Of equals the one with the fewest rows.
      const Chunks chunks = chunks_of(conv, pack);
      const std::int64_t cost = chunks.steps() * 1024 + chunks.c;
      if (best && cost >= least) continue;
      best = pack;
      least = cost;
    }
  return best;
}

namespace {

constexpr int kMostColumns = 256;

// The form that a division takes.
ConvSum form_of(const ConvRollConstants& constants, const ConvSum& conv) {
  return constants.folded ? folded(conv) : conv;
}

// Whether products have the input in registers, as pairs of 16-bit numbers: nobody has measured more channels.
bool has_taps(const ConvSum& form, const ConvWork& work) {
  constexpr std::int64_t kMostChannels = 3;
  const ConvGeometry& geometry = form.geometry;
  if (form.in_channels > kMostChannels) return false;
  if (!work.moments || geometry.filter[0] == 1) return false;
  if (form.in_channels % 2 != 0 && geometry.filter[1] == 1) return false;  // elements that have no pair
  const std::int64_t rows = conv_roll_pair_rows(form), slots = conv_roll_slots(form);
  return geometry.filter[2] == 4 || (geometry.filter[2] == 3 && (rows - slots) * 3 <= slots);
}

// Whether the smallest strip fits: its stages beside the weights and what the program keeps, its sums in
// registers.
bool fits(const ConvSum& form, const ConvWork& work, const std::array<int, 3>& pack) {
  constexpr std::int64_t kMostStages = 96 * 1024;
  ConvWork of_form = work;
  of_form.conv = form;
  ConvRollConstants smallest;
  smallest.mode = work.mode;
  smallest.threads = kWarpgroup;
  smallest.width = 2;
  smallest.pack = pack;
  const std::int64_t stages =
      2 * stage_rows(smallest, form) * kRowBytes * (work.mode == ConvMode::kStrict ? 2 : 1);
  return stages <= kMostStages && registers_of(smallest, of_form) <= kMostRegisters;
}

bool takes(const ConvSum& form, const ConvWork& work) {
  constexpr std::int64_t kMostWeights = 64 * 1024;
  if (form.geometry.filter[0] > 1 && form.geometry.dilation[0] != 1) return false;
  if (columns_of(form) > kMostColumns) return false;
  const auto pack = conv_roll_pack(form, work.element_bytes);
  if (!pack) return false;
  const std::int64_t rows = (2 * form.geometry.filter[0] - 1) * ceil_div(form.channels, 8) * 8;
  const std::int64_t weights =
      2 * chunks_of(form, *pack).steps() * rows * kRowBytes * (work.mode == ConvMode::kStrict ? 2 : 1);
  return weights <= kMostWeights && fits(form, work, *pack);
}

// Products that a warpgroup has at once, and rounds of them.
std::vector<std::pair<int, int>> products_of_strips() {
  std::vector<std::pair<int, int>> result;
  for (const int rows : kRows) result.emplace_back(rows, 1);
  for (const int rounds : kRounds)
    if (rounds > 1) result.emplace_back(1, rounds);
  return result;
}

// Looks for the division that takes least.
class Divider {
 public:
  // `slack` is how often a thread's registers the planner may count, which counts roughly.
  Divider(const Gpu& gpu, const ConvWork& work, const ConvRollBytes& shared_bytes, double slack,
          std::size_t most)
      : gpu_(gpu), work_(work), shared_bytes_(shared_bytes), slack_(slack), found_(most) {}

  Cheapest<ConvRollConstants> run() {
    for (const bool fold : {false, true}) {
      if (fold && !can_fold(work_.conv)) continue;
      if (fold != (work_.wishes.fold.value_or(fold ? 1 : 0) != 0)) continue;
      ConvWork work = work_;
      if (fold) work.conv = folded(work_.conv);
      if (takes(work.conv, work)) try_form(work, fold);
    }
    return found_;
  }

 private:
  void try_form(const ConvWork& work, bool fold) {
    constexpr std::int64_t kMostWidth = 512;
    const ConvGeometry& geometry = work.conv.geometry;
    ConvRollConstants trial;
    trial.mode = work.mode;
    trial.folded = fold;
    trial.pack = conv_roll_pack(work.conv, work.element_bytes).value();
    trial.dense = work.dense;
    trial.taps = !fold && work.wishes.taken.value_or(1) != 0 && has_taps(work.conv, work);
    const bool quads = !trial.taps && trial.pack[2] == 4 && geometry.filter[2] <= 4 &&
                       geometry.dilation[2] == 1 && !work.stores;
    bool found = false;
    for (std::int64_t bands = ceil_div(work.conv.out[2], kMostWidth); !found && bands <= work.conv.out[2];
         bands *= 2) {
      trial.width = static_cast<int>(ceil_div(work.conv.out[2], bands));
      if (trial.width != work.wishes.width.value_or(trial.width)) continue;
      trial.windows = quads && trial.width >= 4 && (bands == 1 || trial.width % 4 == 0);
      trial.vector =
          trial.windows && work.dense && work.conv.in[2] % 4 == 0 && geometry.pad[2] % 4 == 0 ? 4 : 1;
      trial.flat = bands == 1 && lies_flat(work, trial);
      // A plane without padding is one run of memory.
      if (trial.taps && work.dense && bands == 1 && work.conv.in[2] % 4 == 0 &&
          geometry.pad == Spatial{0, 0, 0})
        trial.vector = 4;
      for (const int threads : kThreads)
        for (const int rows : kRows)
          for (const int rounds : kRounds)
            for (int blocks = 1; blocks <= 8; ++blocks) {
              if (rounds > 1 && (rows > 1 || !may_have_rounds(work, trial))) continue;
              trial.threads = threads;
              trial.rows = rows;
              trial.rounds = rounds;
              trial.blocks = blocks;
              // Squads share the weights and a sample, but do not wait for each other.
              for (int squads = 1; squads <= (trial.taps ? threads / kWarpgroup : 1); ++squads) {
                trial.squads = squads;
                if (threads / kWarpgroup % squads != 0 || work.wishes.squads.value_or(squads) != squads)
                  continue;
                found = try_blocks(work, trial) || found;
              }
            }
    }
  }

  // Whether the positions of a plane are numbered as its elements lie in memory, and a thread takes all
  // channels of a position.
  static bool lies_flat(const ConvWork& work, const ConvRollConstants& trial) {
    constexpr std::int64_t kMostChunks = 2;
    const ConvSum& conv = work.conv;
    return work.dense && conv.out[0] == 1 && conv.geometry.pad == Spatial{0, 0, 0} && trial.pack[1] == 1 &&
           trial.pack[2] == 1 && pitch_of(trial, conv) == conv.in[2] &&
           chunks_of(conv, trial.pack).c <= kMostChunks;
  }

  static bool may_have_rounds(const ConvWork& work, const ConvRollConstants& trial) {
    return !trial.windows && work.conv.geometry.filter[0] == 1 &&
           (work.wishes.rounds || work.conv.channels >= kRoundsChannels);
  }

  // Whether the last strip of a band has no positions for half of the products, which it then goes without.
  // In strict mode the compiler has no registers for both.
  static bool has_half_strips(const ConvWork& work, const ConvRollConstants& trial) {
    if (!trial.taps || trial.rows % 2 != 0 || work.mode == ConvMode::kStrict) return false;
    const std::int64_t strip = strip_of(trial);
    const std::int64_t last = (work.conv.out[1] * pitch_of(trial, work.conv) - 1) % strip + 1;
    return last <= strip / 2;
  }

  // Whether it fits a multiprocessor.
  bool try_blocks(const ConvWork& work, ConvRollConstants trial) {
    const ConvWishes& wishes = work.wishes;
    const jit::Architecture& limits = *gpu_.architecture;
    trial.half_strips = has_half_strips(work, trial);
    if (trial.threads != wishes.threads.value_or(trial.threads) ||
        trial.rows != wishes.rows.value_or(trial.rows) ||
        trial.rounds != wishes.rounds.value_or(trial.rounds) ||
        trial.blocks != wishes.blocks.value_or(trial.blocks))
      return false;
    const int registers = std::min(kMostRegisters, kRegisters / (trial.threads * trial.blocks) / 8 * 8);
    if (registers_of(trial, work) > slack_ * registers) return false;
    const std::int64_t stages = ceil_div(stages_of(trial, work.conv) * stage_rows(trial, work.conv) *
                                             trial.squads * (work.mode == ConvMode::kStrict ? 2 : 1),
                                         8) *
                                8 * kRowBytes;
    if (stages + shared_bytes_(trial) + kStaticBytes >
        std::min(limits.shared_bytes_block,
                 limits.shared_bytes_multiprocessor / trial.blocks - limits.shared_bytes_reserved))
      return false;
    trial.stage_bytes = static_cast<int>(stages);
    const std::int64_t blocks = std::int64_t{gpu_.multiprocessors} * trial.blocks;
    // A segment that begins meets planes that others have met.
    constexpr std::int64_t kFewSegments = 8;
    for (std::int64_t segments = 1; segments == 1 || segments * 2 <= work.conv.out[0];
         segments += segments < kFewSegments ? 1 : segments) {
      trial.depths = static_cast<int>(ceil_div(work.conv.out[0], segments));
      if (trial.depths != wishes.depths.value_or(trial.depths)) continue;
      const auto tiles = conv_roll_tiles(trial, work_.conv);
      const ConvItems items = conv_items(work.conv.geometry.batch, tiles[0] * tiles[1] * tiles[2], blocks,
                                         conv_roll_item(trial, work_.conv), trial.squads);
      const double cost = items.longest *
                              static_cast<double>(trial.depths + work.conv.geometry.filter[0] - 1) *
                              plane_clocks(trial, work) +
                          (trial.taps ? ends_clocks(trial, items, blocks) : 0);
      found_.add(cost, trial);
    }
    return true;
  }

  // What samples take where they end: blocks that share one are joined in memory, by counters that are
  // cleared before the launch; squads end theirs together, while nobody else has products.
  double ends_clocks(const ConvRollConstants& trial, const ConvItems& items, std::int64_t blocks) const {
    constexpr double kJoined = 5000;
    constexpr double kTogether = 4000;
    const std::int64_t rounds = ceil_div(work_.conv.geometry.batch * items.of_sample, blocks);
    return (items.of_sample > 1 ? kJoined : 0) +
           (trial.squads > 1 ? static_cast<double>(rounds) * kTogether : 0);
  }

  const Gpu& gpu_;
  const ConvWork& work_;
  const ConvRollBytes& shared_bytes_;
  double slack_;
  Cheapest<ConvRollConstants> found_;
};

}  // namespace

std::array<std::int64_t, 3> conv_roll_tiles(const ConvRollConstants& constants, const ConvSum& conv) {
  const ConvSum form = form_of(constants, conv);
  return {ceil_div(form.out[1] * pitch_of(constants, form), strip_of(constants)),
          ceil_div(form.out[2], constants.width), ceil_div(form.out[0], constants.depths)};
}

double conv_roll_item(const ConvRollConstants& constants, const ConvSum& conv) {
  constexpr double kPlanes = 8;
  constexpr double kPositions = 2048;
  if (constants.rounds > 1) return kPositions / static_cast<double>(strip_of(constants));
  return kPlanes / static_cast<double>(constants.depths + form_of(constants, conv).geometry.filter[0] - 1);
}

bool conv_rolls(const Gpu& gpu, const ConvWork& work) {
  const ConvGeometry& geometry = work.conv.geometry;
  if (gpu.architecture->compute_major != 9 || !gpu.architecture->exact) return false;
  if (!work.conv.gathers || geometry.groups != 1 || geometry.stride != Spatial{1, 1, 1}) return false;
  return takes(work.conv, work) || (can_fold(work.conv) && takes(folded(work.conv), work));
}

bool conv_roll_near(const ConvSum& conv) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  // Rows of padding count too.
  return conv.in_channels * conv.in[0] * (conv.in[1] + conv.out[1]) * (conv.in[2] + conv.out[2]) < kMost;
}

ConvRollConstants divide_conv_roll(const Gpu& gpu, const ConvWork& work, const ConvRollBytes& shared_bytes) {
  const ConvWishes& wishes = work.wishes;
  // Who asks for blocks may have spilled registers.
  const Cheapest<ConvRollConstants> found = Divider(gpu, work, shared_bytes, wishes.blocks ? 2 : 1, 1).run();
  if (!found.empty()) return found.best();
  if (wishes.threads || wishes.blocks || wishes.squads || wishes.rows || wishes.rounds || wishes.fold ||
      wishes.width || wishes.depths)
    throw NotSupportedError("FUSEBLOCK_CONV: a convolution has no division like that");
  throw InternalError("a convolution whose smallest strip does not fit a multiprocessor");
}

std::vector<Division> conv_roll_divisions(const Gpu& gpu, const ConvWork& work,
                                          const ConvRollBytes& shared_bytes) {
  // What is counted roughly and does not fit may yet be the fastest.
  constexpr double kSlack = 1.35;
  std::vector<Division> result;
  for (const int fold : {0, 1})
    for (const int threads : kThreads)
      for (const int blocks : {1, 2, 3, 4, 6, 8})
        for (const auto& [rows, rounds] : products_of_strips()) {
          ConvWork trial = work;
          ConvWishes& wishes = trial.wishes = {};
          wishes.fold = fold;
          wishes.threads = threads;
          wishes.blocks = blocks;
          wishes.rows = rows;
          wishes.rounds = rounds;
          const std::string shape = wishes.text();
          const auto found = Divider(gpu, trial, shared_bytes, kSlack, kDivisionsOfShape).run();
          for (const auto& [cost, constants] : found.kept()) {
            wishes.width = constants.width;
            wishes.depths = constants.depths;
            if (constants.taps) wishes.squads = constants.squads;
            result.push_back({"conv_roll", shape, wishes.text(), cost});
          }
        }
  return result;
}

}  // namespace fuseblock::cuda
