// Elementary functions on vectors of float or double, in the style of Highway: f(d, x) for each lane of x.
//
//   exp  expm1  log  log1pexp  tanh  erf  sigmoid
//
// Limits are exact, NaN gives NaN, finite input never gives NaN, results below the smallest normal number are
// rounded there and not flushed. README.md has the accuracy of each; coefficients.h has the numbers. Only
// operations that IEEE 754 rounds are used, so that all targets with FMA give the same bits.
//
// Included once for each target of Highway; it has no include guard of the usual kind for that reason.
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "cpu/vector/coefficients.h"
#include "hwy/highway.h"

#if defined(FUSEBLOCK_CPU_VECTOR_FUNCTIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FUSEBLOCK_CPU_VECTOR_FUNCTIONS_INL_H_
#undef FUSEBLOCK_CPU_VECTOR_FUNCTIONS_INL_H_
#else
#define FUSEBLOCK_CPU_VECTOR_FUNCTIONS_INL_H_  // NOLINT(readability-identifier-naming): ends as include guards do
#endif

// x86's minimum and maximum give their second operand where one is NaN; Highway promises nothing for other targets.
#undef FUSEBLOCK_X86_MINIMUM
#define FUSEBLOCK_X86_MINIMUM (HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The layout of a floating-point number.
template <class T>
struct Format {
  static constexpr int kMantissaBits = std::numeric_limits<T>::digits - 1;
  static constexpr int kBias = std::numeric_limits<T>::max_exponent - 1;
};

// Powers of x times coefficients, lowest power first, by Horner's rule.
template <class D, class T, std::size_t kCount>
HWY_INLINE hn::Vec<D> polynomial(D d, hn::Vec<D> x, const std::array<T, kCount>& coefficients) {
  hn::Vec<D> sum = hn::Set(d, coefficients[kCount - 1]);
  for (std::size_t i = kCount - 1; i-- > 0;) sum = hn::MulAdd(sum, x, hn::Set(d, coefficients[i]));
  return sum;
}

// Coefficients of the polynomial in -x.
template <class T, std::size_t kCount>
constexpr std::array<T, kCount> alternating(std::array<T, kCount> coefficients) {
  for (std::size_t i = 1; i < kCount; i += 2) coefficients[i] = -coefficients[i];
  return coefficients;
}

// The smaller of x and a bound; NaN stays NaN.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> at_most(D d, hn::Vec<D> x, T highest) {
  const auto bound = hn::Set(d, highest);
#if FUSEBLOCK_X86_MINIMUM
  return hn::Min(bound, x);
#else
  return hn::IfThenElse(hn::Gt(x, bound), bound, x);
#endif
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> at_least(D d, hn::Vec<D> x, T lowest) {
  const auto bound = hn::Set(d, lowest);
#if FUSEBLOCK_X86_MINIMUM
  return hn::Max(bound, x);
#else
  return hn::IfThenElse(hn::Lt(x, bound), bound, x);
#endif
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> clamp(D d, hn::Vec<D> x, T lowest, T highest) {
  return at_least(d, at_most(d, x, highest), lowest);
}

// x = exponent * ln 2 + rest with |rest| <= ln(2) / 2, a little more after rounding.
template <class D>
struct Reduced {
  hn::Vec<D> rest;
  // The low bits hold exponent + kAdded: what is above them is lost in the shift that makes a power of two.
  hn::Vec<hn::RebindToUnsigned<D>> biased_exponent;
};

template <class T>
constexpr T kLog2E = static_cast<T>(1.4426950408889634);
// Adding it rounds to an integer, leaves that in the low bits and adds kAdded to it.
template <class T, int kAdded>
constexpr T kRounder =
    static_cast<T>(std::uint64_t{3} << (Format<T>::kMantissaBits - 1)) + static_cast<T>(kAdded);

template <int kAdded, class D, class T = hn::TFromD<D>>
HWY_INLINE Reduced<D> reduce_by_ln2(D d, hn::Vec<D> x) {
  using C = Coefficients<T>;
  const auto rounder = hn::Set(d, kRounder<T, kAdded>);
  const auto shifted = hn::MulAdd(x, hn::Set(d, kLog2E<T>), rounder);
  const auto exponent = hn::Sub(shifted, rounder);
  auto rest = hn::NegMulAdd(exponent, hn::Set(d, C::kLn2High), x);
  rest = hn::NegMulAdd(exponent, hn::Set(d, C::kLn2Low), rest);
  return {rest, hn::BitCast(hn::RebindToUnsigned<D>(), shifted)};
}

// The power of two with that exponent, which must be a normal number's: 2^exponent where kAdded is the bias.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> power_of_two(D d, hn::Vec<hn::RebindToUnsigned<D>> biased_exponent) {
  return hn::BitCast(d, hn::ShiftLeft<Format<T>::kMantissaBits>(biased_exponent));
}

// exp(rest) - 1, with a small relative error.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> expm1_of_rest(D d, hn::Vec<D> rest) {
  const auto tail = polynomial(d, rest, Coefficients<T>::kExp);
  return hn::MulAdd(hn::Mul(rest, rest), tail, rest);
}

