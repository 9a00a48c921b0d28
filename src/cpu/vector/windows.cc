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

// The elements of the same tap of neighbouring windows: of a whole vector of them that more may follow, or of
// `count`.
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

// A tap of windows, and whose they are: of the results of `row` from `begin` on, `count` of them.
struct Tap {
  std::int64_t a, b, c;
  std::int64_t row;
  std::int64_t begin;
  std::size_t count;
};

HWY_INLINE std::int64_t affine(const std::array<std::int64_t, 3>& steps, const Tap& tap) {
  return tap.a * steps[0] + tap.b * steps[1] + tap.c * steps[2];
}

// Vectors of results whose chains run side by side.
template <Spacing kSpacing>
constexpr std::int64_t kSideBySide = kSpacing == Spacing::kApart ? 1 : 4;

// The results of kVectors vectors from `begin` on. A fold has a state of a vector of results: start(), then
// step() for each tap in order, then end(), the results. kWhole: vectors are full and, where windows or
// results are at every second place, one more follows, so that whole vectors can be read and written.
template <Spacing kSpacing, class E, bool kWhole, std::int64_t kVectors, class Fold, class T>
HWY_INLINE void fold_vectors(const typename E::Stored* x, const Windows& windows, std::int64_t row,
                             std::int64_t begin, std::size_t count, const Fold& fold, T* out) {
  using D = typename Fold::D;
  const D d;
  const hn::Rebind<T, D> out_tag;
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  const typename E::Stored* from = x + row * windows.row_stride + begin * windows.stride;
  typename Fold::State states[kVectors];
  for (auto& state : states) state = fold.start();
  Tap tap{0, 0, 0, row, begin, count};
  for (tap.a = 0; tap.a < windows.taps[0]; ++tap.a)
    for (tap.b = 0; tap.b < windows.taps[1]; ++tap.b)
      for (tap.c = 0; tap.c < windows.taps[2]; ++tap.c) {
        const typename E::Stored* at = from + affine(windows.steps, tap);
        for (std::int64_t v = 0; v < kVectors; ++v) {
          Tap mine = tap;
          mine.begin = begin + v * kLanes;
          const auto elements =
              load_tap<kSpacing, E, kWhole>(d, at + v * kLanes * windows.stride, windows.stride, count);
          fold.template step<kWhole>(states[v], elements, mine);
        }
      }
  for (std::int64_t v = 0; v < kVectors; ++v) {
    const auto result = narrow(out_tag, fold.end(states[v]));
    T* to = out + row * windows.result_row_stride + (begin + v * kLanes) * windows.result_stride;
    if (windows.result_stride != 1)
      kWhole ? store_pairs(out_tag, result, to) : store_apart(out_tag, result, to, 2, count);
    else if (kWhole)
      hn::StoreU(result, out_tag, to);
    else
      store_first(out_tag, result, to, count);
  }
}

template <Spacing kSpacing, class E, class Fold, class T>
HWY_INLINE void fold_windows(const typename E::Stored* x, const Windows& windows, const Fold& fold, T* out) {
  constexpr std::int64_t kLanes = hn::MaxLanes(typename Fold::D());
  constexpr std::int64_t kSide = kSideBySide<kSpacing>;
  const bool in_pairs = kSpacing == Spacing::kPairs || windows.result_stride != 1;
  const std::int64_t whole = in_pairs ? windows.count - 1 : windows.count;
  for (std::int64_t row = 0; row < windows.rows; ++row) {
    std::int64_t j = 0;
    for (; j + kSide * kLanes <= whole; j += kSide * kLanes)
      fold_vectors<kSpacing, E, true, kSide>(x, windows, row, j, kLanes, fold, out);
    for (; j + kLanes <= whole; j += kLanes)
      fold_vectors<kSpacing, E, true, 1>(x, windows, row, j, kLanes, fold, out);
    for (; j < windows.count; j += kLanes)
      fold_vectors<kSpacing, E, false, 1>(
          x, windows, row, j, static_cast<std::size_t>(HWY_MIN(windows.count - j, kLanes)), fold, out);
  }
}

// Whether v takes the place of the largest element before it.
template <class V>
HWY_INLINE auto takes_place(V v, V largest) {
  return hn::Or(hn::Gt(v, largest), hn::IsNaN(v));
}

