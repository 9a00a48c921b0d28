#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/conv/outer_kernel.cc"  // NOLINT
#include "cpu/conv/targets.h"
// clang-format: the two includes below stay in this order.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <type_traits>

#include "cpu/conv/outer_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of sums; d_y at as many positions as taps and one element of x fill the rest of the registers.
#if HWY_TARGET <= HWY_AVX3
constexpr int kSumVectors = 24;
constexpr int kMaxGroups = 2;
constexpr int kMaxTaps = 4;
#elif HWY_ARCH_ARM_A64
constexpr int kSumVectors = 20;
constexpr int kMaxGroups = 1;
constexpr int kMaxTaps = 1;
#else
constexpr int kSumVectors = 12;
constexpr int kMaxGroups = 1;
constexpr int kMaxTaps = 1;
#endif

template <typename T>
using Tag = hn::CappedTag<T, kOuterChannels>;
template <typename T>
using HalfTag = hn::CappedTag<T, kOuterChannels / 2>;
template <typename T>
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag<T>()));
template <typename T>
inline constexpr int kGroupVectors = kOuterChannels / kLanes<T>;
// Whether half of a group is half a vector. On processors whose vectors of 64 bytes go through units of 32 in two rounds
// it takes half the time of a whole one, on others the same.
template <typename T, int halves>
inline constexpr bool kHasNarrow = halves % 2 == 1 && kGroupVectors<T> == 1;
// Whole vectors of so many halves of a group.
template <typename T, int halves>
inline constexpr int kWholeVectors = halves * kGroupVectors<T> / 2;

template <typename T, int halves, int taps>
constexpr int most_columns() {
  constexpr int kVectors = kWholeVectors<T, halves> + (kHasNarrow<T, halves> ? 1 : 0);
  return std::clamp(kSumVectors / (taps * kVectors), 1, kMaxOuterColumns);
}

// d_y at a position, or the sums of a column and a tap, of so many halves of a group of channels.
template <typename T, int halves>
struct Channels {
  using Narrow = std::conditional_t<kHasNarrow<T, halves>, HalfTag<T>, Tag<T>>;
  static constexpr int kWhole = kWholeVectors<T, halves>;
  static constexpr int kNarrow = kHasNarrow<T, halves> ? 1 : 0;

  // Arrays of at least one element, as C++ has no others.
  hn::Vec<Tag<T>> whole[kWhole > 0 ? kWhole : 1];
  hn::Vec<Narrow> narrow[1];
};

template <typename T, int halves>
HWY_INLINE void clear(Channels<T, halves>& to) {
  using C = Channels<T, halves>;
  FUSEBLOCK_UNROLL
  for (int v = 0; v < C::kWhole; ++v) to.whole[v] = hn::Zero(Tag<T>());
  if constexpr (C::kNarrow > 0) to.narrow[0] = hn::Zero(HalfTag<T>());
}

template <typename T, int halves>
HWY_INLINE void load(const T* from, std::int64_t group_pitch, Channels<T, halves>& to) {
  using C = Channels<T, halves>;
  FUSEBLOCK_UNROLL
  for (int v = 0; v < C::kWhole; ++v)
    to.whole[v] =
        hn::LoadU(Tag<T>(), from + v / kGroupVectors<T> * group_pitch + v % kGroupVectors<T> * kLanes<T>);
  if constexpr (C::kNarrow > 0) to.narrow[0] = hn::LoadU(HalfTag<T>(), from + C::kWhole * group_pitch);
}

template <typename T, int halves>
HWY_INLINE void add_product(hn::Vec<Tag<T>> x, const Channels<T, halves>& y, Channels<T, halves>& sum) {
  using C = Channels<T, halves>;
  FUSEBLOCK_UNROLL
  for (int v = 0; v < C::kWhole; ++v) sum.whole[v] = hn::MulAdd(x, y.whole[v], sum.whole[v]);
  if constexpr (C::kNarrow > 0)
    sum.narrow[0] = hn::MulAdd(hn::LowerHalf(HalfTag<T>(), x), y.narrow[0], sum.narrow[0]);
}

template <typename D, typename T>
HWY_INLINE void store_or_add(D d, hn::Vec<D> sum, bool first, T* to) {
  hn::StoreU(first ? sum : hn::Add(hn::LoadU(d, to), sum), d, to);
}

