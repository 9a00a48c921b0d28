// The inner kernel of convolution tiles with many result channels and many terms: for a block of result channels and
// a piece of the flat grid
//
//   sums[g][k] = (first ? bias[k] : sums[g][k]) + sum over c, taps of  weights[c][tap][k] * staged[c][offset(tap) + g]
//
// Channels lie in the lanes and elements of the source are broadcast, so that no load crosses a cache line; an element
// meets the weights of several neighbouring taps. One result element is one lane: its terms are added in the order c,
// segment, tap by fused multiply-adds where the target has them, so its bits do not depend on the vector width, on where
// pieces begin, or on how a row of taps is cut into segments.
#pragma once

#include <cstdint>

#include "cpu/conv/grid.h"

namespace fuseblock::cpu {

// Vectors of channels that a block has at most.
inline constexpr int kBroadcastVectors = 2;
inline constexpr int kMaxBroadcastChannels = 32;
// Positions of a register block; the last one of a piece may reach behind its end, by less than one block.
inline constexpr int kMaxBroadcastPositions = 12;

// Neighbouring taps of one row that a segment has at most.
inline constexpr int kMaxSegmentTaps = 3;

// Taps of one row that follow each other in the staged row: they share the elements that are broadcast.
struct TapSegment {
  std::int64_t offset = 0;   // of the first, in the staged array; the others are the next elements
  std::int64_t weights = 0;  // the place of its weights in those of a channel
  std::int64_t step = 0;     // from its weights to those of the next
  std::int64_t taps = 0;
  std::int64_t column = 0;  // of its first element in a row, counted from that of the first tap of the row
};

// Where a staged array has zeros that pad rows: with them nothing is multiplied.
struct PaddedColumns {
  std::int64_t pitch = 0;  // from a row to the next; 0: nothing is known of zeros
  std::int64_t zeros = 0;  // how many follow each other once in a pitch
  std::int64_t first = 0;  // the first of them, counted from the piece's first position
  std::int64_t reach = 0;  // the largest column of a tap
};
// Elements that a block's positions meet at most where zeros are known: a bit for each.
inline constexpr int kMaxMaskedElements = 64;

// What `transpose` reads and writes at a time.
inline constexpr int kTransposedPositions = 16;

template <typename T>
struct BroadcastTask {
  const T* staged = nullptr;  // of the first channel at the piece's first position
  std::int64_t channel_stride = 0;
  std::int64_t channels = 0;
  const TapSegment* segments = nullptr;
  std::int64_t segment_count = 0;
  PaddedColumns padded;
  // [channel][filter tap][kBroadcastVectors][lane], zeros behind the last channel
  const T* weights = nullptr;
  std::int64_t filter_taps = 0;
  int vectors = 0;          // of channels that are computed
  const T* bias = nullptr;  // null: zeros
  int bias_channels = 0;
  bool first = true;
  // [position][kBroadcastVectors][lane]; written for up to kMaxBroadcastPositions - 1 more of them
  T* sums = nullptr;
  std::int64_t positions = 0;
};

template <typename T>
struct BroadcastKernel {
  int lanes;
  int max_taps;  // of a segment
  void (*add)(const BroadcastTask<T>& task);
  // to[channel * pitch + position] = from[position][channel], for all channels of a block and a multiple of
  // kTransposedPositions, to which `positions` is rounded up.
  void (*transpose)(const T* from, std::int64_t positions, T* to, std::int64_t pitch);
};

// For the best target of this machine.
template <typename T>
const BroadcastKernel<T>& broadcast_kernel();

}  // namespace fuseblock::cpu
