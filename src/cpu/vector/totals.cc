#include "cpu/vector/totals.h"

#include <type_traits>

#include "cpu/vector/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vector/totals.cc"  // NOLINT(readability-identifier-naming): Highway's name
#include "hwy/foreach_target.h"                    // IWYU pragma: keep
#include "hwy/highway.h"

#include "cpu/vector/functions-inl.h"
#include "cpu/vector/lanes-inl.h"

#ifndef FUSEBLOCK_CPU_VECTOR_TOTALS_ONCE
#define FUSEBLOCK_CPU_VECTOR_TOTALS_ONCE

namespace fuseblock::cpu {
namespace {

// One target's loops for T.
template <class T>
struct TotalLoops {
  void (*set)(double* total, const T* row, std::size_t count);
  void (*add)(double* total, const T* row, std::size_t count);
  void (*maximum)(double* total, const T* row, std::size_t count);
  void (*minimum)(double* total, const T* row, std::size_t count);
  // `share` is the new row's share of all samples, `weight` the earlier rows' share.
  void (*moments)(double* mean, double* m2, const T* row, double share, double weight, std::size_t count);
  void (*exp_sums)(double* top, double* sum, const T* other_top, const T* other_sum, std::size_t count);
};

}  // namespace
}  // namespace fuseblock::cpu

#endif

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu::HWY_NAMESPACE {
namespace {

using DoubleTag = hn::ScalableTag<double>;
using Doubles = hn::Vec<DoubleTag>;
using FloatTag = hn::Rebind<float, DoubleTag>;  // as many floats

HWY_INLINE Doubles load(const double* from, std::size_t count) {
  const DoubleTag d;
  return count == hn::Lanes(d) ? hn::LoadU(d, from) : load_first(d, from, count);
}

HWY_INLINE Doubles load(const float* from, std::size_t count) {
  const FloatTag f;
  return hn::PromoteTo(DoubleTag(), count == hn::Lanes(f) ? hn::LoadU(f, from) : load_first(f, from, count));
}

HWY_INLINE void store(Doubles v, double* to, std::size_t count) {
  const DoubleTag d;
  if (count == hn::Lanes(d))
    hn::StoreU(v, d, to);
  else
    store_first(d, v, to, count);
}

// Calls visit(first element, how many) for each vector; the last may be shorter.
template <class Visit>
HWY_INLINE void for_each_vector(std::size_t count, Visit visit) {
  const std::size_t step = hn::Lanes(DoubleTag());
  std::size_t i = 0;
  for (; i + step <= count; i += step) visit(i, step);
  if (i < count) visit(i, count - i);
}

// total[i] = combine(total[i], row[i]).
template <class T, class Combine>
HWY_INLINE void combine_totals(double* total, const T* row, std::size_t count, Combine combine) {
  for_each_vector(count, [=](std::size_t i, std::size_t lanes) HWY_ATTR {
    store(combine(load(total + i, lanes), load(row + i, lanes)), total + i, lanes);
  });
}

template <class T>
void set_any(double* total, const T* row, std::size_t count) {
  for_each_vector(count, [=](std::size_t i, std::size_t lanes)
                             HWY_ATTR { store(load(row + i, lanes), total + i, lanes); });
}

template <class T>
void add_any(double* total, const T* row, std::size_t count) {
  combine_totals(total, row, count, [](Doubles a, Doubles b) HWY_ATTR { return hn::Add(a, b); });
}

// a, or b where it goes before a or is NaN.
HWY_INLINE Doubles larger(Doubles a, Doubles b) {
  return hn::IfThenElse(hn::IsNaN(b), b, hn::IfThenElse(hn::Gt(b, a), b, a));
}

HWY_INLINE Doubles smaller(Doubles a, Doubles b) {
  return hn::IfThenElse(hn::IsNaN(b), b, hn::IfThenElse(hn::Lt(b, a), b, a));
}

template <class T>
void maximum_any(double* total, const T* row, std::size_t count) {
  combine_totals(total, row, count, [](Doubles a, Doubles b) HWY_ATTR { return larger(a, b); });
}

template <class T>
void minimum_any(double* total, const T* row, std::size_t count) {
  combine_totals(total, row, count, [](Doubles a, Doubles b) HWY_ATTR { return smaller(a, b); });
}

template <class T>
void moments_any(double* mean, double* m2, const T* row, double share, double weight, std::size_t count) {
  const DoubleTag d;
  for_each_vector(count, [=](std::size_t i, std::size_t lanes) HWY_ATTR {
    const Doubles before = load(mean + i, lanes);
    const Doubles distance = hn::Sub(load(row + i, lanes), before);
    const Doubles square = hn::Mul(hn::Mul(distance, distance), hn::Set(d, weight));
    store(hn::Add(before, hn::Mul(distance, hn::Set(d, share))), mean + i, lanes);
    store(hn::Add(load(m2 + i, lanes), square), m2 + i, lanes);
  });
}

// exp in the arithmetic of T.
template <class T>
HWY_INLINE Doubles exp_in(Doubles x) {
  const DoubleTag d;
  if constexpr (std::is_same_v<T, double>) {
    return exp(d, x);
  } else {
    const FloatTag f;
    return hn::PromoteTo(d, exp(f, hn::DemoteTo(f, x)));
  }
}

template <class T>
void exp_sums_any(double* top, double* sum, const T* other_top, const T* other_sum, std::size_t count) {
  const DoubleTag d;
  for_each_vector(count, [=](std::size_t i, std::size_t lanes) HWY_ATTR {
    const Doubles a = load(top + i, lanes);
    const Doubles b = load(other_top + i, lanes);
    const Doubles a_sum = load(sum + i, lanes);
    const Doubles b_sum = load(other_sum + i, lanes);
    const auto first_leads = hn::Ge(a, b);
    // Equal maxima need no factor; that also keeps infinities out of exp(inf - inf).
    const Doubles difference = hn::IfThenElse(first_leads, hn::Sub(b, a), hn::Sub(a, b));
    const Doubles factor = hn::IfThenElse(hn::Eq(a, b), hn::Set(d, 1.0), exp_in<T>(difference));
    const Doubles rest = hn::Mul(hn::IfThenElse(first_leads, b_sum, a_sum), factor);
    const Doubles added = hn::IfThenZeroElse(hn::Eq(factor, hn::Zero(d)), rest);
    store(hn::Add(hn::IfThenElse(first_leads, a_sum, b_sum), added), sum + i, lanes);
    store(larger(a, b), top + i, lanes);
  });
}

template <class T>
constexpr TotalLoops<T> kLoops = {&set_any<T>,     &add_any<T>,     &maximum_any<T>,
                                  &minimum_any<T>, &moments_any<T>, &exp_sums_any<T>};

const TotalLoops<float>& total_loops_f32() { return kLoops<float>; }
const TotalLoops<double>& total_loops_f64() { return kLoops<double>; }

}  // namespace
}  // namespace fuseblock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace fuseblock::cpu {
namespace {

HWY_EXPORT(total_loops_f32);
HWY_EXPORT(total_loops_f64);

// The loops of the machine's best target.
template <class T>
const TotalLoops<T>& loops() {
  if constexpr (std::is_same_v<T, float>)
    return HWY_DYNAMIC_DISPATCH(total_loops_f32)();
  else
    return HWY_DYNAMIC_DISPATCH(total_loops_f64)();
}

}  // namespace

