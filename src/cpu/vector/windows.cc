#include "cpu/vector/windows.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "cpu/vector/targets.h"
#include "fuseblock/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vector/windows.cc"  // NOLINT(readability-identifier-naming): Highway's name
#include "hwy/foreach_target.h"                     // IWYU pragma: keep
#include "hwy/highway.h"

#include "cpu/vector/bf16-inl.h"
#include "cpu/vector/f16-inl.h"
#include "cpu/vector/lanes-inl.h"

#ifndef FUSEBLOCK_CPU_VECTOR_WINDOWS_ONCE
#define FUSEBLOCK_CPU_VECTOR_WINDOWS_ONCE

namespace fuseblock::cpu {
namespace {

// An element's type, and how it lies in memory.
template <DType kDType>
struct Element {
  static constexpr DType kType = kDType;
  using Stored = std::conditional_t<kDType == DType::kF64, double,
                                    std::conditional_t<kDType == DType::kF32, float, std::uint16_t>>;
  using Exact = std::conditional_t<kDType == DType::kF64, double, float>;  // that holds it
};

// How neighbouring windows lie: one behind the other, at every second element, otherwise.
enum class Spacing : std::uint8_t { kDense, kPairs, kApart };

// One target's loops.
struct WindowLoops {
  void (*maxima)(const void* x, DType dtype, const Windows& windows, void* largest);
  void (*places)(const void* x, DType dtype, const Windows& windows, const TapNumbers& numbers,
                 std::int32_t* places);
};

// Those of one target whose results are of type T.
template <class T>
struct SumLoops {
  void (*means)(const void* x, DType dtype, const Windows& windows, double divisor, T* means);
  void (*shares)(const void* x, DType dtype, const Windows& windows, double divisor, T* sums);
  void (*chosen)(const void* x, DType dtype, const Windows& windows, const PlacesBeside& beside,
                 const TapNumbers& numbers, T* sums);
};

// Calls visit(Element<dtype>).
template <class Visit>
void with_element(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::kF64: return visit(Element<DType::kF64>());
    case DType::kF32: return visit(Element<DType::kF32>());
    case DType::kBF16: return visit(Element<DType::kBF16>());
    case DType::kF16: return visit(Element<DType::kF16>());
  }
  throw InternalError("windows: unknown dtype");
}

// Calls visit(the spacing, as a type).
template <class Visit>
void with_spacing(std::int64_t stride, Visit visit) {
  if (stride == 1) return visit(std::integral_constant<Spacing, Spacing::kDense>());
  if (stride == 2) return visit(std::integral_constant<Spacing, Spacing::kPairs>());
  visit(std::integral_constant<Spacing, Spacing::kApart>());
}

}  // namespace
}  // namespace fuseblock::cpu

#endif

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu::HWY_NAMESPACE {
namespace {

using F64 = hn::ScalableTag<double>;

// Elements as they lie in memory as lanes of the arithmetic.
template <class E, class D>
HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<hn::Rebind<typename E::Stored, D>> v) {
  if constexpr (E::kType == DType::kBF16 || E::kType == DType::kF16) {
    const hn::Rebind<float, D> df;
    if constexpr (E::kType == DType::kBF16)
      return widen<Element<DType::kF32>>(d, decode_bf16(df, v));
    else
      return widen<Element<DType::kF32>>(d, decode_f16(df, v));
  } else if constexpr (std::is_same_v<typename E::Stored, hn::TFromD<D>>) {
    return v;
  } else {
    return hn::PromoteTo(d, v);
  }
}

// `count` elements `stride` apart, 0 in the other lanes.
template <class D, class S = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_apart(D d, const S* from, std::int64_t stride, std::size_t count) {
  HWY_ALIGN S lanes[hn::MaxLanes(D())] = {};
  for (std::size_t i = 0; i < count; ++i) lanes[i] = from[static_cast<std::int64_t>(i) * stride];
  return hn::Load(d, lanes);
}

// A whole vector of elements `stride` apart.
template <class D, class S = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> gather(D d, const S* from, std::int64_t stride) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  if constexpr (sizeof(S) >= sizeof(float)) {
    // Offsets are lanes of 32 bits.
    using Offset = hwy::MakeSigned<S>;
    constexpr std::int64_t kFarthest = std::numeric_limits<std::int32_t>::max() / (kLanes * sizeof(S));
    const hn::Rebind<Offset, D> di;
    if (-kFarthest < stride && stride < kFarthest)
      return hn::GatherIndex(d, from, hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<Offset>(stride))));
  }
  return load_apart(d, from, stride, static_cast<std::size_t>(kLanes));
}

