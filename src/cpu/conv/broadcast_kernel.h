// The inner kernel of convolution tiles with many result channels and many terms: for a block of result channels and
// a piece of the flat grid
//
//   sums[g][k] = (first ? bias[k] : sums[g][k]) + sum over c, taps of  weights[c][tap][k] * staged[c][offset(tap) + g]
//
// Channels lie in the lanes and elements of the source are broadcast, so that no load crosses a cache line. One result
// element is one lane, and its terms are added in the order c, tap as in sum_kernel.h: both kernels give the same bits.
#pragma once

#include <cstdint>

#include "cpu/conv/grid.h"

namespace fuseblock::cpu {

// Vectors of channels that a block has at most.
inline constexpr int kBroadcastVectors = 2;
inline constexpr int kMaxBroadcastChannels = 32;
// Positions of a register block; the last one of a piece may reach behind its end, by less than one block.
inline constexpr int kMaxBroadcastPositions = 14;

// What `transpose` reads and writes at a time.
inline constexpr int kTransposedPositions = 16;

template <typename T>
struct BroadcastTask {
  const T* staged = nullptr;  // of the first channel at the piece's first position
  std::int64_t channel_stride = 0;
  std::int64_t channels = 0;
  const GridTap* taps = nullptr;  // their place in the filter is that of their weights
  std::int64_t tap_count = 0;
  const T* weights =
      nullptr;  // [channel][filter tap][kBroadcastVectors][lane], zeros behind the last channel
  std::int64_t filter_taps = 0;
  int vectors = 0;          // of channels that are computed
  const T* bias = nullptr;  // null: zeros
  int bias_channels = 0;
  bool first = true;
  T* sums =
      nullptr;  // [position][kBroadcastVectors][lane]; written for up to kMaxBroadcastPositions - 1 more of them
  std::int64_t positions = 0;
};

template <typename T>
struct BroadcastKernel {
  int lanes;
  void (*add)(const BroadcastTask<T>& task);
  // to[channel * pitch + position] = from[position][channel], for all channels of a block and a multiple of
  // kTransposedPositions, to which `positions` is rounded up.
  void (*transpose)(const T* from, std::int64_t positions, T* to, std::int64_t pitch);
};

// For the best target of this machine.
template <typename T>
const BroadcastKernel<T>& broadcast_kernel();

}  // namespace fuseblock::cpu