template <class T>
void set_totals(double* total, const T* row, std::size_t count) {
  loops<T>().set(total, row, count);
}

template <class T>
void add_to_totals(double* total, const T* row, std::size_t count) {
  loops<T>().add(total, row, count);
}

template <class T>
void maximum_to_totals(double* total, const T* row, std::size_t count) {
  loops<T>().maximum(total, row, count);
}

template <class T>
void minimum_to_totals(double* total, const T* row, std::size_t count) {
  loops<T>().minimum(total, row, count);
}

template <class T>
void moments_to_totals(double* mean, double* m2, const T* row, std::size_t count, std::int64_t samples) {
  const double share = 1.0 / static_cast<double>(samples);
  const double weight = static_cast<double>(samples - 1) / static_cast<double>(samples);
  loops<T>().moments(mean, m2, row, share, weight, count);
}

template <class T>
void exp_sums_to_totals(double* top, double* sum, const T* other_top, const T* other_sum, std::size_t count) {
  loops<T>().exp_sums(top, sum, other_top, other_sum, count);
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define FUSEBLOCK_INSTANTIATE(T)                                                          \
  template void set_totals(double*, const T*, std::size_t);                               \
  template void add_to_totals(double*, const T*, std::size_t);                            \
  template void maximum_to_totals(double*, const T*, std::size_t);                        \
  template void minimum_to_totals(double*, const T*, std::size_t);                        \
  template void moments_to_totals(double*, double*, const T*, std::size_t, std::int64_t); \
  template void exp_sums_to_totals(double*, double*, const T*, const T*, std::size_t);

FUSEBLOCK_INSTANTIATE(float)
FUSEBLOCK_INSTANTIATE(double)
#undef FUSEBLOCK_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace fuseblock::cpu

#endif  // HWY_ONCE