template <typename T, int halves>
HWY_INLINE void store(const Channels<T, halves>& sum, bool first, T* to) {
  using C = Channels<T, halves>;
  FUSEBLOCK_UNROLL
  for (int v = 0; v < C::kWhole; ++v) store_or_add(Tag<T>(), sum.whole[v], first, to + v * kLanes<T>);
  if constexpr (C::kNarrow > 0) store_or_add(HalfTag<T>(), sum.narrow[0], first, to + C::kWhole * kLanes<T>);
}

template <typename T, int halves, int taps, int columns>
void add_block(const OuterTask<T>& task) {
  Channels<T, halves> sum[columns][taps];
  FUSEBLOCK_UNROLL
  for (int j = 0; j < columns; ++j) {
    FUSEBLOCK_UNROLL
    for (int tap = 0; tap < taps; ++tap) clear<T, halves>(sum[j][tap]);
  }
  const std::int64_t step = task.position_step * kOuterChannels;
  for (const OuterRow* row = task.rows; row != task.rows + task.row_count; ++row) {
    const T* d_y = task.d_y + row->d_y * kOuterChannels + row->begin * step;
    const T* source = task.staged + row->staged + row->begin;
    // d_y at the last `taps` positions, the place of position begin + i being i % taps.
    Channels<T, halves> y[taps];
    const auto load_position = [&](std::int64_t position, int place) HWY_ATTR {
      load<T, halves>(d_y + position * step, task.group_pitch, y[place]);
    };
    // The element of step p with the taps from `from` on and before `to`: those whose positions are of the row.
    const auto multiply = [&](int p, int from, int to) HWY_ATTR {
      FUSEBLOCK_UNROLL
      for (int j = 0; j < columns; ++j) {
        const auto x = hn::Set(Tag<T>(), source[task.columns[j] + p]);
        FUSEBLOCK_UNROLL
        for (int tap = 0; tap < taps; ++tap) {
          if (tap >= from && tap < to) add_product<T, halves>(x, y[(p - tap + taps) % taps], sum[j][tap]);
        }
      }
    };
    const std::int64_t whole_end = std::min(row->end, row->positions);
    std::int64_t i = row->begin;
    if (i == 0 && taps > 1 && taps <= whole_end) {
      FUSEBLOCK_UNROLL
      for (int p = 0; p < taps; ++p) {
        load_position(p, p);
        multiply(p, 0, p + 1);
      }
      i += taps;
      d_y += taps * step;
      source += taps;
    } else {
      FUSEBLOCK_UNROLL
      for (int tap = 1; tap < taps; ++tap) {
        if (tap <= i && i - tap < row->positions)
          load_position(-tap, taps - tap);
        else
          clear<T, halves>(y[taps - tap]);
      }
    }
    for (; i + taps <= whole_end; i += taps) {
      FUSEBLOCK_UNROLL
      for (int p = 0; p < taps; ++p) {
        load_position(p, p);
        multiply(p, 0, taps);
      }
      d_y += taps * step;
      source += taps;
    }
    // With one tap there are no steps left.
    for (; taps > 1 && i < row->end; i += taps) {
      FUSEBLOCK_UNROLL
      for (int p = 0; p < taps; ++p) {
        if (i + p >= row->end) break;
        if (i + p < row->positions)
          load_position(p, p);
        else
          clear<T, halves>(y[p]);
        multiply(p, static_cast<int>(std::max<std::int64_t>(i + p - row->positions + 1, 0)), taps);
      }
      d_y += taps * step;
      source += taps;
    }
  }
  constexpr int kGroups = (halves + 1) / 2;
  T* to = task.sums;
  FUSEBLOCK_UNROLL
  for (int j = 0; j < columns; ++j) {
    FUSEBLOCK_UNROLL
    for (int tap = 0; tap < taps; ++tap, to += kGroups * kOuterChannels)
      store<T, halves>(sum[j][tap], task.first, to);
  }
}

// A whole block, one without its last column, or half of one where that has the task's columns.
template <typename T, int halves, int taps>
void add_columns(const OuterTask<T>& task) {
  constexpr int kColumns = most_columns<T, halves, taps>();
  constexpr int kHalf = (kColumns + 1) / 2;
  if (task.column_count <= kHalf) return add_block<T, halves, taps, kHalf>(task);
  if constexpr (kColumns - 1 > kHalf) {
    if (task.column_count < kColumns) return add_block<T, halves, taps, kColumns - 1>(task);
  }
  add_block<T, halves, taps, kColumns>(task);
}