template <class T>
struct MaximumFold {
  using D = hn::ScalableTag<T>;
  using State = hn::Vec<D>;

  HWY_INLINE State start() const { return hn::Set(D(), -std::numeric_limits<T>::infinity()); }
  template <bool kWhole>
  HWY_INLINE void step(State& largest, hn::Vec<D> v, const Tap&) const {
    largest = hn::IfThenElse(takes_place(v, largest), v, largest);
  }
  HWY_INLINE hn::Vec<D> end(State largest) const { return largest; }
};

template <class T>
struct PlaceFold {
  using D = hn::ScalableTag<T>;
  using DNumber = hn::RebindToSigned<D>;
  using Number = hn::TFromD<DNumber>;
  struct State {
    hn::Vec<D> largest;
    hn::Vec<DNumber> place;
  };

  HWY_INLINE State start() const {
    return {hn::Set(D(), -std::numeric_limits<T>::infinity()),
            hn::Set(DNumber(), static_cast<Number>(first))};
  }
  template <bool kWhole>
  HWY_INLINE void step(State& state, hn::Vec<D> v, const Tap& tap) const {
    const auto better = takes_place(v, state.largest);
    const auto number = hn::Set(DNumber(), static_cast<Number>(numbers.first + affine(numbers.steps, tap)));
    state.largest = hn::IfThenElse(better, v, state.largest);
    state.place = hn::IfThenElse(hn::RebindMask(DNumber(), better), number, state.place);
  }
  HWY_INLINE hn::Vec<DNumber> end(const State& state) const { return state.place; }

  TapNumbers numbers;
  std::int64_t first;  // where no element is larger than -inf
};

// Quotients by a number; a product where that is the same.
template <class T>
struct Divisor {
  using D = hn::ScalableTag<T>;

  HWY_INLINE hn::Vec<D> divide(hn::Vec<D> v) const {
    if (is_power_of_two) return hn::Mul(v, hn::Set(D(), static_cast<T>(1 / number)));
    return hn::Div(v, hn::Set(D(), static_cast<T>(number)));
  }

  double number;
  bool is_power_of_two;
};

struct MeanFold {
  using D = hn::ScalableTag<double>;
  using State = hn::Vec<D>;

  HWY_INLINE State start() const { return hn::Zero(D()); }
  template <bool kWhole>
  HWY_INLINE void step(State& total, hn::Vec<D> v, const Tap&) const {
    total = hn::Add(total, v);
  }
  HWY_INLINE hn::Vec<D> end(State total) const { return divisor.divide(total); }

  Divisor<double> divisor;
};

template <class T>
struct ShareFold {
  using D = hn::ScalableTag<T>;
  using State = hn::Vec<D>;

  HWY_INLINE State start() const { return hn::Zero(D()); }
  template <bool kWhole>
  HWY_INLINE void step(State& total, hn::Vec<D> v, const Tap&) const {
    total = hn::Add(total, divisor.divide(v));
  }
  HWY_INLINE hn::Vec<D> end(State total) const { return total; }

  Divisor<T> divisor;
};

template <class T>
struct ChosenFold {
  using D = hn::ScalableTag<T>;
  using State = hn::Vec<D>;

  HWY_INLINE State start() const { return hn::Zero(D()); }
  template <bool kWhole>
  HWY_INLINE void step(State& total, hn::Vec<D> v, const Tap& tap) const {
    const hn::Rebind<std::int32_t, D> dp;
    const std::int32_t* at =
        beside.places + tap.row * beside.row_stride + tap.begin + affine(beside.steps, tap);
    const auto place = kWhole ? hn::LoadU(dp, at) : load_first(dp, at, tap.count);
    const auto number = static_cast<std::int32_t>(numbers.first + affine(numbers.steps, tap));
    // Adding 0 changes nothing: a sum that starts at 0 is never -0.
    total = hn::Add(total, hn::IfThenElseZero(is_equal(place, number), v));
  }
  HWY_INLINE hn::Vec<D> end(State total) const { return total; }

  // As a mask of elements.
  template <class V>
  HWY_INLINE static auto is_equal(V place, std::int32_t number) {
    const hn::RebindToSigned<D> di;
    if constexpr (sizeof(T) == sizeof(std::int32_t))
      return hn::RebindMask(D(), hn::Eq(place, hn::Set(di, number)));
    else
      return hn::RebindMask(D(), hn::Eq(hn::PromoteTo(di, place), hn::Set(di, number)));
  }

