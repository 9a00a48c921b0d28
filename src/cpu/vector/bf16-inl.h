// bf16 elements as vectors of float.
//
// Included once for each target of Highway; it has no include guard of the usual kind for that reason.
#include <cstdint>

#include "hwy/highway.h"

#if defined(FUSEBLOCK_CPU_VECTOR_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FUSEBLOCK_CPU_VECTOR_BF16_INL_H_
#undef FUSEBLOCK_CPU_VECTOR_BF16_INL_H_
#else
#define FUSEBLOCK_CPU_VECTOR_BF16_INL_H_  // NOLINT(readability-identifier-naming): ends as include guards do
#endif

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// As many elements of 16 bits as D has lanes.
template <class D>
using Bits16 = hn::Rebind<std::uint16_t, D>;

// Exact: a bf16 is the upper half of a float.
template <class D>
HWY_INLINE hn::Vec<D> decode_bf16(D d, hn::Vec<Bits16<D>> bits) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), bits)));
}

}  // namespace fuseblock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