// Every second of 2 * count - 1 elements, 0 in the other lanes.
template <class D, class S = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_pairs(D d, const S* from, std::size_t count) {
#if HWY_TARGET == HWY_SCALAR
  return load_apart(d, from, 2, count);
#else
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  const std::size_t read = 2 * count - 1;
  if (read <= kLanes) return hn::ConcatEven(d, hn::Zero(d), load_first(d, from, read));
  return hn::ConcatEven(d, load_first(d, from + kLanes, read - kLanes), hn::LoadU(d, from));
#endif
}

// The elements of the same tap of neighbouring windows: of a whole vector of them that more may follow, or of `count`.
template <Spacing kSpacing, class E, bool kWhole, class D>
HWY_INLINE hn::Vec<D> load_tap(D d, const typename E::Stored* from, std::int64_t stride, std::size_t count) {
  const hn::Rebind<typename E::Stored, D> ds;
  if constexpr (kSpacing == Spacing::kApart) {
    return widen<E>(d, kWhole ? gather(ds, from, stride) : load_apart(ds, from, stride, count));
  } else if constexpr (kSpacing == Spacing::kDense) {
    return widen<E>(d, kWhole ? hn::LoadU(ds, from) : load_first(ds, from, count));
  } else {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kWhole)
      return widen<E>(d, hn::ConcatEven(ds, hn::LoadU(ds, from + hn::MaxLanes(ds)), hn::LoadU(ds, from)));
#endif
    return widen<E>(d, load_pairs(ds, from, count));
  }
}

// Results of `row` from `begin` on: a vector of D's lanes.
struct Part {
  std::int64_t row;
  std::int64_t begin;
  std::size_t count;
};

// Lanes of the arithmetic as those of results.
template <class DTo, class V>
HWY_INLINE hn::Vec<DTo> narrow(DTo to, V v) {
  if constexpr (std::is_same_v<V, hn::Vec<DTo>>) {
    return v;
  } else if constexpr (std::is_same_v<hn::TFromD<DTo>, std::int32_t>) {
    const auto bits = hn::BitCast(hn::Rebind<std::uint64_t, DTo>(), v);
    return hn::BitCast(to, hn::TruncateTo(hn::RebindToUnsigned<DTo>(), bits));
  } else {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    // Highway's own emulation gives the largest number where it should give infinity.
    const hn::Rebind<double, DTo> from;
    HWY_ALIGN double wide[hn::MaxLanes(DTo())];
    HWY_ALIGN float lanes[hn::MaxLanes(DTo())];
    hn::Store(v, from, wide);
    for (std::size_t i = 0; i < hn::MaxLanes(to); ++i) lanes[i] = static_cast<float>(wide[i]);
    return hn::Load(to, lanes);
#else
    return hn::DemoteTo(to, v);
#endif
  }
}

// Writes lanes to every second place, followed by one more.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_pairs(D d, hn::Vec<D> v, T* out) {
  hn::Vec<D> replaced;
  hn::Vec<D> between;
  hn::LoadInterleaved2(d, out, replaced, between);
  hn::StoreInterleaved2(v, between, d, out);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_apart(D d, hn::Vec<D> v, T* out, std::int64_t stride, std::size_t count) {
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  for (std::size_t i = 0; i < count; ++i) out[static_cast<std::int64_t>(i) * stride] = lanes[i];
}