  PlacesBeside beside;
  TapNumbers numbers;
};

// Calls visit(element, spacing), two types.
template <class Visit>
void with_types(DType dtype, std::int64_t stride, Visit visit) {
  with_element(dtype,
               [&](auto element) { with_spacing(stride, [&](auto spacing) { visit(element, spacing); }); });
}

// The same without pairs.
template <class Visit>
void with_types_of_sums(DType dtype, std::int64_t stride, Visit visit) {
  with_element(dtype, [&](auto element) {
    if (stride == 1) return visit(element, std::integral_constant<Spacing, Spacing::kDense>());
    visit(element, std::integral_constant<Spacing, Spacing::kApart>());
  });
}

// Whether sums of one element can be taken in T: it holds the element, and the result is of its type.
template <class E, class T>
bool is_one_element(const Windows& windows) {
  return std::is_same_v<typename E::Exact, T> && windows.taps == std::array<std::int64_t, 3>{1, 1, 1};
}

bool is_power_of_two(double number) {
  int exponent = 0;
  return std::frexp(number, &exponent) == 0.5;
}

template <class E>
const typename E::Stored* stored(const void* x, E) {
  return static_cast<const typename E::Stored*>(x);
}

void maxima(const void* x, DType dtype, const Windows& windows, void* out) {
  with_types(dtype, windows.stride, [&](auto element, auto spacing) HWY_ATTR {
    using E = decltype(element);
    using T = typename E::Exact;
    fold_windows<decltype(spacing)::value, E>(stored(x, element), windows, MaximumFold<T>(),
                                              static_cast<T*>(out));
  });
}

void places(const void* x, DType dtype, const Windows& windows, const TapNumbers& numbers,
            std::int32_t* out) {
  const bool empty = windows.taps[0] == 0 || windows.taps[1] == 0 || windows.taps[2] == 0;
  with_types(dtype, windows.stride, [&](auto element, auto spacing) HWY_ATTR {
    using E = decltype(element);
    const PlaceFold<typename E::Exact> fold = {numbers, empty ? -1 : numbers.first};
    fold_windows<decltype(spacing)::value, E>(stored(x, element), windows, fold, out);
  });
}

template <class T>
void means(const void* x, DType dtype, const Windows& windows, double divisor, T* out) {
  const MeanFold fold = {{divisor, is_power_of_two(divisor)}};
  with_types(dtype, windows.stride, [&](auto element, auto spacing) HWY_ATTR {
    fold_windows<decltype(spacing)::value, decltype(element)>(stored(x, element), windows, fold, out);
  });
}

template <class T>
void shares(const void* x, DType dtype, const Windows& windows, double divisor, T* out) {
  const bool exact = is_power_of_two(divisor);
  with_types_of_sums(dtype, windows.stride, [&](auto element, auto spacing) HWY_ATTR {
    using E = decltype(element);
    constexpr Spacing kSpacing = decltype(spacing)::value;
    // A product with a power of two is rounded once in float as well.
    if constexpr (std::is_same_v<typename E::Exact, T>)
      if (exact && is_one_element<E, T>(windows))
        return fold_windows<kSpacing, E>(stored(x, element), windows, ShareFold<T>{{divisor, exact}}, out);
    fold_windows<kSpacing, E>(stored(x, element), windows, ShareFold<double>{{divisor, exact}}, out);
  });
}

template <class T>
void chosen(const void* x, DType dtype, const Windows& windows, const PlacesBeside& beside,
            const TapNumbers& numbers, T* out) {
  with_types_of_sums(dtype, windows.stride, [&](auto element, auto spacing) HWY_ATTR {
    using E = decltype(element);
    constexpr Spacing kSpacing = decltype(spacing)::value;
    if constexpr (std::is_same_v<typename E::Exact, T>)
      if (is_one_element<E, T>(windows))
        return fold_windows<kSpacing, E>(stored(x, element), windows, ChosenFold<T>{beside, numbers}, out);
    fold_windows<kSpacing, E>(stored(x, element), windows, ChosenFold<double>{beside, numbers}, out);
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
