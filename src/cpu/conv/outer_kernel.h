// The inner kernel of the gradient by the weight where there are many result channels: outer products of a
// position's channels of d_y with a block of columns, a column being a source channel and a few neighbouring taps,
//
//   sums[column][tap][k] += sum over the rows' positions g of  d_y[g][k] * staged[offset(column) + tap + g]
//
// Channels lie in the lanes, kOuterChannels of them a group, [group][position][channel]. An element of x is broadcast
// once and meets d_y at as many positions as there are taps, which stay in registers while the kernel walks along
// the row: few loads, none across a cache line, and no lanes to add up. Each sum adds its terms in the order of the
// positions, by fused multiply-adds where the target has them: targets agree bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fuseblock::cpu {

inline constexpr int kOuterChannels = 16;
inline constexpr int kMaxOuterHalves = 4;
inline constexpr int kMaxOuterTaps = 4;
inline constexpr int kMaxOuterColumns = 12;
inline constexpr int kMaxOuterSums = 24 * kOuterChannels;

// Neighbouring positions of one row. Step i broadcasts the element of x at `staged` + i, which meets d_y at the
// positions i, i - 1 and so on, one for each tap, as far as they are positions of the row.
struct OuterRow {
  std::int64_t d_y = 0;     // the first position's, in the tile
  std::int64_t staged = 0;  // and its place in a staged channel
  std::int64_t positions = 0;
  std::int64_t begin = 0;  // the steps that are taken: the others would meet zeros
  std::int64_t end = 0;
};

template <typename T>
struct OuterTask {
  const T* d_y = nullptr;
  std::int64_t group_pitch = 0;    // elements from one group of channels to the next
  std::int64_t position_step = 1;  // positions of d_y from one element of a row to the next
  // Finite; read up to 2 * kMaxOuterTaps elements behind a row's last position.
  const T* staged = nullptr;
  const std::int64_t* columns = nullptr;  // offsets; kMaxOuterColumns are read
  const OuterRow* rows = nullptr;
  std::int64_t row_count = 0;
  int halves =
      0;  // of groups: where the last one has no more channels than half of it, the rest is not multiplied
  int taps = 0;
  int column_count = 0;
  bool first = false;  // start the sums at zero
  T* sums = nullptr;   // [column][tap][group][channel], kMaxOuterSums elements; those of the rest are not set
};

template <typename T>
struct OuterKernel {
  int max_groups;
  int max_taps;
  // Columns of the largest block, by halves of groups and taps.
  int max_columns[kMaxOuterHalves + 1][kMaxOuterTaps + 1];
  void (*add)(const OuterTask<T>& task);
  // Adds sums of `channels` neighbouring channels to sums in double.
  void (*add_to)(const T* from, std::int64_t channels, double* to);
  // to[position][channel] = from[channel * pitch + position], `channels` <= kOuterChannels of them, zeros behind.
  void (*transpose)(const T* from, std::int64_t pitch, std::int64_t channels, std::int64_t positions, T* to);
};

// For the best target of this machine.
template <typename T>
const OuterKernel<T>& outer_kernel();

}  // namespace fuseblock::cpu
