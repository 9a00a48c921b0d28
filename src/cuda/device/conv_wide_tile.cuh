// Tiles of the kernel `conv_wide`: which positions they have, and their input and weights in shared memory.
//
// The result's columns are cut into strips of kStrip. A tile is kTile positions of a strip one behind the
// other, row by row and plane by plane, so that no extent needs to be a multiple of anything, with
// kBlockChannels output channels of one group. Its input is staged kChunkChannels channels at a time as cells
// of 16 bytes, neighbouring channels of one position:
//   [cell of the channels][filter depth][row][column], rows kPitch apart, kBoxH of them for a filter depth,
// zeros where it reaches beyond the tensor. Rows that only one plane of the tile needs follow those of the
// plane before, so that a tap of the filter is one offset for all positions. Cells of channels are kQuad
// apart.
//
// Before this stand the constants, device/conv_wide_cells.cuh, Arguments, and input_data and input_offset,
// the tensor that is convolved.

constexpr int kSpanH = (kFilterH - 1) * kDilationH + 1;  // rows that a filter reaches over
constexpr int kPlane = kBoxH * kPitch;
constexpr int kBoxPositions = kFilterD * kBoxH * kBoxW;
constexpr int kImageCells = kChunkCells * kBoxPositions;
constexpr int kImageBytes = kChunkCells * kQuad * 16;
constexpr int kThreadCells = (kImageCells + kThreads - 1) / kThreads;

struct Tile {
  int span;              // sample and block of channels
  int first;             // position in the strip
  int row, d, h, w;      // of that: among all rows of the strip, in the result
  int depth, depth_end;  // filter depths that meet the input
};

__device__ inline int sample_of(int span) { return span / kChannelBlocks; }
__device__ inline int channel_block_of(int span) { return span % kChannelBlocks; }
__device__ inline int input_channel_of(int span) { return channel_block_of(span) / kGroupBlocks * kGroupIn; }
__device__ inline int strip_positions(const Arguments& a) { return (int)a.out_d * (int)a.out_h * kStrip; }

__device__ inline Tile tile_of(const Arguments& a, int number) {
  Tile tile;
  tile.span = number / (int)a.tiles;
  const int rest = number - tile.span * (int)a.tiles;
  const int strip = rest / (int)a.strip_tiles;
  tile.first = (rest - strip * (int)a.strip_tiles) * kTile;
  tile.row = tile.first / kStrip;
  tile.d = tile.row / (int)a.out_h;
  tile.h = tile.row - tile.d * (int)a.out_h;
  tile.w = strip * kStrip;
  const int positions = strip_positions(a);
  const int end = tile.first + kTile < positions ? tile.first + kTile : positions;
  const int last = (end - 1) / kStrip / (int)a.out_h;
  tile.depth = 0;
  while (tile.depth + 1 < kFilterD && last * kStrideD - kPadD + tile.depth * kDilationD < 0) ++tile.depth;
  tile.depth_end = kFilterD;
  while (tile.depth_end - 1 > tile.depth &&
         tile.d * kStrideD - kPadD + (tile.depth_end - 1) * kDilationD >= (int)a.in_d)
    --tile.depth_end;
  return tile;
}

// A block's run of tiles is [run_begin(b), run_begin(b + 1)).
__device__ inline int run_begin(const Arguments& a, int block) {
  return (int)((long long)block * a.items / gridDim.x);
}
__device__ inline int block_of(const Arguments& a, int tile) {
  return (int)((((long long)tile + 1) * gridDim.x - 1) / a.items);
}

// A position of a tile in the result, and its place in the staged input, in cells.
struct Site {
  int d, h, w;
  int place;
  bool inside;

  __device__ operator Position() const { return {d, h, w}; }
};

__device__ inline Site site_of(const Arguments& a, const Tile& tile, int number) {
  const int flat = tile.first + number;
  const int row = flat / kStrip, column = flat - row * kStrip;
  Site site = {row / (int)a.out_h, 0, tile.w + column, 0, flat < strip_positions(a)};
  site.h = row - site.d * (int)a.out_h;
  if (site.inside)
    site.place =
        ((row - tile.row) * kStrideH + (site.d - tile.d) * (kSpanH - kStrideH)) * kPitch + column * kStrideW;
  site.inside = site.inside && site.w < (int)a.out_w;
  if (!site.inside) site.d = tile.d, site.h = tile.h, site.w = tile.w;
  return site;
}

// Where the input of a cell lies behind that of its channels at the tensor's first position; kNowhere beyond
// the tensor.
constexpr Offset kNowhere = -1;

