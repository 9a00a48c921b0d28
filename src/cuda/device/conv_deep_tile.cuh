// Tiles of the kernel `conv_deep`: which positions they have, and their input and weights in shared memory.
//
// The result's columns are cut into strips of kStrip. The positions of a plane of a strip are numbered row by
// row, kPitch a row, of which the last kPitch - kStrip are not there; so are those of the input, whose rows
// the filter's columns make so long. A tile is kTile positions of a plane one behind the other, with
// kBlockChannels output channels of one group. What it meets of an input plane is staged kChunkChannels
// channels at a time as cells of 16 bytes, neighbouring channels of one position:
//   [part of a number][cell of the channels][position], cells of channels kQuad apart,
// zeros where it reaches beyond the tensor. A tap of the filter is one offset for all positions, and eight
// neighbouring positions are a core matrix of `wgmma`.
//
// Before this stand the constants, device/conv_wide_cells.cuh, Arguments, and input_data and input_offset,
// the tensor that is convolved.

constexpr int kTile = kGroupsN * kColumnsN;  // positions
constexpr int kPitch = kStrip + (kFilterW - 1) * kDilationW;
constexpr int kBoxPositions = kTile + (kFilterH - 1) * kDilationH * kPitch + (kFilterW - 1) * kDilationW;
constexpr int kQuad = kBoxPositions | 1;  // odd: cells of channels of one position lie in different banks
constexpr int kImageCells = kChunkCells * kBoxPositions;  // of one part
constexpr int kPartCells = kChunkCells * kQuad;
constexpr int kImageBytes = (kParts * kPartCells + 1) * 16;  // with one cell for what is not there
constexpr int kThreadCells = (kImageCells + kStagers - 1) / kStagers;
constexpr int kPlaneTaps = kFilterH * kFilterW;
// The weights of one tap, of a row of warpgroups; kGroupRows is how many of these a group's channels are.
constexpr int kRowChannels = 64;
constexpr int kSlotCells = kChunkCells * kRowChannels;  // of one part
constexpr int kSlotBytes = kParts * kSlotCells * 16;
constexpr int kGroupRows = (kGroupOut + kRowChannels - 1) / kRowChannels;

namespace producers {

// Not to be worked out, with what follows from it, before it is asked for: consumers have no registers for that.
__device__ inline int thread() {
  unsigned int number;
  asm volatile("mov.u32 %0, %1;" : "=r"(number) : "r"(threadIdx.x));
  return (int)number - kConsumers;
}
// Of those who stage the input, the first of them.
__device__ inline void sync() { asm volatile("bar.sync 1, %0;" ::"n"(kStagers) : "memory"); }

}  // namespace producers

struct Tile {
  int span;              // sample and block of channels
  int d, w, first;       // of the result: the plane, the strip's first column, the position in the strip
  int depth, depth_end;  // filter depths that meet the input
};

__device__ inline int sample_of(int span) { return span / kChannelBlocks; }
__device__ inline int channel_block_of(int span) { return span % kChannelBlocks; }
__device__ inline int input_channel_of(int span) { return channel_block_of(span) / kGroupBlocks * kGroupIn; }

__device__ inline Tile tile_of(const Arguments& a, int number) {
  Tile tile;
  tile.span = number / (int)a.tiles;
  int rest = number - tile.span * (int)a.tiles;
  tile.d = rest / (int)a.plane_tiles;
  rest -= tile.d * (int)a.plane_tiles;
  const int strip = rest / (int)a.strip_tiles;
  tile.w = strip * kStrip;
  tile.first = (rest - strip * (int)a.strip_tiles) * kTile;
  tile.depth = 0;
  while (tile.depth + 1 < kFilterD && tile.d - kPadD + tile.depth * kDilationD < 0) ++tile.depth;
  tile.depth_end = kFilterD;
  while (tile.depth_end - 1 > tile.depth && tile.d - kPadD + (tile.depth_end - 1) * kDilationD >= (int)a.in_d)
    --tile.depth_end;
  return tile;
}

