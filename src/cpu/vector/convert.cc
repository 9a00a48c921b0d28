#include "cpu/vector/convert.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "cpu/vector/targets.h"
#include "fuseblock/error.h"
#include "fuseblock/tensor.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vector/convert.cc"  // NOLINT(readability-identifier-naming): Highway's name
#include "hwy/foreach_target.h"                     // IWYU pragma: keep
#include "hwy/highway.h"

#include "cpu/vector/bf16-inl.h"
#include "cpu/vector/f16-inl.h"
#include "cpu/vector/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu::HWY_NAMESPACE {
namespace {

using F32 = hn::ScalableTag<float>;

// Calls convert(vector) on each vector of `from`; both tags have the same number of lanes.
template <class DFrom, class DTo, class Convert>
HWY_INLINE void convert_array(DFrom from_tag, const hn::TFromD<DFrom>* from, DTo to_tag, hn::TFromD<DTo>* to,
                              std::size_t count, Convert convert) {
  const std::size_t step = hn::Lanes(to_tag);
  std::size_t i = 0;
  for (; i + step <= count; i += step) hn::StoreU(convert(hn::LoadU(from_tag, from + i)), to_tag, to + i);
  if (i == count) return;
  store_first(to_tag, convert(load_first(from_tag, from + i, count - i)), to + i, count - i);
}

// The low 16 bits of each lane, which must be all it has.
template <class D>
HWY_INLINE hn::Vec<Bits16<D>> narrow(D d, hn::Vec<hn::RebindToUnsigned<D>> bits) {
  (void)d;
  return hn::DemoteTo(Bits16<D>(), hn::BitCast(hn::RebindToSigned<D>(), bits));
}

// The upper half of each lane is its bf16.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round_to_bf16(D d, hn::Vec<D> v) {
  (void)d;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffU)));
  const auto nan = hn::Or(bits, hn::Set(du, 0x400000U));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, rounded);
}

template <class D>
HWY_INLINE hn::Vec<Bits16<D>> encode_f16(D d, hn::Vec<D> v) {
#if FUSEBLOCK_HAS_F16
  return hn::BitCast(Bits16<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
#else
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du, 0x80000000U)));
  const auto size = hn::Abs(v);
  // Normal results: the exponent moved from bias 127 to 15, rounded at bit 13 into whatever bits that carries.
  const auto size_bits = hn::BitCast(du, size);
  const auto odd = hn::And(hn::ShiftRight<13>(size_bits), hn::Set(du, 1U));
  const auto moved = hn::Add(size_bits, hn::Set(du, 0xfffU - (112U << 23)));
  const auto normal = hn::ShiftRight<13>(hn::Add(moved, odd));
  // Below 2^-14: adding 1/2 leaves the multiple of 2^-24 in the low bits, rounded.
  const auto half = hn::Set(d, 0.5F);
  const auto small = hn::Sub(hn::BitCast(du, hn::Add(size, half)), hn::BitCast(du, half));
  const auto is_small = hn::RebindMask(du, hn::Lt(size, hn::Set(d, 0x1p-14F)));
  const auto is_large = hn::RebindMask(du, hn::Ge(size, hn::Set(d, 65520.F)));
  auto result = hn::IfThenElse(is_small, small, normal);
  result = hn::IfThenElse(is_large, hn::Set(du, 0x7c00U), result);
  result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Set(du, 0x7e00U), result);
  return narrow(d, hn::Or(result, sign));
#endif
}

void f32_to_f64(const float* from, double* to, std::size_t count) {
  const hn::ScalableTag<double> d;
  convert_array(hn::Rebind<float, decltype(d)>(), from, d, to, count,
                [d](auto v) HWY_ATTR { return hn::PromoteTo(d, v); });
}

void f64_to_f32(const double* from, float* to, std::size_t count) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  // Highway's own emulation gives the largest number where it should give infinity.
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
#else
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  convert_array(d, from, df, to, count, [df](auto v) HWY_ATTR { return hn::DemoteTo(df, v); });
#endif
}

void bf16_to_f32(const std::uint16_t* from, float* to, std::size_t count) {
  convert_array(Bits16<F32>(), from, F32(), to, count, [](auto v) HWY_ATTR { return decode_bf16(F32(), v); });
}

void f16_to_f32(const std::uint16_t* from, float* to, std::size_t count) {
  convert_array(Bits16<F32>(), from, F32(), to, count, [](auto v) HWY_ATTR { return decode_f16(F32(), v); });
}

void f32_to_bf16(const float* from, std::uint16_t* to, std::size_t count) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  // The upper halves of two vectors at a time.
  const F32 d;
  const hn::Repartition<std::uint16_t, F32> halves;
  const std::size_t step = hn::Lanes(d);
  for (; i + 2 * step <= count; i += 2 * step) {
    const auto first = hn::BitCast(halves, round_to_bf16(d, hn::LoadU(d, from + i)));
    const auto second = hn::BitCast(halves, round_to_bf16(d, hn::LoadU(d, from + i + step)));
    hn::StoreU(hn::ConcatOdd(halves, second, first), halves, to + i);
  }
#endif
  convert_array(F32(), from + i, Bits16<F32>(), to + i, count - i,
                [](auto v) HWY_ATTR { return narrow(F32(), hn::ShiftRight<16>(round_to_bf16(F32(), v))); });
}

