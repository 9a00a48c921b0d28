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
inline constexpr int kGroupVectors = kOuterChannels / static_cast<int>(hn::MaxLanes(Tag<T>()));
template <typename T>
constexpr int most_columns(int groups, int taps) {
  if (groups < 1 || groups > kMaxGroups || taps < 1 || taps > kMaxTaps) return 0;
  return std::min(std::max(kSumVectors / (groups * taps * kGroupVectors<T>), 1), kMaxOuterColumns);
}

template <typename T, int groups, int taps, int columns>
void add_block(const OuterTask<T>& task) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag<T>()));
  constexpr int kVectors = groups * kGroupVectors<T>;
  V sum[columns][taps][kVectors];
  FUSEBLOCK_UNROLL
  for (int j = 0; j < columns; ++j) {
    FUSEBLOCK_UNROLL
    for (int tap = 0; tap < taps; ++tap) {
      FUSEBLOCK_UNROLL
      for (int v = 0; v < kVectors; ++v) sum[j][tap][v] = hn::Zero(d);
    }
  }
  const std::int64_t step = task.position_step * kOuterChannels;
  for (const OuterRow* row = task.rows; row != task.rows + task.row_count; ++row) {
    const T* d_y = task.d_y + row->d_y * kOuterChannels + row->begin * step;
    const T* source = task.staged + row->staged + row->begin;
    // d_y at the last `taps` positions, the place of position begin + i being i % taps.
    V y[taps][kVectors];
    const auto load = [&](std::int64_t position, int place) HWY_ATTR {
      FUSEBLOCK_UNROLL
      for (int v = 0; v < kVectors; ++v)
        y[place][v] = hn::LoadU(d, d_y + position * step + v / kGroupVectors<T> * task.group_pitch +
                                       v % kGroupVectors<T> * kLanes);
    };
    const auto clear = [&](int place) HWY_ATTR {
      FUSEBLOCK_UNROLL
      for (int v = 0; v < kVectors; ++v) y[place][v] = hn::Zero(d);
    };
    const auto multiply = [&](int p) HWY_ATTR {
      FUSEBLOCK_UNROLL
      for (int j = 0; j < columns; ++j) {
        const V x = hn::Set(d, source[task.columns[j] + p]);
        FUSEBLOCK_UNROLL
        for (int tap = 0; tap < taps; ++tap) {
          FUSEBLOCK_UNROLL
          for (int v = 0; v < kVectors; ++v)
            sum[j][tap][v] = hn::MulAdd(x, y[(p - tap + taps) % taps][v], sum[j][tap][v]);
        }
      }
    };
    FUSEBLOCK_UNROLL
    for (int tap = 1; tap < taps; ++tap) {
      if (tap <= row->begin && row->begin - tap < row->positions)
        load(-tap, taps - tap);
      else
        clear(taps - tap);
    }
    std::int64_t i = row->begin;
    for (const std::int64_t end = std::min(row->end, row->positions); i + taps <= end; i += taps) {
      FUSEBLOCK_UNROLL
      for (int p = 0; p < taps; ++p) {
        load(p, p);
        multiply(p);
      }
      d_y += taps * step;
      source += taps;
    }
    for (; i < row->end; i += taps) {
      FUSEBLOCK_UNROLL
      for (int p = 0; p < taps; ++p) {
        if (i + p >= row->end) break;
        if (i + p < row->positions)
          load(p, p);
        else
          clear(p);
        multiply(p);
      }
      d_y += taps * step;
      source += taps;
    }
  }
  T* to = task.sums;
  FUSEBLOCK_UNROLL
  for (int j = 0; j < columns; ++j) {
    FUSEBLOCK_UNROLL
    for (int tap = 0; tap < taps; ++tap) {
      FUSEBLOCK_UNROLL
      for (int v = 0; v < kVectors; ++v, to += kLanes)
        hn::StoreU(task.first ? sum[j][tap][v] : hn::Add(hn::LoadU(d, to), sum[j][tap][v]), d, to);
    }
  }
}

// A whole block, or half of one where that has the task's columns.
template <typename T, int groups, int taps>
void add_columns(const OuterTask<T>& task) {
  constexpr int kColumns = most_columns<T>(groups, taps);
  constexpr int kHalf = (kColumns + 1) / 2;
  if (task.column_count <= kHalf) return add_block<T, groups, taps, kHalf>(task);
  add_block<T, groups, taps, kColumns>(task);
}

template <typename T, int groups, int taps>
void add_taps(const OuterTask<T>& task) {
  if (task.taps == taps) return add_columns<T, groups, taps>(task);
  if constexpr (taps > 1) add_taps<T, groups, taps - 1>(task);
}

template <typename T>
void add(const OuterTask<T>& task) {
  if constexpr (kMaxGroups == 2) {
    if (task.groups == 2) return add_taps<T, 2, kMaxTaps>(task);
  }
  add_taps<T, 1, kMaxTaps>(task);
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

template <typename T>
constexpr OuterKernel<T> make_kernel() {
  OuterKernel<T> kernel = {kMaxGroups, kMaxTaps, {}, add<T>, add_to<T>, transpose<T>};
  for (int groups = 0; groups <= kMaxOuterGroups; ++groups)
    for (int taps = 0; taps <= kMaxOuterTaps; ++taps)
      kernel.max_columns[groups][taps] = most_columns<T>(groups, taps);
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
