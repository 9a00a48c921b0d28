// The inner kernel of the gradient by the weight: for a block of result channels and a block of columns, a column
// being a source channel and a tap,
//
//   sums[k][column] = sum over the runs' positions g of  d_y[k][g] * staged[offset(column) + g]
//
// Positions go round kDotLanes<T> lanes, 64 bytes whatever the vector width; each lane adds its terms in order by
// fused multiply-adds where the target has them, and the lanes are added pairwise. So targets agree bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fuseblock::cpu {

template <typename T>
inline constexpr std::int64_t kDotLanes = 64 / static_cast<std::int64_t>(sizeof(T));
inline constexpr int kMaxDotChannels = 6;
inline constexpr int kMaxDotSums = 24;

struct DotRun {
  std::int64_t d_y = 0;        // of its first position in a channel of d_y
  std::int64_t staged = 0;     // and in a staged channel
  std::int64_t positions = 0;  // a multiple of kDotLanes; d_y is zero behind the real ones
};

template <typename T>
struct DotTask {
  const T* d_y = nullptr;
  std::int64_t d_y_pitch = 0;
  const T* staged = nullptr;
  const std::int64_t* columns = nullptr;  // offsets
  const DotRun* runs = nullptr;
  std::int64_t run_count = 0;
  int channel_count = 0;
  int column_count = 0;
  T* sums = nullptr;  // [channel][column]; up to kMaxDotSums elements are written
};

template <typename T>
struct DotKernel {
  int max_channels;
  int max_columns;
  void (*dot)(const DotTask<T>& task);
  bool (*all_finite)(const T* values, std::int64_t count);
};

// For the best target of this machine.
template <typename T>
const DotKernel<T>& dot_kernel();

}  // namespace fuseblock::cpu
