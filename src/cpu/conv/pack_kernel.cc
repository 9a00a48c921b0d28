#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/conv/pack_kernel.cc"  // NOLINT
#include "cpu/conv/targets.h"
// clang-format: the two includes below stay in this order.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>

#include "cpu/conv/pack_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows that are interleaved at a time.
constexpr int kRows = 4;

template <typename T>
void pack_columns(const PackTask<T>& task, std::int64_t first_row, std::int64_t begin, std::int64_t end,
                  T* packed) {
  for (std::int64_t column = begin; column < end; ++column) {
    const T* const from = task.from + column;
    T* const to = packed + column * task.width;
    for (std::int64_t row = first_row; row < task.rows; ++row) to[row] = from[row * task.row_stride];
  }
}

// A vector of columns at a time, all rows of it: what is read of a row are whole cache lines, once.
template <typename T>
void pack(const PackTask<T>& task, T* packed) {
  std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<T> d;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  const hn::CappedTag<T, kRows> quad;
  const std::int64_t stride = task.row_stride;
  const std::int64_t whole_rows = task.rows / kRows * kRows;
  for (; done + kLanes <= task.columns; done += kLanes) {
    for (std::int64_t row = 0; row < whole_rows; row += kRows) {
      HWY_ALIGN T quads[kRows * kLanes];  // [column][row]
      const T* const from = task.from + row * stride + done;
      hn::StoreInterleaved4(hn::LoadU(d, from), hn::LoadU(d, from + stride), hn::LoadU(d, from + 2 * stride),
                            hn::LoadU(d, from + 3 * stride), d, quads);
      T* to = packed + done * task.width + row;
      for (std::int64_t i = 0; i < kLanes; ++i, to += task.width) {
        for (int part = 0; part < kRows; part += static_cast<int>(hn::MaxLanes(quad)))
          hn::StoreU(hn::Load(quad, quads + i * kRows + part), quad, to + part);
      }
    }
    pack_columns(task, whole_rows, done, done + kLanes, packed);
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
