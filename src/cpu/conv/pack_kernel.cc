#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/conv/pack_kernel.cc"  // NOLINT
#include "cpu/conv/targets.h"
// clang-format: the two includes below stay in this order.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <cstdint>

#include "cpu/conv/pack_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows that are interleaved at a time.
constexpr int kRows = 4;
// Columns of a row that are read at a time: of 32 rows they take 16 KB.
constexpr std::int64_t kColumns = 128;

template <typename T>
void pack_columns(const PackTask<T>& task, std::int64_t first_row, std::int64_t begin, std::int64_t end,
                  T* packed) {
  for (std::int64_t column = begin; column < end; ++column) {
    const T* const from = task.from + column;
    T* const to = packed + column * task.width;
    for (std::int64_t row = first_row; row < task.rows; ++row) to[row] = from[row * task.row_stride];
  }
}

#if HWY_TARGET != HWY_SCALAR
// Four rows at columns [begin, end), a multiple of a vector of them.
template <typename T>
HWY_INLINE void pack_quad(const PackTask<T>& task, std::int64_t row, std::int64_t begin, std::int64_t end,
                          T* packed) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, kRows> part;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  constexpr auto kPart = static_cast<int>(hn::MaxLanes(hn::CappedTag<T, kRows>()));
  const T* rows[kRows];
  FUSEBLOCK_UNROLL
  for (int i = 0; i < kRows; ++i) rows[i] = task.from + (row + i) * task.row_stride;
  for (std::int64_t column = begin; column < end; column += kLanes) {
    HWY_ALIGN T quads[kRows * kLanes];  // [column][row]
    FUSEBLOCK_UNROLL
    for (const T* each : rows) __builtin_prefetch(each + column + kColumns);
    hn::StoreInterleaved4(hn::LoadU(d, rows[0] + column), hn::LoadU(d, rows[1] + column),
                          hn::LoadU(d, rows[2] + column), hn::LoadU(d, rows[3] + column), d, quads);
    T* to = packed + column * task.width + row;
    for (std::int64_t i = 0; i < kLanes; ++i, to += task.width) {
      FUSEBLOCK_UNROLL
      for (int k = 0; k < kRows; k += kPart) hn::StoreU(hn::Load(part, quads + i * kRows + k), part, to + k);
    }
  }
}
#endif

// Some columns of all rows at a time: long enough to be read in runs, few enough for the packed ones to stay in L1.
template <typename T>
void pack(const PackTask<T>& task, T* packed) {
  std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  const std::int64_t whole_rows = task.rows / kRows * kRows;
  const std::int64_t whole_columns = task.columns / kLanes * kLanes;
  while (done < whole_columns) {
    const std::int64_t end = std::min(done + kColumns, whole_columns);
    for (std::int64_t row = 0; row < whole_rows; row += kRows) pack_quad(task, row, done, end, packed);
    pack_columns(task, whole_rows, done, end, packed);
    done = end;
  }
#endif
  pack_columns(task, 0, done, task.columns, packed);
  if (task.rows == task.width) return;
  for (std::int64_t column = 0; column < task.columns; ++column)
    std::fill_n(packed + column * task.width + task.rows, task.width - task.rows, T(0));
}

const PackKernel<float>* pack_kernel_f32();
const PackKernel<double>* pack_kernel_f64();

const PackKernel<float>* pack_kernel_f32() {
  static constexpr PackKernel<float> kKernel = {pack<float>};
  return &kKernel;
}

const PackKernel<double>* pack_kernel_f64() {
  static constexpr PackKernel<double> kKernel = {pack<double>};
  return &kKernel;
}

}  // namespace HWY_NAMESPACE
}  // namespace fuseblock::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fuseblock::cpu {
HWY_EXPORT(pack_kernel_f32);
HWY_EXPORT(pack_kernel_f64);

template <>
const PackKernel<float>& pack_kernel<float>() {
  return *HWY_DYNAMIC_DISPATCH(pack_kernel_f32)();
}

template <>
const PackKernel<double>& pack_kernel<double>() {
  return *HWY_DYNAMIC_DISPATCH(pack_kernel_f64)();
}

}  // namespace fuseblock::cpu
#endif