// What the tiles before one take: 1 each, and `depth_cost` for each depth of the filter that meets the input.
__device__ inline long long cost_before(const Arguments& a, int number) {
  const int span = number / (int)a.tiles, rest = number - span * (int)a.tiles;
  const int d = rest / (int)a.plane_tiles;
  long long planes = 0;  // depths that meet the input, over all planes before this one; over all
  long long all = 0;
  int here = 0;
#pragma unroll 1
  for (int k = 0; k < kFilterD; ++k) {
    const int begin = min(max(kPadD - k * kDilationD, 0), (int)a.out_d);
    const int end = min(max((int)a.in_d + kPadD - k * kDilationD, begin), (int)a.out_d);
    planes += min(max(d, begin), end) - begin;
    all += end - begin;
    here += d >= begin && d < end ? 1 : 0;
  }
  const long long before =
      planes * a.plane_tiles + (long long)here * (rest - d * (int)a.plane_tiles) + all * a.plane_tiles * span;
  return before * a.depth_cost + number;
}

// A block's run of tiles: those whose share of the cost begins in the block's own.
__device__ inline int block_of(const Arguments& a, int number) {
  return (int)(cost_before(a, number) * gridDim.x / a.cost);
}
// By a warp, 32 tiles at a time.
__device__ inline int run_begin(const Arguments& a, int block) {
  int begin = 0, end = (int)a.items;
#pragma unroll 1
  while (begin < end) {
    const int step = (end - begin + 31) / 32, trial = begin + (int)threadIdx.x % 32 * step;
    const int before = __popc(__ballot_sync(0xffffffffu, trial < end && block_of(a, trial) < block));
    end = min(end, begin + before * step);
    if (before > 0) begin += (before - 1) * step + 1;
  }
  return begin;
}

// A position of a tile in the result.
struct Site {
  int d, h, w;
  bool inside;

  __device__ operator Position() const { return {d, h, w}; }
};

__device__ inline Site site_of(const Arguments& a, const Tile& tile, int number) {
  const int flat = tile.first + number;
  const int row = flat / kPitch, column = flat - row * kPitch;
  Site site = {tile.d, row, tile.w + column, true};
  site.inside = column < kStrip && row < (int)a.out_h && site.w < (int)a.out_w;
  if (!site.inside) site.h = 0, site.w = tile.w;
  return site;
}

// Where the positions of a tile's input lie behind the first of their plane; kNowhere beyond the tensor.
constexpr Offset kNowhere = -1;
typedef Offset Places[kBoxPositions];

__device__ inline void find_places(const Arguments& a, const Tile& tile, int thread, Places& places) {
  const InputSteps steps = input_steps(a);
#pragma unroll 1
  for (int i = thread; i < kBoxPositions; i += kStagers) {
    const int flat = tile.first + i;
    const int row = flat / kPitch, column = flat - row * kPitch;
    const int h = row - kPadH, w = tile.w + column - kPadW;
    const bool inside = h >= 0 && h < (int)a.in_h && w >= 0 && w < (int)a.in_w;
    places[i] = inside ? h * steps.h + w * steps.w : kNowhere;
  }
}

// What is staged next: the input of a tile that one depth of the filter meets, for one chunk of channels.
struct Source {
  const Element* from;  // the chunk's first channel in the plane
  const Offset* places;
  int channel;  // in the group
  bool inside;  // the plane is there
};

__device__ inline Source source_of(const Arguments& a, const Tile& tile, const Places& places, int chunk,
                                   int depth) {
  const int channel = chunk * kChunkChannels, d = tile.d - kPadD + depth * kDilationD;
  const bool inside = d >= 0 && d < (int)a.in_d;
  return {input_data(a) + input_offset(a, sample_of(tile.span), input_channel_of(tile.span) + channel,
                                       inside ? d : 0, 0, 0),
          places, channel, inside};
}

// A cell of the input on its way from memory to shared memory.
struct Fetched {
  Element values[kCellElements];
  int place;  // in cells
};

// A cell by its channels and its position. Those of a stager are kStagers apart; neighbouring threads have
// neighbouring channels where these are neighbours in memory, else neighbouring positions.
struct Place {
  int quad, position;

  static __device__ Place first(int thread) {
    return kVectors != 0 ? Place{thread % kChunkCells, thread / kChunkCells}
                         : Place{thread / kBoxPositions, thread % kBoxPositions};
  }
  __device__ bool exists() const { return kVectors != 0 ? position < kBoxPositions : quad < kChunkCells; }
  __device__ void advance() {
    constexpr int kFast = kVectors != 0 ? kChunkCells : kBoxPositions;
    int& fast = kVectors != 0 ? quad : position;
    int& slow = kVectors != 0 ? position : quad;
    fast += kStagers % kFast;
    slow += kStagers / kFast;
    if (fast >= kFast) fast -= kFast, ++slow;
  }
};

