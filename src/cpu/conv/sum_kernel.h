// The inner kernel of convolution tiles: for a block of result channels and a piece of the flat grid
//
//   out[k][g] = (first ? bias[k] : out[k][g]) + sum over c, taps of  weights[c][tap][k] * staged[c][offset(tap) + g]
//
// One result element is one lane: its terms are added in the order c, tap by fused multiply-adds where the
// target has them, so its bits do not depend on the vector width or on where pieces begin.
#pragma once

#include <cstdint>

#include "cpu/conv/grid.h"

namespace fuseblock::cpu {

// Positions of a piece: whole register blocks of each shape at 16 lanes (3, 4, 6, 8 vectors), and eight channels
// of them take 12 KB of L1.
inline constexpr std::int64_t kPiecePositions = 384;
inline constexpr int kMaxBlockChannels = 8;

template <typename T>
struct SumTask {
  const T* staged = nullptr;  // of the first channel at the piece's first position
  std::int64_t channel_stride = 0;
  std::int64_t channels = 0;
  const GridTap* taps = nullptr;
  std::int64_t tap_count = 0;
  const T* weights = nullptr;  // [channel][filter tap][block channel]
  std::int64_t filter_taps = 0;
  int block_channels = 0;
  const T* bias = nullptr;  // null: zeros
  bool first = true;
  T* out =
      nullptr;  // [block channel][kPiecePositions]; written up to the next whole vector behind `positions`
  std::int64_t positions = 0;
};

template <typename T>
struct SumKernel {
  int max_block_channels;  // 1 to kMaxBlockChannels
  void (*add)(const SumTask<T>& task);
  // Copies `rows` rows of `columns` elements.
  void (*copy)(const T* from, std::int64_t from_pitch, std::int64_t rows, std::int64_t columns, T* to,
               std::int64_t to_pitch);
};

// For the best target of this machine.
template <typename T>
const SumKernel<T>& sum_kernel();

}  // namespace fuseblock::cpu