// out = body(whole, part) for vectors of results; `whole` says, as a type, that the vector is full and, where
// windows or results are at every second place, that one more follows: whole vectors can be read and written.
template <Spacing kSpacing, class D, class DOut, class Body>
HWY_INLINE void for_each_vector(D d, const Windows& windows, DOut out_tag, hn::TFromD<DOut>* out, Body body) {
  (void)d;
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  const bool dense = windows.result_stride == 1;
  const std::int64_t whole = kSpacing == Spacing::kPairs || !dense ? windows.count - 1 : windows.count;
  for (std::int64_t row = 0; row < windows.rows; ++row, out += windows.result_row_stride) {
    std::int64_t j = 0;
    for (; j + kLanes <= whole; j += kLanes) {
      const auto result = narrow(out_tag, body(std::true_type(), Part{row, j, kLanes}));
      if (dense)
        hn::StoreU(result, out_tag, out + j);
      else
        store_pairs(out_tag, result, out + 2 * j);
    }
    for (; j < windows.count; j += kLanes) {
      const auto rest = static_cast<std::size_t>(HWY_MIN(windows.count - j, kLanes));
      const auto result = narrow(out_tag, body(std::false_type(), Part{row, j, rest}));
      if (dense)
        store_first(out_tag, result, out + j, rest);
      else
        store_apart(out_tag, result, out + 2 * j, 2, rest);
    }
  }
}

// Calls visit(a, b, c) for each tap.
template <class Visit>
HWY_INLINE void for_each_tap(const Windows& windows, Visit visit) {
  for (std::int64_t a = 0; a < windows.taps[0]; ++a)
    for (std::int64_t b = 0; b < windows.taps[1]; ++b)
      for (std::int64_t c = 0; c < windows.taps[2]; ++c) visit(a, b, c);
}

HWY_INLINE std::int64_t affine(const std::array<std::int64_t, 3>& steps, std::int64_t a, std::int64_t b,
                               std::int64_t c) {
  return a * steps[0] + b * steps[1] + c * steps[2];
}

// Calls visit(vector, number) with the elements of each tap of the windows of a part.
template <Spacing kSpacing, class E, bool kWhole, class D, class Visit>
HWY_INLINE void for_each_load(D d, const typename E::Stored* x, const Windows& windows, const Part& part,
                              const TapNumbers& numbers, Visit visit) {
  const typename E::Stored* from = x + part.row * windows.row_stride + part.begin * windows.stride;
  for_each_tap(windows, [&](std::int64_t a, std::int64_t b, std::int64_t c) HWY_ATTR {
    visit(load_tap<kSpacing, E, kWhole>(d, from + affine(windows.steps, a, b, c), windows.stride, part.count),
          numbers.first + affine(numbers.steps, a, b, c));
  });
}

// Whether v takes the place of the largest element before it.
template <class V>
HWY_INLINE auto takes_place(V v, V largest) {
  return hn::Or(hn::Gt(v, largest), hn::IsNaN(v));
}

template <Spacing kSpacing, class E>
HWY_INLINE void maxima_of(const typename E::Stored* x, const Windows& windows, typename E::Exact* out) {
  const hn::ScalableTag<typename E::Exact> d;
  const auto lowest = hn::Set(d, -std::numeric_limits<typename E::Exact>::infinity());
  for_each_vector<kSpacing>(d, windows, d, out, [&](auto whole, const Part& part) HWY_ATTR {
    auto largest = lowest;
    for_each_load<kSpacing, E, decltype(whole)::value>(
        d, x, windows, part, {}, [&](auto v, std::int64_t) HWY_ATTR {
          largest = hn::IfThenElse(takes_place(v, largest), v, largest);
        });
    return largest;
  });
}

template <Spacing kSpacing, class E>
HWY_INLINE void places_of(const typename E::Stored* x, const Windows& windows, const TapNumbers& numbers,
                          std::int32_t* out) {
  const hn::ScalableTag<typename E::Exact> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::int32_t, decltype(d)> d_out;
  using Number = hn::TFromD<decltype(di)>;
  const bool empty = windows.taps[0] == 0 || windows.taps[1] == 0 || windows.taps[2] == 0;
  // The first tap is chosen where no other is.
  const auto before = hn::Set(di, static_cast<Number>(empty ? -1 : numbers.first));
  const auto lowest = hn::Set(d, -std::numeric_limits<typename E::Exact>::infinity());
  for_each_vector<kSpacing>(d, windows, d_out, out, [&](auto whole, const Part& part) HWY_ATTR {
    auto largest = lowest;
    auto place = before;
    for_each_load<kSpacing, E, decltype(whole)::value>(
        d, x, windows, part, numbers, [&](auto v, std::int64_t number) HWY_ATTR {
          const auto better = takes_place(v, largest);
          largest = hn::IfThenElse(better, v, largest);
          place = hn::IfThenElse(hn::RebindMask(di, better), hn::Set(di, static_cast<Number>(number)), place);
        });
    return place;
  });
}