// exp(rest), with a smaller absolute error than the sum of the above and 1.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> exp_of_rest(D d, hn::Vec<D> rest) {
  const auto one = hn::Set(d, static_cast<T>(1));
  const auto slope = hn::MulAdd(polynomial(d, rest, Coefficients<T>::kExp), rest, one);
  return hn::MulAdd(slope, rest, one);
}

// exp(x) where neither x nor the result leaves the range of normal numbers.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> exp_in_range(D d, hn::Vec<D> x) {
  const Reduced<D> reduced = reduce_by_ln2<Format<T>::kBias>(d, x);
  return hn::Mul(exp_of_rest(d, reduced.rest), power_of_two(d, reduced.biased_exponent));
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  using C = Coefficients<T>;
  const Reduced<D> reduced =
      reduce_by_ln2<2 * Format<T>::kBias>(d, clamp(d, x, C::kExpLowest, C::kExpHighest));
  // Two factors whose product is 2^exponent: only the second multiplication can round or overflow.
  const auto half = hn::ShiftRight<1>(reduced.biased_exponent);
  const auto first = power_of_two(d, half);
  const auto second = power_of_two(d, hn::Sub(reduced.biased_exponent, half));
  return hn::Mul(hn::Mul(exp_of_rest(d, reduced.rest), first), second);
}

// exp(x) - 1 = 2 (2^(n-1) expm1(rest) + (2^(n-1) - 1/2)): the halves keep the power finite at the upper end.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> expm1(D d, hn::Vec<D> x) {
  using C = Coefficients<T>;
  const Reduced<D> reduced =
      reduce_by_ln2<Format<T>::kBias - 1>(d, clamp(d, x, C::kExpm1Lowest, C::kExpHighest));
  const auto power = power_of_two(d, reduced.biased_exponent);
  const auto half =
      hn::MulAdd(power, expm1_of_rest(d, reduced.rest), hn::Sub(power, hn::Set(d, static_cast<T>(0.5))));
  const auto is_identity = hn::Lt(hn::Abs(x), hn::Set(d, C::kExpm1Identity));
  return hn::IfThenElse(is_identity, x, hn::Add(half, half));
}

// log(1 + f) + exponent * ln 2 for sqrt(1/2) <= 1 + f <= sqrt(2).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> log1p_and_exponent(D d, hn::Vec<D> f, hn::Vec<D> exponent) {
  using C = Coefficients<T>;
  const auto half_square = hn::Mul(hn::Mul(f, f), hn::Set(d, static_cast<T>(0.5)));
  hn::Vec<D> tail;
  if constexpr (std::is_same_v<T, float>) {
    const auto cube = hn::Mul(hn::Mul(f, f), f);
    tail = hn::MulAdd(exponent, hn::Set(d, C::kLn2Low), hn::Mul(cube, polynomial(d, f, C::kLog1p)));
  } else {
    const auto s = hn::Div(f, hn::Add(f, hn::Set(d, static_cast<T>(2))));
    const auto z = hn::Mul(s, s);
    const auto inner = hn::MulAdd(z, polynomial(d, z, C::kLog1p), half_square);
    tail = hn::MulAdd(exponent, hn::Set(d, C::kLn2Low), hn::Mul(s, inner));
  }
  const auto log1p = hn::Sub(f, hn::Sub(half_square, tail));
  return hn::MulAdd(exponent, hn::Set(d, C::kLn2High), log1p);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> log(D d, hn::Vec<D> x) {
  using F = Format<T>;
  using U = hn::TFromD<hn::RebindToUnsigned<D>>;
  const hn::RebindToUnsigned<D> du;
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  constexpr int kScale = F::kMantissaBits + 1;
  const auto zero = hn::Zero(d);
  const auto is_denormal = hn::Lt(x, hn::Set(d, std::numeric_limits<T>::min()));
  const auto scale = hn::Set(d, static_cast<T>(std::uint64_t{1} << kScale));
  const auto normal = hn::IfThenElse(is_denormal, hn::Mul(x, scale), x);

  // normal = 2^exponent * mantissa with sqrt(1/2) <= mantissa < sqrt(2). Subtracting the bits of sqrt(1/2) puts
  // the border between two exponents there.
  const auto root_half = hn::Set(
      du, std::is_same_v<T, float> ? static_cast<U>(0x3f3504f3U) : static_cast<U>(0x3fe6a09e667f3bcdULL));
  const auto bits = hn::Sub(hn::BitCast(du, normal), root_half);
  const auto low_bits = hn::Set(du, (U{1} << F::kMantissaBits) - U{1});
  const auto mantissa = hn::BitCast(d, hn::Add(hn::And(bits, low_bits), root_half));
  // The exponent as a number: shifted down to the low bits of kRounder, where negative ones borrow.
  constexpr U kOffset = U{1} << F::kMantissaBits << (std::is_same_v<T, float> ? 7 : 10);
  const auto count = hn::ShiftRight<F::kMantissaBits>(hn::Add(bits, hn::Set(du, kOffset)));
  const auto biased = hn::BitCast(d, hn::Add(count, hn::BitCast(du, hn::Set(d, kRounder<T, 0>))));
  constexpr int kCountBias = std::is_same_v<T, float> ? 128 : 1024;
  const auto offset = hn::IfThenElse(is_denormal, hn::Set(d, kRounder<T, kCountBias + kScale>),
                                     hn::Set(d, kRounder<T, kCountBias>));
  const auto exponent = hn::Sub(biased, offset);

  auto result = log1p_and_exponent(d, hn::Sub(mantissa, hn::Set(d, static_cast<T>(1))), exponent);
  // x is NaN or infinity: x + x is what is wanted.
  result = hn::IfThenElse(hn::Lt(x, hn::Set(d, kInfinity)), result, hn::Add(x, x));
  result = hn::IfThenElse(hn::Eq(x, zero), hn::Set(d, -kInfinity), result);
  return hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, std::numeric_limits<T>::quiet_NaN()), result);
}

// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)).
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> log1pexp(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, static_cast<T>(1));
  const auto zero = hn::Zero(d);
  const auto u = exp(d, hn::Neg(hn::Abs(x)));
  // 1 + u is in [1, 2]: halve it where it is above sqrt(2).
  const auto is_above = hn::Gt(u, hn::Set(d, static_cast<T>(0.41421356)));
  const auto f = hn::IfThenElse(is_above, hn::Mul(hn::Sub(u, one), hn::Set(d, static_cast<T>(0.5))), u);
  const auto log1p = log1p_and_exponent(d, f, hn::IfThenElse(is_above, one, zero));
  return hn::Add(hn::IfThenElse(hn::Gt(x, zero), x, zero), log1p);
}

// Small |x|: x + x^3 P(x^2). Large: 1 - 2 / (exp(2|x|) + 1) with the sign of x.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> tanh(D d, hn::Vec<D> x) {
  using C = Coefficients<T>;
  const auto one = hn::Set(d, static_cast<T>(1));
  const auto size = hn::Abs(x);
  const auto square = hn::Mul(x, x);
  const auto small = hn::MulAdd(hn::Mul(square, size), polynomial(d, square, C::kTanh), size);
  const auto limited = at_most(d, size, C::kTanhOne);
  const Reduced<D> reduced = reduce_by_ln2<Format<T>::kBias>(d, hn::Add(limited, limited));
  const auto power = power_of_two(d, reduced.biased_exponent);
  const auto denominator = hn::MulAdd(power, expm1_of_rest(d, reduced.rest), hn::Add(power, one));
  const auto large = hn::Sub(one, hn::Div(hn::Set(d, static_cast<T>(2)), denominator));
  return hn::CopySignToAbs(hn::IfThenElse(hn::Lt(size, hn::Set(d, C::kTanhSmall)), small, large), x);
}

// Small |x|: x + x P(x^2). Large: 1 - exp(log(erfc(|x|))) with the sign of x.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> erf(D d, hn::Vec<D> x) {
  using C = Coefficients<T>;
  const auto one = hn::Set(d, static_cast<T>(1));
  const auto size = hn::Abs(x);
  const auto small = hn::MulAdd(size, polynomial(d, hn::Mul(x, x), C::kErf), size);
  const auto beyond_one = hn::Sub(at_most(d, size, C::kErfOne), one);
  const auto large = hn::Sub(one, exp_in_range(d, polynomial(d, beyond_one, C::kLogErfc)));
  return hn::CopySignToAbs(hn::IfThenElse(hn::Lt(size, one), small, large), x);
}

// 1 / (1 + exp(-x)) with exp(-x) = 2^n (1 + q), both sides of the quotient divided by 2^k:
//   2^-k / ((2^-k + 2^(n-k)) + 2^(n-k) q)
// The first sum is exact, but for what it loses of the smaller power when one is far above the other; the quotient
// alone meets results below the normal numbers.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  using C = Coefficients<T>;
  const auto numerator = hn::Set(d, C::kSigmoidScale);
  const auto limited = clamp(d, x, C::kExpLowest, C::kSigmoidOne);
  // As reduce_by_ln2 of -x, the rest with the other sign.
  const auto rounder = hn::Set(d, kRounder<T, Format<T>::kBias - C::kSigmoidScaleExponent>);
  const auto shifted = hn::NegMulAdd(limited, hn::Set(d, kLog2E<T>), rounder);
  const auto exponent = hn::Sub(shifted, rounder);
  auto rest = hn::MulAdd(exponent, hn::Set(d, C::kLn2High), limited);
  rest = hn::MulAdd(exponent, hn::Set(d, C::kLn2Low), rest);
  const auto q = hn::MulSub(hn::Mul(rest, rest), polynomial(d, rest, alternating(C::kExp)), rest);
  const auto power = power_of_two(d, hn::BitCast(hn::RebindToUnsigned<D>(), shifted));
  const auto sum = hn::Add(numerator, power);
  const auto lost = hn::Sub(numerator, hn::Sub(sum, power));
  return hn::Div(numerator, hn::Add(sum, hn::MulAdd(power, q, lost)));
}

}  // namespace fuseblock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
