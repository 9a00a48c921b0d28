// How threads of the kernel `conv_roll` stage the input where a strip has several rounds
// (device/conv_roll_rounds.cuh): row by row, a piece of the next plane beside each round of this one.

// Rows of a piece that a thread has, and pieces of a plane.
constexpr int kFetches = (kStageRows + kThreads * kRounds - 1) / (kThreads * kRounds);
constexpr int kPieces = kRounds, kEvery = 1;

constexpr bool kOneBand = false;
__device__ inline Strip strip_at(const Arguments& a, int tile) { return strip_of(a, tile); }

// The column, in its band, of a place in a row of positions.
__device__ inline int column_at(int place) { return place; }

// A thread's row i of a piece; none from kStageRows on.
__device__ inline int row_of(int piece, int i) {
  return (int)threadIdx.x + (piece * kFetches + i) * kThreads;
}

struct Words {
  RowWords rows[kFetches];
};
struct Fetched {
  RowElements rows[kFetches];

  __device__ Words words() const {
    Words words;
#pragma unroll
    for (int i = 0; i < kFetches; ++i) words.rows[i] = rows[i].words();
    return words;
  }
};

// A plane of a sample, which may lie beyond the tensor: its first element, null there.
__device__ inline const Element* plane_of(const Arguments& a, int n, int plane) {
  const bool there = kPadD == 0 || (plane >= 0 && plane < (int)a.in_d);
  return there ? input_data(a) + input_offset(a, n, plane) : nullptr;
}

// Reads a thread's rows of a piece of a plane.
__device__ inline Fetched fetch(const Arguments& a, const Element* plane, const Strip& strip, int piece) {
  // Where a row is a position's channels it is there or not at all.
  constexpr bool kWhole = kPackC == kRowElements && (kInChannels % kPackC == 0 || kChunksC == 1);
  const InputSteps steps = input_steps(a);
  Fetched fetched;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    fetched.rows[i].clear();
    const int row = row_of(piece, i);
    if ((kPadD != 0 && plane == nullptr) || row >= kStageRows) continue;
    const int chunk = (int)((unsigned int)row / kChunkRows);
    const unsigned int p = (unsigned int)(strip.first + row - chunk * kChunkRows);
    const int y = (int)(p / kPitch) - kPadH, x = strip.column + (int)(p % kPitch) - kPadW;
    const Element* from = plane + (chunk * kPackC * steps.c + y * steps.h + x * steps.w);
#pragma unroll
    for (int e = 0; e < kRowElements; ++e) {
      const Cell cell = cell_of(e);
      if ((kWhole && cell.c >= kInChannels) || cell.h >= kFilterH || cell.w >= kFilterW) continue;
      const int h = y + cell.h * kDilationH, w = x + cell.w * kDilationW;
      const bool inside = (kWhole || chunk * kPackC + cell.c < kInChannels) && (kPadH == 0 || h >= 0) &&
                          h < (int)a.in_h && (kPadW == 0 || w >= 0) && w < (int)a.in_w;
      if (inside)
        fetched.rows[i].bits[e] =
            bits_of(from[cell.c * steps.c + cell.h * kDilationH * steps.h + cell.w * kDilationW * steps.w]);
    }
  }
  return fetched;
}

__device__ inline void put(const Words& words, int piece, char* stage) {
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const int row = row_of(piece, i);
    if (row >= kStageRows) continue;
    unsigned int large[4], small[4];
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      large[word] = words.rows[i].of[word];
      if (kMode != k16Bits) take_apart(large[word], large[word], small[word]);
    }
    put_row(stage, row, large, small);
  }
}
