#include "cpu/vector/reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "cpu/vector/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vector/reduce.cc"  // NOLINT(readability-identifier-naming): Highway's name
#include "hwy/foreach_target.h"                    // IWYU pragma: keep
#include "hwy/highway.h"

#include "cpu/vector/functions-inl.h"
#include "cpu/vector/lanes-inl.h"

#ifndef FUSEBLOCK_CPU_VECTOR_REDUCE_ONCE
#define FUSEBLOCK_CPU_VECTOR_REDUCE_ONCE

namespace fuseblock::cpu {
namespace {

template <class T>
constexpr std::size_t kPartials = 256 / sizeof(T);
template <class T>
constexpr std::size_t kBlock = 16 * kPartials<T>;

// The distances from a number, summed.
struct Distances {
  double sum;
  double sum_of_squares;
};

// One target's loops for T.
template <class T>
struct Loops {
  double (*sum)(const T* x, std::size_t count);
  double (*sum_exp)(const T* x, T shift, std::size_t count);
  Distances (*distances)(const T* x, T from, std::size_t count);
  T (*largest)(const T* x, std::size_t count);
  T (*smallest)(const T* x, std::size_t count);
  void (*add_row)(T* total, const T* row, std::size_t count);
  void (*add_exp_row)(T* total, const T* row, const T* top, std::size_t count);
  void (*maximum_row)(T* total, const T* row, std::size_t count);
  void (*minimum_row)(T* total, const T* row, std::size_t count);
  // mean and m2 become those of both sides together. `share` is the other side's share of all samples, `weight` the
  // product of both numbers of samples over their sum. A null `other_m2` stands for zeros.
  void (*merge)(T* mean, T* m2, const T* other_mean, const T* other_m2, T share, T weight, std::size_t count);
};

}  // namespace
}  // namespace fuseblock::cpu

