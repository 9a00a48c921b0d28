// How threads of the kernel `conv_roll` stage the input where a row has four neighbouring columns: the rows
// of four neighbouring positions at once, out of eight columns that are read once.
//
// Positions of a row of the image lie in shared memory with those whose columns are 0 modulo 4 first, then
// those with 1, 2 and 3, so that neighbouring threads write neighbouring rows. Filters are at most four
// columns wide: chunks of them are whole rows of the image apart, and the order within one is of no account.

constexpr int kQuads = (kTileW + 3) / 4;
// Rows of the image that a strip's staged positions are in.
constexpr int kImageRows = (kStrip + kPitch - 2) / kPitch + 1 + (kChunksH - 1) * kPackH * kDilationH;
constexpr int kFetches = (kChunksC * kImageRows * kQuads + kThreads - 1) / kThreads;
constexpr int kSets = kPackC * kPackH;  // channels and rows of a row's elements
constexpr int kSetWords = 8 / kSets;    // of eight columns

// The place of a row's first column that is j modulo 4.
__device__ constexpr int first_place(int j) { return kTileW / 4 * j + (j < kTileW % 4 ? j : kTileW % 4); }
__device__ inline int column_at(int place) {
  int j = 0;
#pragma unroll
  for (int i = 1; i < 4; ++i)
    if (place >= first_place(i)) j = i;
  return (place - first_place(j)) * 4 + j;
}

// The columns that a thread reads, the same in all planes: where the first lies in a plane of the tensor, a
// bit for each that is there, of all sets, and the place of its first row.
struct Rows {
  Offset at[kFetches];
  unsigned int inside[kFetches];  // and from kFirstPut on a bit for each row that the strip has
  int place[kFetches];
};
constexpr int kFirstPut = 24;

__device__ inline Rows rows_of(const Arguments& a, const Strip& strip) {
  const InputSteps steps = input_steps(a);
  const int first_row = strip.first / kPitch;
  Rows rows;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const int number = (int)threadIdx.x + i * kThreads;
    const int image_row = number / kQuads, quad = number - image_row * kQuads;
    const int chunk = image_row / kImageRows, row = first_row + image_row - chunk * kImageRows;
    const int y = row - kPadH, x = strip.column + quad * 4 - kPadW;
    rows.at[i] = chunk * kPackC * steps.c + y * steps.h + x * steps.w;
    const int place = row * kPitch + quad - strip.first;
    rows.place[i] = chunk * kChunkRows + place;
    rows.inside[i] = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool is_column = kTileW % 4 == 0 || j < kTileW % 4 || quad != kQuads - 1;
      if (chunk < kChunksC && is_column && (unsigned int)(place + first_place(j)) < kChunkRows)
        rows.inside[i] |= 1u << (kFirstPut + j);
    }
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      const int h = y + set % kPackH * kDilationH;
      const bool there =
          set % kPackH < kFilterH && chunk * kPackC + set / kPackH < kInChannels && h >= 0 && h < (int)a.in_h;
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (there && x + e >= 0 && x + e < (int)a.in_w) rows.inside[i] |= 1u << (set * 8 + e);
    }
  }
  return rows;
}

struct Fetched {
  unsigned int words[kFetches][8];
};

// Reads a thread's columns of the plane that begins at `data`; none where it is not `there`.
__device__ inline Fetched fetch(const Arguments& a, const Element* data, bool there, const Rows& rows) {
  constexpr int kBits = 8 * (int)sizeof(Element);
  const InputSteps steps = input_steps(a);
  Fetched fetched;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const unsigned int inside = there ? rows.inside[i] : 0;
#pragma unroll
    for (int word = 0; word < 8; ++word) fetched.words[i][word] = 0;
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      const Element* first = data + rows.at[i] + set / kPackH * steps.c + set % kPackH * kDilationH * steps.h;
      unsigned int* words = fetched.words[i] + set * kSetWords;
      if constexpr (kQuadVectors != 0) {
        // Four columns are all there or not at all.
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (!(inside >> (set * 8 + half * 4) & 1)) continue;
          if constexpr (kBits == 32) {
            const uint4 found = *reinterpret_cast<const uint4*>(first + half * 4);
            words[half * 4] = found.x, words[half * 4 + 1] = found.y;
            words[half * 4 + 2] = found.z, words[half * 4 + 3] = found.w;
          } else {
            const uint2 found = *reinterpret_cast<const uint2*>(first + half * 4);
            words[half * 2] = found.x, words[half * 2 + 1] = found.y;
          }
        }
      } else {
#pragma unroll
        for (int e = 0; e < 3 + kFilterW; ++e)
          if (inside >> (set * 8 + e) & 1)
            words[e * kBits / 32] |= bits_of(first[e * steps.w]) << e * kBits % 32;
      }
    }
  }
  return fetched;
}

// Word `word` of the row whose first column is j; what no weight meets is 0.
__device__ inline unsigned int word_of(const unsigned int (&words)[8], int j, int word) {
  constexpr int kRowWords = 4 / kSets;  // of a set
  const unsigned int* set = words + word / kRowWords * kSetWords;
  const int pair = word % kRowWords * 2;
  if (sizeof(Element) == 4) return word < kFilterW ? words[j + word] : 0;
  if (pair >= kFilterW) return 0;
  const int e = j + pair;
  const unsigned int both = e % 2 == 0 ? set[e / 2] : set[e / 2] >> 16 | set[(e / 2 + 1) % kSetWords] << 16;
  return pair + 1 < kFilterW ? both : both & 0xffffu;
}

__device__ inline void put(const Fetched& fetched, const Rows& rows, char* stage) {
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    unsigned int large[8], small[8];
#pragma unroll
    for (int word = 0; word < 8; ++word) {
      large[word] = fetched.words[i][word];
      if (kMode != k16Bits && word < 3 + kFilterW)
        take_apart(fetched.words[i][word], large[word], small[word]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (!(rows.inside[i] >> (kFirstPut + j) & 1)) continue;
      unsigned int large_row[4], small_row[4];
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        large_row[word] = word_of(large, j, word);
        if (kMode == kStrict) small_row[word] = word_of(small, j, word);
      }
      put_row(stage, rows.place[i] + first_place(j), large_row, small_row);
    }
  }
}