// Quotients by a number; a product where that is the same.
struct Divisor {
  explicit Divisor(double by) : number(by), inverse(1 / by) {
    int exponent = 0;
    is_power_of_two = std::frexp(by, &exponent) == 0.5;
  }

  HWY_INLINE hn::Vec<F64> divide(hn::Vec<F64> v) const {
    if (is_power_of_two) return hn::Mul(v, hn::Set(F64(), inverse));
    return hn::Div(v, hn::Set(F64(), number));
  }

  double number;
  double inverse;
  bool is_power_of_two;
};

template <Spacing kSpacing, class E, class T>
HWY_INLINE void means_of(const typename E::Stored* x, const Windows& windows, const Divisor& divisor,
                         T* out) {
  const F64 d;
  const hn::Rebind<T, F64> d_out;
  for_each_vector<kSpacing>(d, windows, d_out, out, [&](auto whole, const Part& part) HWY_ATTR {
    auto total = hn::Zero(d);
    for_each_load<kSpacing, E, decltype(whole)::value>(
        d, x, windows, part, {}, [&](auto v, std::int64_t) HWY_ATTR { total = hn::Add(total, v); });
    return divisor.divide(total);
  });
}

template <Spacing kSpacing, class E, class T>
HWY_INLINE void shares_of(const typename E::Stored* x, const Windows& windows, const Divisor& divisor,
                          T* out) {
  const F64 d;
  const hn::Rebind<T, F64> d_out;
  for_each_vector<kSpacing>(d, windows, d_out, out, [&](auto whole, const Part& part) HWY_ATTR {
    auto total = hn::Zero(d);
    for_each_load<kSpacing, E, decltype(whole)::value>(
        d, x, windows, part, {},
        [&](auto v, std::int64_t) HWY_ATTR { total = hn::Add(total, divisor.divide(v)); });
    return total;
  });
}

template <Spacing kSpacing, class E, class T>
HWY_INLINE void chosen_of(const typename E::Stored* x, const Windows& windows, const PlacesBeside& beside,
                          const TapNumbers& numbers, T* out) {
  const F64 d;
  const hn::Rebind<T, F64> d_out;
  const hn::RebindToSigned<F64> di;
  const hn::Rebind<std::int32_t, F64> dp;
  for_each_vector<kSpacing>(d, windows, d_out, out, [&](auto whole, const Part& part) HWY_ATTR {
    constexpr bool kWhole = decltype(whole)::value;
    const typename E::Stored* from = x + part.row * windows.row_stride + part.begin * windows.stride;
    const std::int32_t* place = beside.places + part.row * beside.row_stride + part.begin;
    auto total = hn::Zero(d);
    for_each_tap(windows, [&](std::int64_t a, std::int64_t b, std::int64_t c) HWY_ATTR {
      const auto v =
          load_tap<kSpacing, E, kWhole>(d, from + affine(windows.steps, a, b, c), windows.stride, part.count);
      const std::int32_t* at = place + affine(beside.steps, a, b, c);
      const auto chosen = kWhole ? hn::LoadU(dp, at) : load_first(dp, at, part.count);
      const auto number = static_cast<std::int32_t>(numbers.first + affine(numbers.steps, a, b, c));
      const auto is_here = hn::RebindMask(d, hn::Eq(hn::PromoteTo(di, chosen), hn::Set(di, number)));
      // Adding 0 changes nothing: a sum that starts at 0 is never -0.
      total = hn::Add(total, hn::IfThenElseZero(is_here, v));
    });
    return total;
  });
}

// Calls visit(element, spacing), two types.
template <class Visit>
void with_types(DType dtype, std::int64_t stride, Visit visit) {
  with_element(dtype,
               [&](auto element) { with_spacing(stride, [&](auto spacing) { visit(element, spacing); }); });
}

template <class E>
const typename E::Stored* stored(const void* x, E) {
  return static_cast<const typename E::Stored*>(x);
}

void maxima(const void* x, DType dtype, const Windows& windows, void* out) {
  with_types(dtype, windows.stride, [&](auto element, auto spacing) HWY_ATTR {
    using E = decltype(element);
    maxima_of<decltype(spacing)::value, E>(stored(x, element), windows, static_cast<typename E::Exact*>(out));
  });
}