#endif

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu::HWY_NAMESPACE {
namespace {

// The lanes of v combined: the upper half with the lower until one is left.
template <class D, class Combine>
HWY_INLINE hn::TFromD<D> combine_lanes(D d, hn::Vec<D> v, Combine combine) {
  (void)d;
  (void)combine;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return combine_lanes(half, combine(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), combine);
  }
#endif
  return hn::GetLane(v);
}

template <class D, class Combine>
HWY_INLINE hn::TFromD<D> combine_by_halves(D d, hn::Vec<D>* partials, Combine combine) {
  constexpr std::size_t kVectors = kPartials<hn::TFromD<D>> / hn::MaxLanes(D());
  for (std::size_t half = kVectors / 2; half > 0; half /= 2)
    for (std::size_t v = 0; v < half; ++v) partials[v] = combine(partials[v], partials[v + half]);
  return combine_lanes(d, partials[0], combine);
}

// The sums of the vectors that terms(x) yields for each vector of the block, in the order reduce.h tells.
template <std::size_t kSums, class T, class Terms>
HWY_INLINE std::array<T, kSums> sums_of_block(const T* x, std::size_t count, Terms terms) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kVectors = kPartials<T> / kLanes;
  V partials[kSums][kVectors];
  for (std::size_t s = 0; s < kSums; ++s)
    for (std::size_t v = 0; v < kVectors; ++v) partials[s][v] = hn::Zero(d);
  std::size_t i = 0;
  for (; i + kPartials<T> <= count; i += kPartials<T>) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::array<V, kSums> term = terms(d, hn::LoadU(d, x + i + v * kLanes));
      for (std::size_t s = 0; s < kSums; ++s) partials[s][v] = hn::Add(partials[s][v], term[s]);
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v, i += kLanes) {
    if (i >= count) break;
    const std::size_t rest = std::min(kLanes, count - i);
    const std::array<V, kSums> term =
        terms(d, rest == kLanes ? hn::LoadU(d, x + i) : load_first(d, x + i, rest));
    const auto is_element = hn::FirstN(d, rest);
    for (std::size_t s = 0; s < kSums; ++s)
      partials[s][v] = hn::Add(partials[s][v], hn::IfThenElseZero(is_element, term[s]));
  }
  std::array<T, kSums> sums;
  for (std::size_t s = 0; s < kSums; ++s)
    sums[s] = combine_by_halves(d, partials[s], [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
  return sums;
}

template <std::size_t kSums, class T, class Terms>
HWY_INLINE std::array<double, kSums> sums_of(const T* x, std::size_t count, Terms terms) {
  std::array<double, kSums> totals = {};
  for (std::size_t begin = 0; begin < count; begin += kBlock<T>) {
    const std::array<T, kSums> sums =
        sums_of_block<kSums>(x + begin, std::min(kBlock<T>, count - begin), terms);
    for (std::size_t s = 0; s < kSums; ++s) totals[s] += static_cast<double>(sums[s]);
  }
  return totals;
}

template <class T>
double sum_any(const T* x, std::size_t count) {
  return sums_of<1>(x, count, [](auto, auto v) HWY_ATTR { return std::array{v}; })[0];
}

template <class T>
double sum_exp_any(const T* x, T shift, std::size_t count) {
  return sums_of<1>(x, count, [shift](auto d, auto v) HWY_ATTR {
    return std::array{exp(d, hn::Sub(v, hn::Set(d, shift)))};
  })[0];
}

template <class T>
Distances distances_any(const T* x, T from, std::size_t count) {
  const std::array<double, 2> sums = sums_of<2>(x, count, [from](auto d, auto v) HWY_ATTR {
    const auto distance = hn::Sub(v, hn::Set(d, from));
    return std::array{distance, hn::Mul(distance, distance)};
  });
  return {sums[0], sums[1]};
}

// a, or b where it goes before a or is NaN.
template <class V>
HWY_INLINE V larger(V a, V b) {
  return hn::IfThenElse(hn::IsNaN(b), b, hn::IfThenElse(hn::Gt(b, a), b, a));
}

template <class V>
HWY_INLINE V smaller(V a, V b) {
  return hn::IfThenElse(hn::IsNaN(b), b, hn::IfThenElse(hn::Lt(b, a), b, a));
}

// The extreme element by `combine`; `neutral` for an empty array.
template <class T, class Combine>
HWY_INLINE T extreme_any(const T* x, std::size_t count, T neutral, Combine combine) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::size_t kVectors = kPartials<T> / kLanes;
  hn::Vec<decltype(d)> partials[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) partials[v] = hn::Set(d, neutral);
  std::size_t i = 0;
  for (; i + kPartials<T> <= count; i += kPartials<T>)
    for (std::size_t v = 0; v < kVectors; ++v)
      partials[v] = combine(partials[v], hn::LoadU(d, x + i + v * kLanes));
  for (std::size_t v = 0; v < kVectors; ++v, i += kLanes) {
    if (i >= count) break;
    const std::size_t rest = std::min(kLanes, count - i);
    const auto element = rest == kLanes ? hn::LoadU(d, x + i) : load_first(d, x + i, rest);
    partials[v] = combine(partials[v], hn::IfThenElse(hn::FirstN(d, rest), element, hn::Set(d, neutral)));
  }
  return combine_by_halves(d, partials, combine);
}

// total[i] = combine(total[i], row[i]).
template <class T, class Combine>
HWY_INLINE void combine_row(T* total, const T* row, std::size_t count, Combine combine) {
  const hn::ScalableTag<T> d;
  const std::size_t step = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + step <= count; i += step)
    hn::StoreU(combine(hn::LoadU(d, total + i), hn::LoadU(d, row + i)), d, total + i);
  if (i == count) return;
  const std::size_t rest = count - i;
  store_first(d, combine(load_first(d, total + i, rest), load_first(d, row + i, rest)), total + i, rest);
}

template <class T>
T largest_any(const T* x, std::size_t count) {
  return extreme_any(x, count, -std::numeric_limits<T>::infinity(),
                     [](auto a, auto b) HWY_ATTR { return larger(a, b); });
}

template <class T>
T smallest_any(const T* x, std::size_t count) {
  return extreme_any(x, count, std::numeric_limits<T>::infinity(),
                     [](auto a, auto b) HWY_ATTR { return smaller(a, b); });
}