// The cell at `next`, which goes on to the stager's next one.
__device__ inline Fetched fetch(const Arguments& a, const Source& source, Place& next) {
  const int quad = next.quad, position = next.position;
  const bool exists = next.exists();
  next.advance();
  Fetched cell;
  cell.place = exists ? quad * kQuad + position : kParts * kPartCells;
  const Offset place = source.places[exists ? position : 0];
  const int c = source.channel + quad * kCellElements;
  const bool inside =
      source.inside && exists && place != kNowhere && (kGroupIn % kChunkChannels == 0 || c < kGroupIn);
  const InputSteps steps = input_steps(a);
  const Element* from = source.from + (place + quad * kCellElements * steps.c);
  if constexpr (kVectors != 0) {
    uint4 found = {0, 0, 0, 0};
    if (inside) found = *reinterpret_cast<const uint4*>(from);
    *reinterpret_cast<uint4*>(cell.values) = found;
  } else {
#pragma unroll
    for (int j = 0; j < kCellElements; ++j) {
      cell.values[j] = Element{};
      if (inside && (kGroupIn % kCellElements == 0 || c + j < kGroupIn)) cell.values[j] = from[j * steps.c];
    }
  }
  return cell;
}

__device__ inline void put(const Fetched& fetched, char* image) {
  Cell* cells = reinterpret_cast<Cell*>(image);
  cells[fetched.place] = packed(fetched.values, 0);
  if constexpr (kParts > 1)
    if (fetched.place < kPartCells) cells[kPartCells + fetched.place] = packed(fetched.values, 1);
}

// The weights of one tap: those of a tile, their number among all in memory, and where the chunk ends; a tile
// has the same `count` of taps in each chunk, those of the filter depths that meet the input.
constexpr int kChunkTaps = kFilterD * kPlaneTaps;

struct Tap {
  int tile;
  int place, end, count;
};

// Of a row of warpgroups; one that has no channels takes the group's last.
__device__ inline Tap first_tap(const Arguments& a, int number, int row) {
  const Tile tile = tile_of(a, number);
  const int block = channel_block_of(tile.span);
  const int rows = block / kGroupBlocks * kGroupRows + min(block % kGroupBlocks * kGroupsM + row, kGroupRows - 1);
  const int chunk = rows * kChunks * kChunkTaps;
  return {number, chunk + tile.depth * kPlaneTaps, chunk + tile.depth_end * kPlaneTaps,
          (tile.depth_end - tile.depth) * kPlaneTaps};
}

// The tap that follows, of the next tile behind the last of one, if that is before `end`.
__device__ inline void advance(const Arguments& a, int end, int row, Tap& tap) {
  if (++tap.place < tap.end) return;
  if ((tap.end - 1) / kChunkTaps % kChunks + 1 < kChunks) {
    tap.place += kChunkTaps - tap.count;
    tap.end += kChunkTaps;
  } else if (++tap.tile < end) {
    tap = first_tap(a, tap.tile, row);
  }
}

// Begins to copy the weights of a tap, by one thread.
__device__ inline void begin_weights(const Arguments& a, const Tap& tap, char* to,
                                     arrivals::Barrier* barrier) {
  arrivals::arrive_with(barrier, kSlotBytes);
  arrivals::copy_begin(to, a.weights + (long long)tap.place * kSlotBytes, kSlotBytes, barrier);
}

// A place in a ring: what goes through it is numbered over all tiles of a run; number t is in slot t % kCount, in
// its phase t / kCount.
template <int kCount>
struct Ring {
  int number;
  unsigned int phase;  // its parity

  __device__ Ring next() const {
    return number + 1 == kCount ? Ring{0, phase ^ 1} : Ring{number + 1, phase};
  }
  __device__ Ring before() const {
    return number == 0 ? Ring{kCount - 1, phase ^ 1} : Ring{number - 1, phase};
  }
};
typedef Ring<kStages> Slot;    // of the weights of one tap
typedef Ring<kImages> Staged;  // of the input of a chunk in one plane
