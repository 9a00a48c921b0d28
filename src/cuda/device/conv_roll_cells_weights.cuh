// The weights of the kernel `conv_roll` in shared memory, and the products with them, where rows have no gaps.

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

// Puts a weight where products look for it. Those of all depths but the first stand there twice.
__device__ inline void put_weight(Prepared& prepared, int chunk, int row, int element, float weight) {
  const float large = kMode == k16Bits ? weight : to_tf32(weight);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const float value = part == 0 ? large : to_tf32(weight - large);
    assign(reinterpret_cast<Element*>(prepared.weights[part][chunk][row])[element], value);
    if (row < (kFilterD - 1) * kWeightBlock)
      assign(
          reinterpret_cast<Element*>(prepared.weights[part][chunk][row + kFilterD * kWeightBlock])[element],
          value);
  }
}

// A thread has some taps of the filter, of one input channel each, and goes through output channels: their
// neighbours in memory are its neighbours'.
__device__ inline void prepare(const Arguments& a, Prepared& prepared) {
  constexpr int kTaps = kInChannels * kFilterD * kFilterH * kFilterW;
  constexpr int kTogether = kThreads < kTaps ? 1 : kThreads / kTaps;  // output channels at a time
  for (int i = (int)threadIdx.x; i < (int)(sizeof(Prepared) / kRowBytes); i += kThreads)
    reinterpret_cast<uint4*>(&prepared)[i] = make_uint4(0, 0, 0, 0);
  __syncthreads();
  if ((int)threadIdx.x >= kTogether * kTaps) return;
#pragma unroll 1
  for (int tap = kTogether == 1 ? (int)threadIdx.x : (int)threadIdx.x % kTaps; tap < kTaps;
       tap += kTogether == 1 ? kThreads : kTaps) {
    const int w = tap % kFilterW, h = tap / kFilterW % kFilterH;
    const int depth = tap / (kFilterW * kFilterH) % kFilterD, c = tap / (kFilterW * kFilterH * kFilterD);
    const Tap at = tap_of(c, h, w);
    const int row = (kFilterD - 1 - depth) * kWeightBlock;
#pragma unroll 8
    for (int k = kTogether == 1 ? 0 : (int)threadIdx.x / kTaps; k < kChannels; k += kTogether)
      put_weight(prepared, at.chunk, row + k, at.element, weight_at(a, k, c, position_at(depth, h, w)));
  }
}

// Adds the products of one plane to a warpgroup's sums, which begin at 0 where they are `fresh`. `rows`,
// `weights` and `zeros` are places in shared memory.
__device__ inline void multiply(unsigned int rows, unsigned int weights, unsigned int zeros, int rotation,
                                bool fresh, float (&sums)[kSums]) {
  auto step = [&](int k, int part_of_rows, int part_of_weights) {
    const unsigned int from = rows + part_of_rows * kStageRows + chunk_offset(2 * k);
    const unsigned int next =
        2 * k + 1 < kChunks ? chunk_offset(2 * k + 1) - chunk_offset(2 * k) : zeros - from;
    warpgroup::multiply(sums, matrix_at(from, next),
                        matrix_at(weights + (part_of_weights * 2 * kSteps + 2 * k) * kWeightRows +
                                      (kFilterD - 1 - rotation) * kWeightBlock,
                                  kWeightRows),
                        fresh ? 0 : 1);
    fresh = false;
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
