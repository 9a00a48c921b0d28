// Strips of the kernel `conv_roll`: which positions they have, and their input in shared memory.
//
// The result's columns are cut into bands of kTileW. The positions of a plane of a band are numbered row by
// row, kPitch a row, of which the last kPitch - kTileW are not there. A strip is kStrip of them, one behind
// the other, with a segment of the depths. Where a convolution has two dimensions, rows of the image may be
// depths (kFolded). The input of one plane of a strip lies in shared memory as rows of 16 bytes, one for each
// position and kPackC channels: the kPackC x kPackH x kPackW elements of the input that begin at the
// position's own. So a chunk of the filter, which is as large, is one offset for all positions
// (`chunk_offset`), and eight neighbouring positions are a core matrix of `wgmma`. What no weight meets is 0
// there, so that infinities go where they belong.
//
// Before this stand the constants, Arguments and input_data, input_offset and input_steps, the tensor that is
// convolved.

constexpr int kRowBytes = 16;
constexpr int kRowElements = kPackC * kPackH * kPackW;
constexpr int kChunksC = (kInChannels + kPackC - 1) / kPackC;
constexpr int kChunksH = (kFilterH + kPackH - 1) / kPackH;
constexpr int kChunksW = (kFilterW + kPackW - 1) / kPackW;
constexpr int kChunks = kChunksC * kChunksH * kChunksW;
constexpr int kPitch = kTileW + (kChunksW - 1) * kPackW * kDilationW;
constexpr int kStrip = kThreads / 2 * kTiles;
// Rows of one chunk of channels.
constexpr int kChunkRows =
    kStrip + (kChunksH - 1) * kPackH * kDilationH * kPitch + (kChunksW - 1) * kPackW * kDilationW;
constexpr int kStageRows = kChunksC * kChunkRows;
constexpr int kTf32 = 0, kStrict = 1, k16Bits = 2;
constexpr int kParts = kMode == kStrict ? 2 : 1;  // that a number is taken as the sum of
constexpr int kStageBytes = kParts * kStageRows * kRowBytes;

// A position of the tensor, a tap of the filter.
__device__ inline Position position_at(int d, int h, int w) {
  return kFolded != 0 ? Position{0, d, w} : Position{d, h, w};
}

// In rows.
__device__ constexpr int chunk_offset(int chunk) {
  return (chunk / (kChunksH * kChunksW) * kChunkRows +
          chunk / kChunksW % kChunksH * kPackH * kDilationH * kPitch +
          chunk % kChunksW * kPackW * kDilationW);
}

// An element of a row, by channel, row and column behind the first.
struct Cell {
  int c, h, w;
};
__device__ constexpr Cell cell_of(int e) { return {e / (kPackH * kPackW), e / kPackW % kPackH, e % kPackW}; }

// A strip by its first position, its band's first column, and its first depth; so many planes of the input
// are met.
struct Strip {
  int first, column, depth, planes;
};
__device__ inline Strip strip_of(const Arguments& a, int tile) {
  const int strip = tile / (int)a.segments, band = strip / (int)a.strips;
  const int depth = (tile - strip * (int)a.segments) * (int)a.depths;
  const int depths = min((int)a.depths, (int)a.out_d - depth);
  return {(strip - band * (int)a.strips) * kStrip, band * kTileW, depth, depths + kFilterD - 1};
}

__device__ inline unsigned int bits_of(bf16 x) { return x.bits; }
__device__ inline unsigned int bits_of(f16 x) { return x.bits; }
__device__ inline unsigned int bits_of(float x) { return __float_as_uint(x); }

// What products take of an f32 number: the nearest tf32, and in strict mode the rest. They ignore lower bits.
__device__ inline void take_apart(unsigned int word, unsigned int& large, unsigned int& small) {
  const float x = __uint_as_float(word);
  if (kMode == kTf32) {
    large = fabsf(x) < __int_as_float(0x7f800000) ? word + 0x1000 : word;
    return;
  }
  const float rounded = to_tf32(x);
  large = __float_as_uint(rounded);
  small = rest_of(x, rounded);
}

__device__ inline void put_row(char* stage, int row, const unsigned int (&large)[4],
                               const unsigned int (&small)[4]) {
  uint4* place = reinterpret_cast<uint4*>(stage) + row;
  *place = make_uint4(large[0], large[1], large[2], large[3]);
  if (kMode == kStrict) place[kStageRows] = make_uint4(small[0], small[1], small[2], small[3]);
}