__device__ inline Offset locate(const Arguments& a, const Tile& tile, int position) {
  const int column = position % kBoxW;
  int rest = position / kBoxW;
  int row = rest % kBoxH;
  const int depth = rest / kBoxH;
  int plane = tile.d, h = tile.h;
  if (kCrossings > 0) {
    const int rows = ((int)a.out_h - 1 - tile.h) * kStrideH + kSpanH;  // of the tile's first plane
    if (row >= rows) {
      const int whole = ((int)a.out_h - 1) * kStrideH + kSpanH;
      const int further = kCrossings > 1 ? (row - rows) / whole : 0;
      plane += 1 + further;
      row -= rows + further * whole;
      h = 0;
    }
  }
  const int d = plane * kStrideD - kPadD + depth * kDilationD;
  h = h * kStrideH - kPadH + row;
  const int w = tile.w * kStrideW - kPadW + column;
  if (d < 0 || d >= (int)a.in_d || h < 0 || h >= (int)a.in_h || w < 0 || w >= (int)a.in_w) return kNowhere;
  return (Offset)input_offset(a, 0, 0, d, h, w);
}

// The cells of a thread, by their numbers. Neighbouring threads have neighbouring channels where these are
// neighbours in memory, else neighbouring columns.
__device__ inline int number_of(int i) { return i * kThreads + (int)threadIdx.x; }
__device__ inline int quad_of(int number) {
  return kVectors != 0 ? number % kChunkCells : number / kBoxPositions;
}
__device__ inline int position_of(int number) {
  return kVectors != 0 ? number / kChunkCells : number % kBoxPositions;
}

// What the chunk that is fetched next needs to know: the tile, whether it is the tile's first chunk, its
// first channel in the group, and where that lies.
struct Source {
  const Tile& tile;
  bool first;
  int channel;
  const Element* from;
};

__device__ inline Source source_of(const Arguments& a, const Tile& tile, int chunk) {
  const int channel = chunk * kChunkChannels;
  return {
      tile, chunk == 0, channel,
      input_data(a) + input_offset(a, sample_of(tile.span), input_channel_of(tile.span) + channel, 0, 0, 0)};
}

// A cell of the input on its way from memory to shared memory.
struct Fetched {
  Element values[kCellElements];
  int place;  // in cells; -1 for none
};

// The thread's cell i. Places in memory are found for a tile's first chunk and kept for the others.
__device__ inline Fetched fetch(const Arguments& a, const Source& source, int i,
                                Offset (&offsets)[kThreadCells][kThreads]) {
  Fetched cell;
#pragma unroll
  for (int j = 0; j < kCellElements; ++j) cell.values[j] = Element{};
  cell.place = -1;
  const int number = number_of(i);
  if (number >= kImageCells) return cell;
  const int quad = quad_of(number), position = position_of(number);
  cell.place = quad * kQuad + position / kBoxW * kPitch + position % kBoxW;
  Offset& kept = offsets[i][threadIdx.x];
  const Offset offset = source.first ? locate(a, source.tile, position) : kept;
  if (source.first) kept = offset;
  const int c = source.channel + quad * kCellElements;
  if (offset == kNowhere || c >= kGroupIn) return cell;
  if constexpr (kVectors != 0) {
    const uint4 found = *reinterpret_cast<const uint4*>(source.from + offset + quad * kCellElements);
    *reinterpret_cast<uint4*>(cell.values) = found;
  } else {
    const long long step = input_offset(a, 0, 1, 0, 0, 0);
    const Element* from = source.from + offset + quad * kCellElements * step;
#pragma unroll
    for (int j = 0; j < kCellElements; ++j)
      if (kGroupIn % kCellElements == 0 || c + j < kGroupIn) cell.values[j] = from[j * step];
  }
  return cell;
}

__device__ inline void put(const Fetched& fetched, char* image) {
  if (fetched.place >= 0) reinterpret_cast<Cell*>(image)[fetched.place] = packed(fetched.values);
}

// A stage of weights: that of a tile, its number among all in memory, and where the chunk ends; a tile has
// the same `count` of stages in each chunk, those of the filter depths that meet the input.
constexpr int kDepthStages = kFilterH * kRowParts;
constexpr int kChunkStages = kFilterD * kDepthStages;

struct Stage {
  int tile;
  int place, end, count;
};

__device__ inline Stage first_stage(const Arguments& a, int number) {
  const Tile tile = tile_of(a, number);
  const int chunk = channel_block_of(tile.span) * kChunks * kChunkStages;
  return {number, chunk + tile.depth * kDepthStages, chunk + tile.depth_end * kDepthStages,
          (tile.depth_end - tile.depth) * kDepthStages};
}

// The stage that follows, of the next tile behind the last of one, if that is before `end`.
__device__ inline void advance(const Arguments& a, int end, Stage& stage) {
  if (++stage.place < stage.end) return;
  if ((stage.end - 1) / kChunkStages % kChunks + 1 < kChunks) {
    stage.place += kChunkStages - stage.count;
    stage.end += kChunkStages;
  } else if (++stage.tile < end) {
    stage = first_stage(a, stage.tile);
  }
}

// Begins to copy a stage of weights.
__device__ inline void begin_weights(const Arguments& a, const Stage& stage, char* to) {
  const Cell* from = reinterpret_cast<const Cell*>(a.weights) + (long long)stage.place * kStageCells;
#pragma unroll
  for (int i = 0; i < kStageCells; i += kThreads)
    if (i + kThreads <= kStageCells || i + (int)threadIdx.x < kStageCells)
      thread::copy_begin(reinterpret_cast<Cell*>(to) + i + threadIdx.x, from + i + threadIdx.x);
}
