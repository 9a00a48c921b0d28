// Strips of the kernel `conv_roll` whose rows have no gaps: which positions they have, and their input in
// shared memory. It stands in place of device/conv_roll_tile.cuh and of a file that stages the input.
//
// The result's columns are cut into bands of kTileW. The positions of a plane of a band are numbered row by
// row. A strip is kStrip of them, one behind the other, with a segment of the depths. The taps of a row of
// the filter with all input channels, channels first, are cut into rows of 16 bytes: of three f32 channels and
// three columns that is two rows of four elements, and one tap that is left. A position has a row of each of
// these kinds, which products find at one offset for all positions (`chunk_offset`), the filter's row above or
// below at another. What is left of all rows of the filter together makes rows of its own. So few elements of
// a product are zeros: 27 taps are seven rows of 16 bytes, nine where each row has taps of one channel or
// column.
//
// Before this stand the constants, Arguments and input_data, input_offset and input_steps, the tensor that is
// convolved.

constexpr int kRowBytes = 16;
constexpr int kRowElements = kRowBytes / (int)sizeof(Element);
constexpr int kRowTaps = kFilterW * kInChannels;  // of a row of the filter
constexpr int kWholeKinds = kRowTaps / kRowElements;
constexpr int kLeft = kRowTaps % kRowElements;  // taps
constexpr int kLeftKinds = (kLeft * kFilterH + kRowElements - 1) / kRowElements;
static_assert(kWholeKinds > 0 && kLeft > 0, "other rows have no gaps either");
constexpr int kChunks = kWholeKinds * kFilterH + kLeftKinds;
constexpr int kPitch = kTileW;
constexpr int kStrip = kThreads / 2 * kTiles;
// Rows of a whole kind.
constexpr int kChunkRows = kStrip + (kFilterH - 1) * kDilationH * kPitch;
constexpr int kStageRows = kWholeKinds * kChunkRows + kLeftKinds * kStrip;
constexpr int kTf32 = 0, kStrict = 1, k16Bits = 2;
constexpr int kParts = kMode == kStrict ? 2 : 1;  // that a number is taken as the sum of
constexpr int kStageBytes = kParts * kStageRows * kRowBytes;

// A position of the tensor, a tap of the filter.
__device__ inline Position position_at(int d, int h, int w) { return Position{d, h, w}; }

// The column, in its band, of a place in a row of positions.
__device__ inline int column_at(int place) { return place; }

// In rows.
__device__ constexpr int chunk_offset(int chunk) {
  return chunk < kWholeKinds * kFilterH
             ? chunk / kFilterH * kChunkRows + chunk % kFilterH * kDilationH * kPitch
             : kWholeKinds * kChunkRows + (chunk - kWholeKinds * kFilterH) * kStrip;
}

// Where products look for a tap.
struct Tap {
  int chunk, element;
};
__device__ inline Tap tap_of(int c, int h, int w) {
  const int number = w * kInChannels + c, left = h * kLeft + number - kWholeKinds * kRowElements;
  return number < kWholeKinds * kRowElements
             ? Tap{number / kRowElements * kFilterH + h, number % kRowElements}
             : Tap{kWholeKinds * kFilterH + left / kRowElements, left % kRowElements};
}

// An element by channel, row and column behind the position's own: element e of its rows of whole kinds, or of
// those of what is left.
struct Cell {
  int c, h, w;
};
template <bool kIsLeft>
__device__ constexpr Cell cell_of(int e) {
  const int number = kIsLeft ? kWholeKinds * kRowElements + e % kLeft : e;
  return {number % kInChannels, kIsLeft ? e / kLeft : 0, number / kInChannels};
}
template <bool kIsLeft>
constexpr int kCells = kIsLeft ? kLeft * kFilterH : kWholeKinds * kRowElements;

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
    large = word;
    if (fabsf(x) < __int_as_float(0x7f800000)) large += 0x1000;
    return;
  }
  const float rounded = to_tf32(x);
  large = __float_as_uint(rounded);
  small = rest_of(x, rounded);
}

// A thread stages all rows of whole kinds of a position, or all that are left of one: whole warps do the same.
constexpr int kWholeJobs = (kChunkRows + 31) / 32 * 32;
constexpr int kFetches = (kWholeJobs + kStrip + kThreads - 1) / kThreads;
constexpr int kJobKinds = kWholeKinds > kLeftKinds ? kWholeKinds : kLeftKinds;
constexpr int kJobWords = kJobKinds * kRowBytes / 4;

