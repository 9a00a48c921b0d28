#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/conv/dot_kernel.cc"  // NOLINT
#include "cpu/conv/targets.h"
// clang-format: the two includes below stay in this order.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>

#include "cpu/conv/dot_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 24 sums of 64 bytes where a vector has 64, 6 of two vectors in 16 registers, 6 of four in 32. The rows of d_y are
// aligned and columns are not, so channels outnumber columns; README.md compares other shapes.
#if HWY_TARGET <= HWY_AVX3
constexpr int kChannels = 6;
constexpr int kColumns = 4;
#elif HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
constexpr int kChannels = 3;
constexpr int kColumns = 2;
#else
constexpr int kChannels = 2;
constexpr int kColumns = 1;
#endif

template <typename T>
using Tag = hn::CappedTag<T, static_cast<std::size_t>(kDotLanes<T>)>;
template <typename T>
inline constexpr int kParts = static_cast<int>(kDotLanes<T>) / static_cast<int>(hn::MaxLanes(Tag<T>()));

// At most 16 bytes of sums: lane i + lane i + half, again and again.
#if HWY_TARGET == HWY_SCALAR
template <class D>
HWY_INLINE hn::Vec<D> narrowed(D /*d*/, hn::Vec<D> v) {
  return v;
}
template <typename T>
using NarrowTag = Tag<T>;
#else
template <typename T>
using NarrowTag = hn::CappedTag<T, 16 / sizeof(T)>;

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<NarrowTag<T>> narrowed(D /*d*/, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) > hn::MaxLanes(NarrowTag<T>())) {
    const hn::Half<D> half;
    return narrowed(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}
#endif

// One vector with the sum of the lanes of each of v[0], v[1], ...: as many as a vector has lanes, 1, 2 or 4.
template <class D>
HWY_INLINE hn::Vec<D> sums_of_lanes(D d, const hn::Vec<D>* v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) == 4) {
    const auto a = hn::Add(hn::ConcatLowerLower(d, v[1], v[0]), hn::ConcatUpperUpper(d, v[1], v[0]));
    const auto b = hn::Add(hn::ConcatLowerLower(d, v[3], v[2]), hn::ConcatUpperUpper(d, v[3], v[2]));
    return hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
  } else {
    return hn::Add(hn::ConcatLowerLower(d, v[1], v[0]), hn::ConcatUpperUpper(d, v[1], v[0]));
  }
#else
  static_cast<void>(d);
  return v[0];
#endif
}

template <typename T, int channels, int columns>
void dot_block(const DotTask<T>& task) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  constexpr int kPartCount = kParts<T>;
  constexpr int kPartLanes = static_cast<int>(kDotLanes<T>) / kPartCount;
  V sum[channels * columns][kPartCount];
  FUSEBLOCK_UNROLL
  for (int i = 0; i < channels * columns; ++i) {
    FUSEBLOCK_UNROLL
    for (int p = 0; p < kPartCount; ++p) sum[i][p] = hn::Zero(d);
  }
  for (const DotRun* run = task.runs; run != task.runs + task.run_count; ++run) {
    const T* d_y[channels];
    FUSEBLOCK_UNROLL
    for (int k = 0; k < channels; ++k) d_y[k] = task.d_y + k * task.d_y_pitch + run->d_y;
    const T* source[columns];
    FUSEBLOCK_UNROLL
    for (int j = 0; j < columns; ++j) source[j] = task.staged + task.columns[j] + run->staged;
    for (std::int64_t i = 0; i < run->positions; i += kDotLanes<T>) {
      FUSEBLOCK_UNROLL
      for (int p = 0; p < kPartCount; ++p) {
        V y[channels];
        FUSEBLOCK_UNROLL
        for (int k = 0; k < channels; ++k) y[k] = hn::LoadU(d, d_y[k] + i + p * kPartLanes);
        FUSEBLOCK_UNROLL
        for (int j = 0; j < columns; ++j) {
          const V x = hn::LoadU(d, source[j] + i + p * kPartLanes);
          FUSEBLOCK_UNROLL
          for (int k = 0; k < channels; ++k)
            sum[k * columns + j][p] = hn::MulAdd(y[k], x, sum[k * columns + j][p]);
        }
      }
    }
  }
  // The lanes of each sum, several sums at once.
  const NarrowTag<T> narrow;
  constexpr int kAtOnce = static_cast<int>(hn::MaxLanes(NarrowTag<T>()));
  constexpr int kSums = channels * columns;
  FUSEBLOCK_UNROLL
  for (int first = 0; first < kSums; first += kAtOnce) {
    hn::Vec<NarrowTag<T>> v[kAtOnce];
    FUSEBLOCK_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      V* const all = sum[std::min(first + i, kSums - 1)];
      FUSEBLOCK_UNROLL
      for (int half = kPartCount / 2; half > 0; half /= 2) {
        FUSEBLOCK_UNROLL
        for (int p = 0; p < half; ++p) all[p] = hn::Add(all[p], all[p + half]);
      }
      v[i] = narrowed(d, all[0]);
    }
    hn::StoreU(sums_of_lanes(narrow, v), narrow, task.sums + first);
  }
}

template <typename T, int channels, int columns>
void dot_columns(const DotTask<T>& task) {
  if (task.column_count == columns) return dot_block<T, channels, columns>(task);
  if constexpr (columns > 1) dot_columns<T, channels, columns - 1>(task);
}

template <typename T, int channels>
void dot_channels(const DotTask<T>& task) {
  if (task.channel_count == channels) return dot_columns<T, channels, kColumns>(task);
  if constexpr (channels > 1) dot_channels<T, channels - 1>(task);
}

template <typename T>
bool all_finite(const T* values, std::int64_t count) {
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // They stay zero: infinities and NaN times zero are NaN. Four of them hide the latency of a multiply-add.
  constexpr int kChains = 4;
  hn::Vec<decltype(d)> zeros[kChains];
  for (auto& zero : zeros) zero = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kChains * lanes <= count; i += kChains * lanes) {
    FUSEBLOCK_UNROLL
    for (int j = 0; j < kChains; ++j)
      zeros[j] = hn::MulAdd(hn::LoadU(d, values + i + j * lanes), hn::Zero(d), zeros[j]);
  }
  const auto all = hn::Add(hn::Add(zeros[0], zeros[1]), hn::Add(zeros[2], zeros[3]));
  T rest = hn::GetLane(hn::SumOfLanes(d, all));
  for (; i < count; ++i) rest += values[i] * T(0);
  return rest == T(0);
}

const DotKernel<float>* dot_kernel_f32();
const DotKernel<double>* dot_kernel_f64();

const DotKernel<float>* dot_kernel_f32() {
  static constexpr DotKernel<float> kKernel = {kChannels, kColumns, dot_channels<float, kChannels>,
                                               all_finite<float>};
  return &kKernel;
}

const DotKernel<double>* dot_kernel_f64() {
  static constexpr DotKernel<double> kKernel = {kChannels, kColumns, dot_channels<double, kChannels>,
                                                all_finite<double>};
  return &kKernel;
}

}  // namespace HWY_NAMESPACE
}  // namespace fuseblock::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fuseblock::cpu {
HWY_EXPORT(dot_kernel_f32);
HWY_EXPORT(dot_kernel_f64);

template <>
const DotKernel<float>& dot_kernel<float>() {
  return *HWY_DYNAMIC_DISPATCH(dot_kernel_f32)();
}

template <>
const DotKernel<double>& dot_kernel<double>() {
  return *HWY_DYNAMIC_DISPATCH(dot_kernel_f64)();
}

}  // namespace fuseblock::cpu
#endif
