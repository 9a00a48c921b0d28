// Vectors at the end of an array: the one place that deals with remainders.
//
// Included once for each target of Highway; it has no include guard of the usual kind for that reason.
#include <cstddef>
#include <cstring>

#include "hwy/highway.h"

#if defined(FUSEBLOCK_CPU_VECTOR_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FUSEBLOCK_CPU_VECTOR_LANES_INL_H_
#undef FUSEBLOCK_CPU_VECTOR_LANES_INL_H_
#else
#define FUSEBLOCK_CPU_VECTOR_LANES_INL_H_  // NOLINT(readability-identifier-naming): ends as include guards do
#endif

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The first `count` lanes from `from`, 0 in the others. Reads nothing behind them. `count` is less than a vector.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_first(D d, const T* from, std::size_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN T lanes[hn::MaxLanes(D())] = {};
  std::memcpy(lanes, from, count * sizeof(T));
  return hn::Load(d, lanes);
#else
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#endif
}

// Writes the first `count` lanes and nothing behind them.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_first(D d, hn::Vec<D> v, T* to, std::size_t count) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  std::memcpy(to, lanes, count * sizeof(T));
#else
  hn::BlendedStore(v, hn::FirstN(d, count), d, to);
#endif
}

}  // namespace fuseblock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