// The number of a thread's job: those of the last warps come first in the end, where the first have had more.
__device__ inline int job_of(int i) {
  const int thread = (int)threadIdx.x;
  return i * kThreads + (i < 2 ? thread : kThreads - 32 - thread / 32 * 32 + thread % 32);
}
__device__ inline bool is_left(int i) {
  return i * kThreads >= kWholeJobs || ((i + 1) * kThreads > kWholeJobs && job_of(i) >= kWholeJobs);
}
template <bool kIsLeft>
__device__ inline int position_of(int i) {
  return job_of(i) - (kIsLeft ? kWholeJobs : 0);
}
// Positions with such rows.
template <bool kIsLeft>
constexpr int kPositions = kIsLeft ? kStrip : kChunkRows;

// What a thread stages, the same in all planes: where its first element lies in a plane of the tensor, and a
// bit for each that is there; the last for all of them where they are there or not at all.
constexpr bool kAllOrNone = kPadH == 0 && kPadW == 0 && kOneBand != 0;
struct Rows {
  Offset at[kFetches];
  unsigned int inside[kFetches];
};

template <bool kIsLeft>
__device__ inline void find_rows(const Arguments& a, const Strip& strip, int i, Rows& rows) {
  const InputSteps steps = input_steps(a);
  const int p = strip.first + position_of<kIsLeft>(i);
  const int y = p / kPitch - kPadH, x = strip.column + p % kPitch - kPadW;
  rows.at[i] = y * steps.h + x * steps.w;
  rows.inside[i] = 0;
  if (position_of<kIsLeft>(i) >= kPositions<kIsLeft>) return;
#pragma unroll
  for (int e = 0; e < kCells<kIsLeft>; ++e) {
    const Cell cell = cell_of<kIsLeft>(e);
    const int h = y + cell.h * kDilationH, w = x + cell.w * kDilationW;
    if (h >= 0 && h < (int)a.in_h && w >= 0 && w < (int)a.in_w) rows.inside[i] |= 1u << e;
  }
}

__device__ inline Rows rows_of(const Arguments& a, const Strip& strip) {
  Rows rows;
#pragma unroll
  for (int i = 0; i < kFetches; ++i)
    if (is_left(i))
      find_rows<true>(a, strip, i, rows);
    else
      find_rows<false>(a, strip, i, rows);
  return rows;
}

struct Fetched {
  unsigned int words[kFetches][kJobWords];
};

template <bool kIsLeft>
__device__ inline void fetch_rows(const Arguments& a, const Element* first, unsigned int inside,
                                  unsigned int (&words)[kJobWords]) {
  constexpr int kBits = 8 * (int)sizeof(Element);
  const InputSteps steps = input_steps(a);
#pragma unroll
  for (int e = 0; e < kCells<kIsLeft>; ++e) {
    const Cell cell = cell_of<kIsLeft>(e);
    if (inside >> (kAllOrNone ? kCells<kIsLeft> - 1 : e) & 1)
      words[e * kBits / 32] |= bits_of(first[cell.c * steps.c + cell.h * kDilationH * steps.h +
                                             cell.w * kDilationW * steps.w])
                               << e * kBits % 32;
  }
}

// Reads a thread's elements of the plane that begins at `data`; none where it is not `there`.
__device__ inline Fetched fetch(const Arguments& a, const Element* data, bool there, const Rows& rows) {
  Fetched fetched;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const unsigned int inside = there ? rows.inside[i] : 0;
#pragma unroll
    for (int word = 0; word < kJobWords; ++word) fetched.words[i][word] = 0;
    if (is_left(i))
      fetch_rows<true>(a, data + rows.at[i], inside, fetched.words[i]);
    else
      fetch_rows<false>(a, data + rows.at[i], inside, fetched.words[i]);
  }
  return fetched;
}

template <bool kIsLeft>
__device__ inline void put_rows(int i, const unsigned int (&words)[kJobWords], char* stage) {
  const int position = position_of<kIsLeft>(i);
  if ((i + 1) * kThreads > kPositions<kIsLeft> && position >= kPositions<kIsLeft>) return;
  uint4* row = reinterpret_cast<uint4*>(stage) + (kIsLeft ? kWholeKinds * kChunkRows : 0) + position;
#pragma unroll
  for (int kind = 0; kind < (kIsLeft ? kLeftKinds : kWholeKinds); ++kind) {
    unsigned int large[4], small[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      large[k] = words[kind * 4 + k];
      small[k] = 0;
      if (kMode != k16Bits && kind * 4 + k < kCells<kIsLeft>) take_apart(words[kind * 4 + k], large[k], small[k]);
    }
    row[kind * kPositions<kIsLeft>] = make_uint4(large[0], large[1], large[2], large[3]);
    if (kMode == kStrict)
      row[kind * kPositions<kIsLeft> + kStageRows] = make_uint4(small[0], small[1], small[2], small[3]);
  }
}

__device__ inline void put(const Fetched& fetched, const Rows& rows, char* stage) {
#pragma unroll
  for (int i = 0; i < kFetches; ++i)
    if (is_left(i))
      put_rows<true>(i, fetched.words[i], stage);
    else
      put_rows<false>(i, fetched.words[i], stage);
}