void f32_to_f16(const float* from, std::uint16_t* to, std::size_t count) {
  convert_array(F32(), from, Bits16<F32>(), to, count, [](auto v) HWY_ATTR { return encode_f16(F32(), v); });
}

}  // namespace
}  // namespace fuseblock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace fuseblock::cpu {
namespace {

HWY_EXPORT(f32_to_f64);
HWY_EXPORT(f64_to_f32);
HWY_EXPORT(bf16_to_f32);
HWY_EXPORT(f16_to_f32);
HWY_EXPORT(f32_to_bf16);
HWY_EXPORT(f32_to_f16);

// Elements that pass through a buffer at a time: 2 KiB of the widest type.
constexpr std::size_t kBuffer = 256;

template <class Element>
const Element* elements(const void* data) {
  return static_cast<const Element*>(data);
}

void widen(const double* from, double* to, std::size_t count) { std::copy_n(from, count, to); }
void widen(const float* from, float* to, std::size_t count) { std::copy_n(from, count, to); }
void widen(const float* from, double* to, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(f32_to_f64)(from, to, count);
}
void narrow(const double* from, float* to, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(f64_to_f32)(from, to, count);
}

// 16-bit elements, which are exact in float.
void decode(DType dtype, const std::uint16_t* from, float* to, std::size_t count) {
  if (dtype == DType::kBF16)
    HWY_DYNAMIC_DISPATCH(bf16_to_f32)(from, to, count);
  else
    HWY_DYNAMIC_DISPATCH(f16_to_f32)(from, to, count);
}

void decode(DType dtype, const std::uint16_t* from, double* to, std::size_t count) {
  float buffer[kBuffer];
  for (std::size_t i = 0; i < count; i += kBuffer) {
    const std::size_t part = std::min(kBuffer, count - i);
    decode(dtype, from + i, buffer, part);
    widen(buffer, to + i, part);
  }
}

void encode(DType dtype, const float* from, std::uint16_t* to, std::size_t count) {
  if (dtype == DType::kBF16)
    HWY_DYNAMIC_DISPATCH(f32_to_bf16)(from, to, count);
  else
    HWY_DYNAMIC_DISPATCH(f32_to_f16)(from, to, count);
}

// Through float it would be rounded twice.
void encode(DType dtype, const double* from, std::uint16_t* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) store_element(to, dtype, static_cast<std::int64_t>(i), from[i]);
}

// Contiguous elements.
template <class T>
void load_dense(const void* from, DType dtype, T* to, std::size_t count) {
  switch (dtype) {
    case DType::kF64:
      if constexpr (std::is_same_v<T, float>)
        return narrow(elements<double>(from), to, count);
      else
        return widen(elements<double>(from), to, count);
    case DType::kF32: return widen(elements<float>(from), to, count);
    case DType::kBF16:
    case DType::kF16: return decode(dtype, elements<std::uint16_t>(from), to, count);
  }
  throw InternalError("load_elements: unknown dtype");
}

template <class T>
void store_dense(const T* from, void* to, DType dtype, std::size_t count) {
  switch (dtype) {
    case DType::kF64: return widen(from, static_cast<double*>(to), count);
    case DType::kF32:
      if constexpr (std::is_same_v<T, float>)
        return widen(from, static_cast<float*>(to), count);
      else
        return narrow(from, static_cast<float*>(to), count);
    case DType::kBF16:
    case DType::kF16: return encode(dtype, from, static_cast<std::uint16_t*>(to), count);
  }
  throw InternalError("store_elements: unknown dtype");
}

// Copies elements of kBytes bytes, the distances in elements.
template <std::size_t kBytes>
void copy_elements(const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride,
                   std::size_t count) {
  constexpr auto kSize = static_cast<std::int64_t>(kBytes);
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::int64_t>(i) * kSize;
    std::memcpy(to + at * to_stride, from + at * from_stride, kBytes);
  }
}

void copy_elements(DType dtype, const std::byte* from, std::int64_t from_stride, std::byte* to,
                   std::int64_t to_stride, std::size_t count) {
  switch (byte_size(dtype)) {
    case 2: return copy_elements<2>(from, from_stride, to, to_stride, count);
    case 4: return copy_elements<4>(from, from_stride, to, to_stride, count);
    default: return copy_elements<8>(from, from_stride, to, to_stride, count);
  }
}

}  // namespace

template <class T>
void load_elements(const void* from, DType dtype, std::int64_t stride, T* to, std::size_t count) {
  if (stride == 1) return load_dense(from, dtype, to, count);
  alignas(64) std::byte buffer[kBuffer * sizeof(double)];
  const auto* data = static_cast<const std::byte*>(from);
  for (std::size_t i = 0; i < count; i += kBuffer) {
    const std::size_t part = std::min(kBuffer, count - i);
    const std::int64_t offset = static_cast<std::int64_t>(i) * stride * byte_size(dtype);
    copy_elements(dtype, data + offset, stride, buffer, 1, part);
    load_dense(buffer, dtype, to + i, part);
  }
}

template <class T>
void store_elements(const T* from, void* to, DType dtype, std::int64_t stride, std::size_t count) {
  if (stride == 1) return store_dense(from, to, dtype, count);
  alignas(64) std::byte buffer[kBuffer * sizeof(double)];
  auto* data = static_cast<std::byte*>(to);
  for (std::size_t i = 0; i < count; i += kBuffer) {
    const std::size_t part = std::min(kBuffer, count - i);
    const std::int64_t offset = static_cast<std::int64_t>(i) * stride * byte_size(dtype);
    store_dense(from + i, buffer, dtype, part);
    copy_elements(dtype, buffer, 1, data + offset, stride, part);
  }
}

template void load_elements(const void*, DType, std::int64_t, float*, std::size_t);
template void load_elements(const void*, DType, std::int64_t, double*, std::size_t);
template void store_elements(const float*, void*, DType, std::int64_t, std::size_t);
template void store_elements(const double*, void*, DType, std::int64_t, std::size_t);

}  // namespace fuseblock::cpu

#endif  // HWY_ONCE
