// What `conv_wide`, `conv_deep` and `conv_weights` have in common: how channels, input and weights are
// divided.
//
// A group's output channels are taken kBlockChannels at a time, its input channels kChunkChannels, in cells
// of 16 bytes: neighbouring channels of one position, or of one output channel and tap. A step of products is
// two cells deep. Weights are taken in stages: the taps of a part of a filter row, kRowTaps of them, with all
// input channels of a chunk and all output channels of a block. Where a cell is staged as kParts, 2 in the
// strict mode of `conv_deep`, its numbers are the sum of two tf32 numbers each.
//
// Before this stand the constants, Element and device/mma.cuh.

constexpr int kTf32 = 0, kStrict = 1, k16Bits = 2;
constexpr int kCellElements = 16 / (int)sizeof(Element);
constexpr int kChunkCells = 2 * kChunkSteps;  // of a position; a step of products is two deep
constexpr int kChunkChannels = kChunkCells * kCellElements;
constexpr int kChunks = (kGroupIn + kChunkChannels - 1) / kChunkChannels;
constexpr int kRowParts = kFilterW / kRowTaps;
constexpr int kStageSteps = kRowTaps * kChunkSteps;
constexpr int kStageCells = kStageSteps * 2 * kBlockChannels;
constexpr int kStageBytes = kStageCells * 16;
constexpr int kGroupBlocks =
    (kGroupOut + kBlockChannels - 1) / kBlockChannels;  // of output channels, in a group
constexpr int kChannelBlocks = kGroups * kGroupBlocks;

// 16 bytes of shared memory.
struct alignas(16) Cell {
  unsigned int words[4];
};

// The first output channel of a block of them, and how many there are.
__device__ inline int first_channel_of(int block) {
  return block / kGroupBlocks * kGroupOut + block % kGroupBlocks * kBlockChannels;
}
__device__ inline int channels_of(int block) {
  const int rest = kGroupOut - block % kGroupBlocks * kBlockChannels;
  return rest < kBlockChannels ? rest : kBlockChannels;
}

__device__ inline unsigned int bits_of(bf16 x) { return x.bits; }
__device__ inline unsigned int bits_of(f16 x) { return x.bits; }
__device__ inline unsigned int bits_of(float x) { return __float_as_uint(x); }

// The values of a cell, rounded to tf32 in that mode; of two parts the nearest tf32 numbers, or what they
// leave.
__device__ inline Cell packed(const Element (&values)[kCellElements], int part = 0) {
  Cell cell;
  if constexpr (kMode == k16Bits) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      cell.words[i] = bits_of(values[2 * i % kCellElements]) | bits_of(values[(2 * i + 1) % kCellElements])
                                                                   << 16;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) cell.words[i] = bits_of(values[i]);
    if (kMode == kTf32 || kParts > 1)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float x = __uint_as_float(cell.words[i]), rounded = to_tf32(x);
        cell.words[i] = part == 0 ? __float_as_uint(rounded) : rest_of(x, rounded);
      }
  }
  return cell;
}