template <class T>
void add_row_any(T* total, const T* row, std::size_t count) {
  combine_row(total, row, count, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
}

template <class T>
void add_exp_row_any(T* total, const T* row, const T* top, std::size_t count) {
  const hn::ScalableTag<T> d;
  const std::size_t step = hn::Lanes(d);
  const auto term = [d](auto x, auto shift) HWY_ATTR { return exp(d, hn::Sub(x, shift)); };
  std::size_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    const std::size_t j = i + step;
    const auto first = term(hn::LoadU(d, row + i), hn::LoadU(d, top + i));
    const auto second = term(hn::LoadU(d, row + j), hn::LoadU(d, top + j));
    hn::StoreU(hn::Add(hn::LoadU(d, total + i), first), d, total + i);
    hn::StoreU(hn::Add(hn::LoadU(d, total + j), second), d, total + j);
  }
  for (; i + step <= count; i += step)
    hn::StoreU(hn::Add(hn::LoadU(d, total + i), term(hn::LoadU(d, row + i), hn::LoadU(d, top + i))), d,
               total + i);
  const std::size_t rest = count - i;
  if (rest == 0) return;
  const auto last = term(load_first(d, row + i, rest), load_first(d, top + i, rest));
  store_first(d, hn::Add(load_first(d, total + i, rest), last), total + i, rest);
}

template <class T>
void maximum_row_any(T* total, const T* row, std::size_t count) {
  combine_row(total, row, count, [](auto a, auto b) HWY_ATTR { return larger(a, b); });
}

template <class T>
void minimum_row_any(T* total, const T* row, std::size_t count) {
  combine_row(total, row, count, [](auto a, auto b) HWY_ATTR { return smaller(a, b); });
}

template <class T>
void merge_any(T* mean, T* m2, const T* other_mean, const T* other_m2, T share, T weight, std::size_t count) {
  const hn::ScalableTag<T> d;
  const std::size_t step = hn::Lanes(d);
  const auto merge = [=](auto a, auto a2, auto b, auto b2, auto store) HWY_ATTR {
    const auto delta = hn::Sub(b, a);
    const auto between = hn::Mul(hn::Mul(delta, delta), hn::Set(d, weight));
    store(hn::Add(a, hn::Mul(delta, hn::Set(d, share))), hn::Add(hn::Add(a2, b2), between));
  };
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    const auto b2 = other_m2 == nullptr ? hn::Zero(d) : hn::LoadU(d, other_m2 + i);
    merge(hn::LoadU(d, mean + i), hn::LoadU(d, m2 + i), hn::LoadU(d, other_mean + i), b2,
          [=](auto new_mean, auto new_m2) HWY_ATTR {
            hn::StoreU(new_mean, d, mean + i);
            hn::StoreU(new_m2, d, m2 + i);
          });
  }
  if (i == count) return;
  const std::size_t rest = count - i;
  const auto b2 = other_m2 == nullptr ? hn::Zero(d) : load_first(d, other_m2 + i, rest);
  merge(load_first(d, mean + i, rest), load_first(d, m2 + i, rest), load_first(d, other_mean + i, rest), b2,
        [=](auto new_mean, auto new_m2) HWY_ATTR {
          store_first(d, new_mean, mean + i, rest);
          store_first(d, new_m2, m2 + i, rest);
        });
}

template <class T>
constexpr Loops<T> kLoops = {&sum_any<T>,         &sum_exp_any<T>, &distances_any<T>,   &largest_any<T>,
                             &smallest_any<T>,    &add_row_any<T>, &add_exp_row_any<T>, &maximum_row_any<T>,
                             &minimum_row_any<T>, &merge_any<T>};

const Loops<float>& loops_f32() { return kLoops<float>; }
const Loops<double>& loops_f64() { return kLoops<double>; }

}  // namespace
}  // namespace fuseblock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace fuseblock::cpu {
namespace {

HWY_EXPORT(loops_f32);
HWY_EXPORT(loops_f64);

// The loops of the machine's best target.
template <class T>
const Loops<T>& loops() {
  if constexpr (std::is_same_v<T, float>)
    return HWY_DYNAMIC_DISPATCH(loops_f32)();
  else
    return HWY_DYNAMIC_DISPATCH(loops_f64)();
}

template <class T>
TileMoments moments_in_double(const T* x, std::size_t count) {
  const auto n = static_cast<double>(count);
  double total = 0;
  for (std::size_t i = 0; i < count; ++i) total += static_cast<double>(x[i]);
  const double mean = total / n;
  TileMoments result = {mean, 0};
  for (std::size_t i = 0; i < count; ++i) {
    const double distance = static_cast<double>(x[i]) - mean;
    result.m2 += distance * distance;
  }
  return result;
}

}  // namespace

template <class T>
double sum(const T* x, std::size_t count) {
  return loops<T>().sum(x, count);
}

