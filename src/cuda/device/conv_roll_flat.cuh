// How threads of the kernel `conv_roll` stage the input where a strip has several rounds
// (device/conv_roll_rounds.cuh) and its positions are numbered as the elements of a plane lie in memory:
// position by position with all channels, a piece of the next plane beside a round of this one. There is
// nothing to divide. What is beyond the plane's end no position of the result reads: the last element stands
// there.

// Rounds from a piece to the next. Memory takes longer than a round of moments of 16-bit elements, for which
// there are registers to have more on the way.
constexpr int kEvery = kMode == k16Bits && kOverPositions != 0 && kRounds >= 8 ? 3 : 1;
// Positions of a piece that a thread has, and pieces of a plane, which are put beside the first rounds.
constexpr int kPutRounds = kEvery == 1 ? kRounds : (kRounds - 1) / kEvery;
constexpr int kFetches = (kChunkRows + kThreads * kPutRounds - 1) / (kThreads * kPutRounds);
constexpr int kPieces = (kChunkRows + kThreads * kFetches - 1) / (kThreads * kFetches);
static_assert(kPackC == kRowElements && kPadD == 0 && kPadH == 0 && kPadW == 0, "a row is of one position");

// The result is one band of one depth.
constexpr bool kOneBand = true;
__device__ inline Strip strip_at(const Arguments& a, int tile) { return {tile * kStrip, 0, 0, 1}; }

// The column, in its band, of a place in a row of positions.
__device__ inline int column_at(int place) { return place; }

// A thread's position i of a piece; none from kChunkRows on.
__device__ inline int row_of(int piece, int i) {
  return (int)threadIdx.x + (piece * kFetches + i) * kThreads;
}

struct Words {
  RowWords rows[kFetches][kChunksC];
};
struct Fetched {
  RowElements rows[kFetches][kChunksC];

  __device__ Words words() const {
    Words words;
#pragma unroll
    for (int i = 0; i < kFetches; ++i)
#pragma unroll
      for (int chunk = 0; chunk < kChunksC; ++chunk) words.rows[i][chunk] = rows[i][chunk].words();
    return words;
  }
};

// A plane of a sample: its first element.
__device__ inline const Element* plane_of(const Arguments& a, int n, int plane) {
  return input_data(a) + input_offset(a, n, plane);
}

// Reads a thread's positions of a piece of a plane.
__device__ inline Fetched fetch(const Arguments& a, const Element* plane, const Strip& strip, int piece) {
  const InputSteps steps = input_steps(a);
  Fetched fetched;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const int row = row_of(piece, i);
    // Of 16 bits something is read that nobody puts.
    if (kMode != k16Bits && row >= kChunkRows) continue;
    const Element* from = plane + min(strip.first + row, (int)(a.in_h * a.in_w) - 1);
#pragma unroll
    for (int c = 0; c < kChunksC * kPackC; ++c)
      fetched.rows[i][c / kPackC].bits[c % kPackC] = c < kInChannels ? bits_of(from[c * steps.c]) : 0;
  }
  return fetched;
}

__device__ inline void put(const Words& words, int piece, char* stage) {
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const int row = row_of(piece, i);
    if (row >= kChunkRows) continue;
#pragma unroll
    for (int chunk = 0; chunk < kChunksC; ++chunk) {
      unsigned int large[4], small[4];
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        large[word] = words.rows[i][chunk].of[word];
        if (kMode == kStrict) take_apart(words.rows[i][chunk].of[word], large[word], small[word]);
        if (kMode == kTf32 && fabsf(__uint_as_float(large[word])) < __int_as_float(0x7f800000))
          large[word] += 0x1000;
      }
      put_row(stage, row + chunk * kChunkRows, large, small);
    }
  }
}
