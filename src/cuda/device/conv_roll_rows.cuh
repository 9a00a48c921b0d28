// How threads of the kernel `conv_roll` stage the input, row by row: any elements, each read for each row
// that has it.

constexpr int kFetches = (kStageRows + kThreads - 1) / kThreads;

// The column, in its band, of a place in a row of positions.
__device__ inline int column_at(int place) { return place; }

// The rows that a thread stages, the same in all planes: where their first elements lie in a plane of the
// tensor, and a bit for each element that is there.
struct Rows {
  Offset at[kFetches];
  unsigned int inside[kFetches];
};

__device__ inline Rows rows_of(const Arguments& a, const Strip& strip) {
  const InputSteps steps = input_steps(a);
  Rows rows;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const int row = (int)threadIdx.x + i * kThreads;
    const int chunk = row / kChunkRows;
    const int p = strip.first + row - chunk * kChunkRows;
    const int y = p / kPitch - kPadH, x = strip.column + p % kPitch - kPadW;
    rows.at[i] = chunk * kPackC * steps.c + y * steps.h + x * steps.w;
    rows.inside[i] = 0;
#pragma unroll
    for (int e = 0; e < kRowElements; ++e) {
      const Cell cell = cell_of(e);
      if (cell.h >= kFilterH || cell.w >= kFilterW) continue;
      const int h = y + cell.h * kDilationH, w = x + cell.w * kDilationW;
      if (chunk * kPackC + cell.c < kInChannels && h >= 0 && h < (int)a.in_h && w >= 0 && w < (int)a.in_w)
        rows.inside[i] |= 1u << e;
    }
  }
  return rows;
}

struct Fetched {
  unsigned int words[kFetches][4];
};

// Reads a thread's rows of the plane that begins at `data`; of none where it is not `there`.
__device__ inline Fetched fetch(const Arguments& a, const Element* data, bool there, const Rows& rows) {
  constexpr int kBits = 8 * (int)sizeof(Element);
  // Where a row is a position's channels it is there or not at all.
  constexpr bool kWhole = kPackC == kRowElements && (kInChannels % kPackC == 0 || kChunksC == 1);
  const InputSteps steps = input_steps(a);
  Fetched fetched;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const unsigned int inside = there ? rows.inside[i] : 0;
    const Element* row = data + rows.at[i];
#pragma unroll
    for (int word = 0; word < 4; ++word) fetched.words[i][word] = 0;
    // Few warps have the last rows.
    if (kStageRows % kThreads != 0 && i == kFetches - 1 && (int)threadIdx.x + i * kThreads >= kStageRows)
      continue;
#pragma unroll
    for (int e = 0; e < kRowElements; ++e) {
      const Cell cell = cell_of(e);
      if ((kChunksC == 1 && cell.c >= kInChannels) || cell.h >= kFilterH || cell.w >= kFilterW) continue;
      if (inside >> (kWhole ? 0 : e) & 1)
        fetched.words[i][e * kBits / 32] |=
            bits_of(row[cell.c * steps.c + cell.h * kDilationH * steps.h + cell.w * kDilationW * steps.w])
            << e * kBits % 32;
    }
  }
  return fetched;
}

__device__ inline void put(const Fetched& fetched, const Rows& rows, char* stage) {
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const int row = (int)threadIdx.x + i * kThreads;
    if (kStageRows % kThreads != 0 && i == kFetches - 1 && row >= kStageRows) continue;
    unsigned int large[4], small[4];
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      large[word] = fetched.words[i][word];
      if (kMode != k16Bits) take_apart(fetched.words[i][word], large[word], small[word]);
    }
    put_row(stage, row, large, small);
  }
}
