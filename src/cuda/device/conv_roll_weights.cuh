// The weights of the kernel `conv_roll` in shared memory, and the products with them.

constexpr int kBlockSums = kNTiles * 4;       // of a lane, for one depth
constexpr int kSums = kFilterD * kBlockSums;  // in one product
constexpr int kWeightBlock = kNTiles * 8;     // rows of weights of one depth of the filter
constexpr int kWeightRows = (2 * kFilterD - 1) * kWeightBlock;
constexpr int kSteps = (kChunks + 1) / 2;
constexpr int kZeros = kChunks % 2 != 0 ? 64 : 0;  // rows, where a step has but one chunk

// What a thread block prepares once: weights as [part][chunk][depth of the filter, channel][element of the
// chunk]. Depths stand as K - 1, ..., 0, K - 1, ..., 1, so that each rotation of them is K neighbours. It
// lies behind the stages, as zeros have to.
struct Prepared {
  alignas(128) char weights[kParts][2 * kSteps][kWeightRows][kRowBytes];
  char zeros[kZeros + 1][kRowBytes];
};

__device__ inline void prepare(const Arguments& a, Prepared& prepared) {
#pragma unroll 4
  for (int i = (int)threadIdx.x; i < 2 * kSteps * kWeightRows; i += kThreads) {
    const int chunk = i / kWeightRows, row = i % kWeightRows;
    const int channel = row % kWeightBlock, depth = kFilterD - 1 - row / kWeightBlock % kFilterD;
#pragma unroll
    for (int e = 0; e < kRowElements; ++e) {
      const Cell cell = cell_of(e);
      const int c = chunk / (kChunksH * kChunksW) * kPackC + cell.c;
      const int h = chunk / kChunksW % kChunksH * kPackH + cell.h, w = chunk % kChunksW * kPackW + cell.w;
      const bool there =
          chunk < kChunks && channel < kChannels && c < kInChannels && h < kFilterH && w < kFilterW;
      const float weight = there ? weight_at(a, channel, c, position_at(depth, h, w)) : 0.0f;
      const float large = kMode == k16Bits ? weight : to_tf32(weight);
      assign(reinterpret_cast<Element*>(prepared.weights[0][chunk][row])[e], large);
      if (kMode == kStrict)
        assign(reinterpret_cast<Element*>(prepared.weights[kParts - 1][chunk][row])[e],
               to_tf32(weight - large));
    }
  }
  for (int i = (int)threadIdx.x; i < kZeros * 4; i += kThreads)
    reinterpret_cast<unsigned int*>(prepared.zeros)[i] = 0;
}

// Adds the products of one plane to a warpgroup's sums. `rows`, `weights` and `zeros` are places in shared
// memory.
__device__ inline void multiply(unsigned int rows, unsigned int weights, unsigned int zeros, int rotation,
                                float (&sums)[kSums]) {
  auto step = [&](int k, int part_of_rows, int part_of_weights) {
    const unsigned int from = rows + part_of_rows * kStageRows + chunk_offset(2 * k);
    const unsigned int next =
        2 * k + 1 < kChunks ? chunk_offset(2 * k + 1) - chunk_offset(2 * k) : zeros - from;
    warpgroup::multiply(sums, matrix_at(from, next),
                        matrix_at(weights + (part_of_weights * 2 * kSteps + 2 * k) * kWeightRows +
                                      (kFilterD - 1 - rotation) * kWeightBlock,
                                  kWeightRows));
  };
  if constexpr (kMode == kStrict) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      // Where there are few products f32 arithmetic is nearly exact, too.
      if constexpr (kSteps <= 2) step(k, 1, 1);
      step(k, 1, 0);
      step(k, 0, 1);
    }
  }
#pragma unroll
  for (int k = 0; k < kSteps; ++k) step(k, 0, 0);
}