template <class T>
T largest(const T* x, std::size_t count) {
  return loops<T>().largest(x, count);
}

template <class T>
T smallest(const T* x, std::size_t count) {
  return loops<T>().smallest(x, count);
}

template <class T>
double sum_exp(const T* x, T shift, std::size_t count) {
  return loops<T>().sum_exp(x, shift, count);
}

template <class T>
TileMoments moments(const T* x, std::size_t count) {
  if (count == 0) return {};
  const auto n = static_cast<double>(count);
  const auto rough = static_cast<T>(sum(x, count) / n);
  const Distances distances = loops<T>().distances(x, rough, count);
  const double correction = distances.sum / n;
  const double m2 = distances.sum_of_squares - distances.sum * correction;
  if (!std::isfinite(m2)) return moments_in_double(x, count);
  return {static_cast<double>(rough) + correction, std::max(m2, 0.0)};
}

template <class T>
TileMoments moments(const T* x, std::size_t count, double near) {
  // The squares of the distances from the mean must be a good part of those from `near`: what is taken away from the
  // latter then costs at most two bits.
  constexpr double kGoodPart = 0.25;
  if (count == 0) return {};
  const auto rough = static_cast<T>(near);
  const Distances distances = loops<T>().distances(x, rough, count);
  const double correction = distances.sum / static_cast<double>(count);
  const double m2 = distances.sum_of_squares - distances.sum * correction;
  if (!(m2 >= kGoodPart * distances.sum_of_squares) || !std::isfinite(m2)) return moments(x, count);
  return {static_cast<double>(rough) + correction, m2};
}

template <class T>
void add_row(T* total, const T* row, std::size_t count) {
  loops<T>().add_row(total, row, count);
}

template <class T>
void add_exp_row(T* total, const T* row, const T* top, std::size_t count) {
  loops<T>().add_exp_row(total, row, top, count);
}

template <class T>
void maximum_row(T* total, const T* row, std::size_t count) {
  loops<T>().maximum_row(total, row, count);
}

template <class T>
void minimum_row(T* total, const T* row, std::size_t count) {
  loops<T>().minimum_row(total, row, count);
}

template <class T>
void moments_row(T* mean, T* m2, const T* row, std::size_t count, std::int64_t samples) {
  if (samples == 1) {
    std::copy_n(row, count, mean);
    std::fill_n(m2, count, T{0});
    return;
  }
  const T share = T{1} / static_cast<T>(samples);
  const T weight = static_cast<T>(samples - 1) / static_cast<T>(samples);
  loops<T>().merge(mean, m2, row, nullptr, share, weight, count);
}

template <class T>
void merge_moments(T* mean, T* m2, std::int64_t samples, const T* other_mean, const T* other_m2,
                   std::int64_t other_samples, std::size_t count) {
  if (other_samples == 0) return;
  if (samples == 0) {
    std::copy_n(other_mean, count, mean);
    std::copy_n(other_m2, count, m2);
    return;
  }
  const double share = static_cast<double>(other_samples) / static_cast<double>(samples + other_samples);
  loops<T>().merge(mean, m2, other_mean, other_m2, static_cast<T>(share),
                   static_cast<T>(static_cast<double>(samples) * share), count);
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define FUSEBLOCK_INSTANTIATE(T)                                          \
  template double sum(const T*, std::size_t);                             \
  template T largest(const T*, std::size_t);                              \
  template T smallest(const T*, std::size_t);                             \
  template double sum_exp(const T*, T, std::size_t);                      \
  template TileMoments moments(const T*, std::size_t);                    \
  template TileMoments moments(const T*, std::size_t, double);            \
  template void add_row(T*, const T*, std::size_t);                       \
  template void add_exp_row(T*, const T*, const T*, std::size_t);         \
  template void maximum_row(T*, const T*, std::size_t);                   \
  template void minimum_row(T*, const T*, std::size_t);                   \
  template void moments_row(T*, T*, const T*, std::size_t, std::int64_t); \
  template void merge_moments(T*, T*, std::int64_t, const T*, const T*, std::int64_t, std::size_t);

FUSEBLOCK_INSTANTIATE(float)
FUSEBLOCK_INSTANTIATE(double)
#undef FUSEBLOCK_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace fuseblock::cpu

#endif  // HWY_ONCE
