#include "cpu/measure_loops.h"

#include <array>
#include <type_traits>

#include "cpu/conv/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/measure_loops.cc"  // NOLINT(readability-identifier-naming): Highway's name
#include "hwy/foreach_target.h"                    // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Enough to hide the latency of two units, few enough for 16 registers.
constexpr std::size_t kChains = 12;

int lanes() { return static_cast<int>(hn::Lanes(hn::ScalableTag<float>())); }

bool fuses() {
#if HWY_NATIVE_FMA
  return true;
#else
  return false;
#endif
}

template <class T>
double multiply_adds_of(std::int64_t rounds) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  V sums[kChains];
  for (std::size_t i = 0; i < kChains; ++i) sums[i] = hn::Set(d, static_cast<T>(i));
  const V factor = hn::Set(d, static_cast<T>(0.5));
  for (std::int64_t round = 0; round < rounds; ++round) {
    FUSEBLOCK_UNROLL
    for (V& sum : sums) sum = hn::MulAdd(sum, factor, factor);
  }
  V total = hn::Zero(d);
  for (const V& sum : sums) total = hn::Add(total, sum);
  volatile T keep = hn::GetLane(total);
  static_cast<void>(keep);
  return static_cast<double>(rounds) * kChains * 2 * static_cast<double>(hn::Lanes(d));
}

double multiply_adds_f32(std::int64_t rounds) { return multiply_adds_of<float>(rounds); }
double multiply_adds_f64(std::int64_t rounds) { return multiply_adds_of<double>(rounds); }

void copy(const float* from, float* to, std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t step = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + step <= count; i += step) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  for (; i < count; ++i) to[i] = from[i];
}

}  // namespace
}  // namespace fuseblock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace fuseblock::cpu {
namespace {

HWY_EXPORT(lanes);
HWY_EXPORT(fuses);
HWY_EXPORT(multiply_adds_f32);
HWY_EXPORT(multiply_adds_f64);
HWY_EXPORT(copy);

}  // namespace

int vector_lanes() { return HWY_DYNAMIC_DISPATCH(lanes)(); }
bool has_fused_multiply_add() { return HWY_DYNAMIC_DISPATCH(fuses)(); }

template <class T>
double multiply_adds(std::int64_t rounds) {
  if constexpr (std::is_same_v<T, float>)
    return HWY_DYNAMIC_DISPATCH(multiply_adds_f32)(rounds);
  else
    return HWY_DYNAMIC_DISPATCH(multiply_adds_f64)(rounds);
}

template double multiply_adds<float>(std::int64_t rounds);
template double multiply_adds<double>(std::int64_t rounds);

void copy_floats(const float* from, float* to, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(copy)(from, to, count);
}

}  // namespace fuseblock::cpu

#endif  // HWY_ONCE