template <typename T, int halves, int taps>
void add_taps(const OuterTask<T>& task) {
  if (task.taps == taps) return add_columns<T, halves, taps>(task);
  if constexpr (taps > 1) add_taps<T, halves, taps - 1>(task);
}

template <typename T, int halves>
void add_halves(const OuterTask<T>& task) {
  if (task.halves == halves) return add_taps<T, halves, kMaxTaps>(task);
  if constexpr (halves > 1) add_halves<T, halves - 1>(task);
}

template <typename T>
void add(const OuterTask<T>& task) {
  add_halves<T, 2 * kMaxGroups>(task);
}

template <typename T>
void add_to(const T* from, std::int64_t channels, double* to) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<T, decltype(d)> narrow;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t k = 0;
  for (; k + lanes <= channels; k += lanes) {
    const auto sums = hn::LoadU(narrow, from + k);
    if constexpr (std::is_same_v<T, double>)
      hn::StoreU(hn::Add(hn::LoadU(d, to + k), sums), d, to + k);
    else
      hn::StoreU(hn::Add(hn::LoadU(d, to + k), hn::PromoteTo(d, sums)), d, to + k);
  }
  for (; k < channels; ++k) to[k] += static_cast<double>(from[k]);
}

// Interleaving rows by fours twice makes a position's sixteen channels neighbours: first {0, 4, 8, 12}, {1, 5, 9, 13}
// and so on, then these four.
template <typename T>
void transpose(const T* from, std::int64_t pitch, std::int64_t channels, std::int64_t positions, T* to) {
  std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<T> d;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<T>()));
  constexpr int kRows = 4;
  const auto load = [&](std::int64_t channel) HWY_ATTR {
    return channel < channels ? hn::LoadU(d, from + channel * pitch + done) : hn::Zero(d);
  };
  for (; done + kLanes <= positions; done += kLanes) {
    HWY_ALIGN T quarter[kRows][kRows * kLanes];
    for (int q = 0; q < kRows; ++q)
      hn::StoreInterleaved4(load(q), load(kRows + q), load(2 * kRows + q), load(3 * kRows + q), d,
                            quarter[q]);
    for (int part = 0; part < kRows; ++part)
      hn::StoreInterleaved4(hn::Load(d, quarter[0] + part * kLanes), hn::Load(d, quarter[1] + part * kLanes),
                            hn::Load(d, quarter[2] + part * kLanes), hn::Load(d, quarter[3] + part * kLanes),
                            d, to + done * kOuterChannels + part * kRows * kLanes);
  }
#endif
  for (; done < positions; ++done)
    for (std::int64_t channel = 0; channel < kOuterChannels; ++channel)
      to[done * kOuterChannels + channel] = channel < channels ? from[channel * pitch + done] : T(0);
}

const OuterKernel<float>* outer_kernel_f32();
const OuterKernel<double>* outer_kernel_f64();

template <typename T, int halves, int taps>
constexpr void set_columns(OuterKernel<T>& kernel) {
  kernel.max_columns[halves][taps] = most_columns<T, halves, taps>();
  if constexpr (taps > 1)
    set_columns<T, halves, taps - 1>(kernel);
  else if constexpr (halves > 1)
    set_columns<T, halves - 1, kMaxTaps>(kernel);
}

template <typename T>
constexpr OuterKernel<T> make_kernel() {
  OuterKernel<T> kernel = {kMaxGroups, kMaxTaps, {}, add<T>, add_to<T>, transpose<T>};
  set_columns<T, 2 * kMaxGroups, kMaxTaps>(kernel);
  return kernel;
}

const OuterKernel<float>* outer_kernel_f32() {
  static constexpr OuterKernel<float> kKernel = make_kernel<float>();
  return &kKernel;
}

const OuterKernel<double>* outer_kernel_f64() {
  static constexpr OuterKernel<double> kKernel = make_kernel<double>();
  return &kKernel;
}

}  // namespace HWY_NAMESPACE
}  // namespace fuseblock::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fuseblock::cpu {
HWY_EXPORT(outer_kernel_f32);
HWY_EXPORT(outer_kernel_f64);

template <>
const OuterKernel<float>& outer_kernel<float>() {
  return *HWY_DYNAMIC_DISPATCH(outer_kernel_f32)();
}

template <>
const OuterKernel<double>& outer_kernel<double>() {
  return *HWY_DYNAMIC_DISPATCH(outer_kernel_f64)();
}

}  // namespace fuseblock::cpu
#endif