void places(const void* x, DType dtype, const Windows& windows, const TapNumbers& numbers,
            std::int32_t* out) {
  with_types(dtype, windows.stride, [&](auto element, auto spacing) HWY_ATTR {
    places_of<decltype(spacing)::value, decltype(element)>(stored(x, element), windows, numbers, out);
  });
}

template <class T>
void means(const void* x, DType dtype, const Windows& windows, double divisor, T* out) {
  with_types(dtype, windows.stride, [&](auto element, auto spacing) HWY_ATTR {
    means_of<decltype(spacing)::value, decltype(element)>(stored(x, element), windows, Divisor(divisor), out);
  });
}

template <class T>
void shares(const void* x, DType dtype, const Windows& windows, double divisor, T* out) {
  with_types(dtype, windows.stride, [&](auto element, auto spacing) HWY_ATTR {
    shares_of<decltype(spacing)::value, decltype(element)>(stored(x, element), windows, Divisor(divisor),
                                                           out);
  });
}

template <class T>
void chosen(const void* x, DType dtype, const Windows& windows, const PlacesBeside& beside,
            const TapNumbers& numbers, T* out) {
  with_types(dtype, windows.stride, [&](auto element, auto spacing) HWY_ATTR {
    chosen_of<decltype(spacing)::value, decltype(element)>(stored(x, element), windows, beside, numbers, out);
  });
}

constexpr WindowLoops kLoops = {&maxima, &places};
template <class T>
constexpr SumLoops<T> kSumLoops = {&means<T>, &shares<T>, &chosen<T>};

const WindowLoops& window_loops() { return kLoops; }
const SumLoops<float>& sum_loops_f32() { return kSumLoops<float>; }
const SumLoops<double>& sum_loops_f64() { return kSumLoops<double>; }

}  // namespace
}  // namespace fuseblock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace fuseblock::cpu {
namespace {

HWY_EXPORT(window_loops);
HWY_EXPORT(sum_loops_f32);
HWY_EXPORT(sum_loops_f64);

// The loops of the machine's best target.
const WindowLoops& loops() { return HWY_DYNAMIC_DISPATCH(window_loops)(); }

template <class T>
const SumLoops<T>& sum_loops() {
  if constexpr (std::is_same_v<T, float>)
    return HWY_DYNAMIC_DISPATCH(sum_loops_f32)();
  else
    return HWY_DYNAMIC_DISPATCH(sum_loops_f64)();
}

}  // namespace

template <class T>
void window_maxima(const void* x, DType dtype, const Windows& windows, T* largest) {
  if (std::is_same_v<T, double> != (dtype == DType::kF64))
    throw InternalError("window_maxima: the result's type does not fit the elements");
  loops().maxima(x, dtype, windows, largest);
}

void window_places(const void* x, DType dtype, const Windows& windows, const TapNumbers& numbers,
                   std::int32_t* places) {
  loops().places(x, dtype, windows, numbers, places);
}

template <class T>
void window_means(const void* x, DType dtype, const Windows& windows, double divisor, T* means) {
  sum_loops<T>().means(x, dtype, windows, divisor, means);
}

template <class T>
void window_shares(const void* x, DType dtype, const Windows& windows, double divisor, T* sums) {
  sum_loops<T>().shares(x, dtype, windows, divisor, sums);
}

template <class T>
void window_chosen(const void* x, DType dtype, const Windows& windows, const PlacesBeside& beside,
                   const TapNumbers& numbers, T* sums) {
  sum_loops<T>().chosen(x, dtype, windows, beside, numbers, sums);
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define FUSEBLOCK_INSTANTIATE(T)                                               \
  template void window_maxima(const void*, DType, const Windows&, T*);         \
  template void window_means(const void*, DType, const Windows&, double, T*);  \
  template void window_shares(const void*, DType, const Windows&, double, T*); \
  template void window_chosen(const void*, DType, const Windows&, const PlacesBeside&, const TapNumbers&, T*);

FUSEBLOCK_INSTANTIATE(float)
FUSEBLOCK_INSTANTIATE(double)
#undef FUSEBLOCK_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace fuseblock::cpu

#endif  // HWY_ONCE
