// f16 elements as vectors of float.
//
// Included once for each target of Highway; it has no include guard of the usual kind for that reason.
#include <cstdint>

#include "hwy/highway.h"

#include "cpu/vector/bf16-inl.h"

#if defined(FUSEBLOCK_CPU_VECTOR_F16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FUSEBLOCK_CPU_VECTOR_F16_INL_H_
#undef FUSEBLOCK_CPU_VECTOR_F16_INL_H_
#else
#define FUSEBLOCK_CPU_VECTOR_F16_INL_H_  // NOLINT(readability-identifier-naming): ends as include guards do
#endif

// Whether the target converts f16 by an instruction; Highway's emulation elsewhere does not know infinities.
#undef FUSEBLOCK_HAS_F16
#define FUSEBLOCK_HAS_F16 (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL)

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu::HWY_NAMESPACE {

// Exact.
template <class D>
HWY_INLINE hn::Vec<D> decode_f16(D d, hn::Vec<Bits16<D>> bits) {
#if FUSEBLOCK_HAS_F16
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
#else
  const hn::RebindToUnsigned<D> du;
  const auto wide = hn::PromoteTo(du, bits);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000U)));
  const auto size = hn::ShiftLeft<13>(hn::And(wide, hn::Set(du, 0x7fffU)));
  // The fields in place; the product moves the exponent and makes small numbers normal.
  const auto scaled = hn::BitCast(du, hn::Mul(hn::BitCast(d, size), hn::Set(d, 0x1p112F)));
  const auto is_special = hn::Ge(hn::BitCast(d, size), hn::BitCast(d, hn::Set(du, 0x7c00U << 13)));
  const auto special = hn::BitCast(d, hn::Or(size, hn::Set(du, 0x7f800000U)));
  const auto number = hn::IfThenElse(is_special, special, hn::BitCast(d, scaled));
  return hn::BitCast(d, hn::Or(hn::BitCast(du, number), sign));
#endif
}

}  // namespace fuseblock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
