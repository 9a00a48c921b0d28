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
constexpr int kPartCells = kChunkCells * kQuad;
constexpr int kImageBytes = kParts * kPartCells * 16;
constexpr int kPlaneTaps = kFilterH * kFilterW;
// The weights of one tap, of a row of warpgroups; kGroupRows is how many of these a group's channels are.
constexpr int kRowChannels = 64;
constexpr int kSlotCells = kChunkCells * kRowChannels;  // of one part
constexpr int kSlotBytes = kParts * kSlotCells * 16;
constexpr int kGroupRows = (kGroupOut + kRowChannels - 1) / kRowChannels;

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
  const int rows =
      block / kGroupBlocks * kGroupRows + min(block % kGroupBlocks * kGroupsM + row, kGroupRows - 1);
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

// A place in a ring: what goes through it is numbered over all tiles of a run; number t is in slot t %
// kCount, in its phase t / kCount.
template <int kCount>
struct Ring {
  int number;
  unsigned int phase;  // its parity

  __device__ Ring next() const { return number + 1 == kCount ? Ring{0, phase ^ 1} : Ring{number + 1, phase}; }
  __device__ Ring before() const {
    return number == 0 ? Ring{kCount - 1, phase ^ 1} : Ring{number - 1, phase};
  }
};
typedef Ring<kStages> Slot;    // of the weights of one tap
typedef Ring<kImages> Staged;  // of the input of a chunk in one plane
