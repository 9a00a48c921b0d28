#include "cpu/vector/tile_ops.h"

#include <cmath>
#include <type_traits>
#include <utility>

#include "cpu/vector/targets.h"
#include "fuseblock/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vector/tile_ops.cc"  // NOLINT(readability-identifier-naming): Highway's name
#include "hwy/foreach_target.h"                      // IWYU pragma: keep
#include "hwy/highway.h"

#include "cpu/vector/bf16-inl.h"
#include "cpu/vector/functions-inl.h"
#include "cpu/vector/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu::HWY_NAMESPACE {
namespace {

// An operand as a walk over its vectors. A uniform one stays at the first, over a vector of equal elements.
template <class D, class T = hn::TFromD<D>>
class Operand {
 public:
  Operand(D d, TileOperand<T> operand)
      : data_(operand.uniform ? copies_ : operand.data), index_mask_(operand.uniform ? 0 : ~std::size_t{0}) {
    if (operand.uniform) hn::Store(hn::Set(d, *operand.data), d, copies_);
  }
  // data_ may point into the operand itself.
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;

  HWY_INLINE hn::Vec<D> load(D d, std::size_t i) const { return hn::LoadU(d, data_ + (i & index_mask_)); }
  HWY_INLINE hn::Vec<D> load_last(D d, std::size_t i, std::size_t count) const {
    return index_mask_ == 0 ? hn::Load(d, data_) : load_first(d, data_ + i, count);
  }

 private:
  HWY_ALIGN T copies_[hn::MaxLanes(D())];
  const T* data_;
  std::size_t index_mask_;
};

// The same where some operands of a function are bf16.
template <class D, class T = hn::TFromD<D>>
class MixedOperand {
 public:
  MixedOperand(D d, TileOperand<T> operand) : own_(d, operand), bf16_(operand.bf16) {}

  HWY_INLINE hn::Vec<D> load(D d, std::size_t i) const {
    return bf16_ == nullptr ? own_.load(d, i) : decode_bf16(d, hn::LoadU(Bits16<D>(), bf16_ + i));
  }
  HWY_INLINE hn::Vec<D> load_last(D d, std::size_t i, std::size_t count) const {
    return bf16_ == nullptr ? own_.load_last(d, i, count)
                            : decode_bf16(d, load_first(Bits16<D>(), bf16_ + i, count));
  }

 private:
  Operand<D> own_;
  const std::uint16_t* bf16_;
};

// The same for one that is known to be uniform: its vector stays in a register.
template <class D, class T = hn::TFromD<D>>
class UniformOperand {
 public:
  UniformOperand(D d, TileOperand<T> operand) : value_(hn::Set(d, *operand.data)) {}

  HWY_INLINE hn::Vec<D> load(D /*d*/, std::size_t /*i*/) const { return value_; }
  HWY_INLINE hn::Vec<D> load_last(D /*d*/, std::size_t /*i*/, std::size_t /*count*/) const { return value_; }

 private:
  hn::Vec<D> value_;
};

// Calls op(d, vectors...) for each vector of the operands. Two at a time: one by itself would wait for its own steps.
template <class D, class Op, class T, class... Walks>
HWY_INLINE void transform_walks(D d, Op op, T* out, std::size_t count, const Walks&... walks) {
  const std::size_t step = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 2 * step <= count; i += 2 * step) {
    const auto first = op(d, walks.load(d, i)...);
    const auto second = op(d, walks.load(d, i + step)...);
    hn::StoreU(first, d, out + i);
    hn::StoreU(second, d, out + i + step);
  }
  for (; i + step <= count; i += step) hn::StoreU(op(d, walks.load(d, i)...), d, out + i);
  if (i < count) store_first(d, op(d, walks.load_last(d, i, count - i)...), out + i, count - i);
}

// Most often the first operand varies, and the last may; those between them belong to the channel.
template <class Varying, class Op, class T, std::size_t... kMiddle>
HWY_INLINE void transform_as(Op op, const TileOperand<T>* operands, T* out, std::size_t count,
                             std::index_sequence<kMiddle...> /*indices*/) {
  using Uniform = UniformOperand<hn::ScalableTag<T>>;
  const hn::ScalableTag<T> d;
  const TileOperand<T>& last = operands[1 + sizeof...(kMiddle)];
  const bool is_uniform_between = (operands[1 + kMiddle].uniform && ...);
  if (is_uniform_between && last.uniform)
    transform_walks(d, op, out, count, Varying(d, operands[0]), Uniform(d, operands[1 + kMiddle])...,
                    Uniform(d, last));
  else if (is_uniform_between && sizeof...(kMiddle) > 0)
    transform_walks(d, op, out, count, Varying(d, operands[0]), Uniform(d, operands[1 + kMiddle])...,
                    Varying(d, last));
  else
    transform_walks(d, op, out, count, Varying(d, operands[0]), Varying(d, operands[1 + kMiddle])...,
                    Varying(d, last));
}

template <class Op, class T, std::size_t... kMiddle>
HWY_INLINE void transform(Op op, const TileOperand<T>* operands, T* out, std::size_t count,
                          std::index_sequence<kMiddle...> middle) {
  using D = hn::ScalableTag<T>;
  if constexpr (std::is_same_v<T, float>) {
    if (operands[0].bf16 != nullptr || operands[1 + sizeof...(kMiddle)].bf16 != nullptr ||
        (... || (operands[1 + kMiddle].bf16 != nullptr)))
      return transform_as<MixedOperand<D>>(op, operands, out, count, middle);
  }
  transform_as<Operand<D>>(op, operands, out, count, middle);
}

template <class Op, class T>
HWY_INLINE void transform_one(Op op, const TileOperand<T>* operands, T* out, std::size_t count) {
  using D = hn::ScalableTag<T>;
  const D d;
  if constexpr (std::is_same_v<T, float>) {
    if (operands[0].bf16 != nullptr)
      return transform_walks(d, op, out, count, MixedOperand<D>(d, operands[0]));
  }
  transform_walks(d, op, out, count, Operand<D>(d, operands[0]));
}

// b where it is smaller or NaN, else a.
template <class D>
HWY_INLINE hn::Vec<D> minimum(D /*d*/, hn::Vec<D> a, hn::Vec<D> b) {
  return hn::IfThenElse(hn::IsNaN(b), b, hn::IfThenElse(hn::Lt(b, a), b, a));
}

template <class D>
HWY_INLINE hn::Vec<D> maximum(D /*d*/, hn::Vec<D> a, hn::Vec<D> b) {
  return hn::IfThenElse(hn::IsNaN(b), b, hn::IfThenElse(hn::Gt(b, a), b, a));
}

template <class D>
HWY_INLINE hn::Vec<D> one_where(D d, hn::Mask<D> mask) {
  return hn::IfThenElseZero(mask, hn::Set(d, static_cast<hn::TFromD<D>>(1)));
}

// a * b + c with one rounding, also where the target has no such instruction.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> fused(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_SSE4
  HWY_ALIGN T lanes[3][hn::MaxLanes(D())];
  hn::Store(a, d, lanes[0]);
  hn::Store(b, d, lanes[1]);
  hn::Store(c, d, lanes[2]);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i)
    lanes[0][i] = std::fma(lanes[0][i], lanes[1][i], lanes[2][i]);
  return hn::Load(d, lanes[0]);
#else
  (void)d;
  return hn::MulAdd(a, b, c);
#endif
}

template <class D>
HWY_INLINE hn::Vec<D> silu(D d, hn::Vec<D> x) {
  return hn::Mul(x, sigmoid(d, x));
}

// s + x * (s * (1 - s)) with s = sigmoid(x).
template <class D>
HWY_INLINE hn::Vec<D> silu_slope(D d, hn::Vec<D> x) {
  const auto s = sigmoid(d, x);
  return fused(d, x, hn::Mul(s, hn::Sub(hn::Set(d, static_cast<hn::TFromD<D>>(1)), s)), s);
}

// `middle` where -3 < x < 3, `below` under it, `above` over it; NaN counts as between them.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> in_hardswish(D d, hn::Vec<D> x, hn::Vec<D> below, hn::Vec<D> middle, hn::Vec<D> above) {
  const auto three = hn::Set(d, static_cast<T>(3));
  return hn::IfThenElse(hn::Le(x, hn::Neg(three)), below, hn::IfThenElse(hn::Ge(x, three), above, middle));
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> hardswish(D d, hn::Vec<D> x) {
  const auto sixth = hn::Set(d, static_cast<T>(1.0 / 6));
  const auto middle = hn::Mul(hn::Mul(x, hn::Add(x, hn::Set(d, static_cast<T>(3)))), sixth);
  return in_hardswish(d, x, hn::Mul(x, hn::Zero(d)), middle, x);
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> hardswish_gradient(D d, hn::Vec<D> x, hn::Vec<D> gradient) {
  const auto sixth = hn::Set(d, static_cast<T>(1.0 / 6));
  const auto slope = hn::Mul(hn::Add(hn::Add(x, hn::Set(d, static_cast<T>(3))), x), sixth);
  return in_hardswish(d, x, hn::Zero(d), hn::Mul(gradient, slope), gradient);
}

// One loop for each function, named by its expression. Null where there is none.
// clang-format off
#define FUSEBLOCK_LOOP(operand_count, arguments, expression) \
  return [](const TileOperand<T>* operands, T* out, std::size_t count) HWY_ATTR { \
    transform([] arguments HWY_ATTR { (void)d; return expression; }, operands, out, count, \
              std::make_index_sequence<(operand_count) - 2>()); \
  }
#define FUSEBLOCK_UNARY(expression) \
  return [](const TileOperand<T>* operands, T* out, std::size_t count) HWY_ATTR { \
    transform_one([](auto d, auto x) HWY_ATTR { (void)d; return expression; }, operands, out, count); \
  }
#define FUSEBLOCK_BINARY(expression) FUSEBLOCK_LOOP(2, (auto d, auto x, auto y), expression)
#define FUSEBLOCK_TERNARY(expression) FUSEBLOCK_LOOP(3, (auto d, auto x, auto y, auto z), expression)
#define FUSEBLOCK_QUATERNARY(expression) FUSEBLOCK_LOOP(4, (auto d, auto x, auto y, auto z, auto w), expression)
#define FUSEBLOCK_QUINARY(expression) \
  FUSEBLOCK_LOOP(5, (auto d, auto x, auto y, auto z, auto w, auto v), expression)
#define FUSEBLOCK_CHOICE(comparison) \
  FUSEBLOCK_LOOP(4, (auto d, auto x, auto y, auto yes, auto no), hn::IfThenElse(comparison, yes, no))
// clang-format on

template <class T>
TileFunction<T> primitive_any(Primitive primitive) {
  switch (primitive) {
    case Primitive::kInput:
    case Primitive::kConstant: return nullptr;
    case Primitive::kAdd: FUSEBLOCK_BINARY(hn::Add(x, y));
    case Primitive::kSub: FUSEBLOCK_BINARY(hn::Sub(x, y));
    case Primitive::kMul: FUSEBLOCK_BINARY(hn::Mul(x, y));
    case Primitive::kDiv: FUSEBLOCK_BINARY(hn::Div(x, y));
    case Primitive::kNeg: FUSEBLOCK_UNARY(hn::Neg(x));
    case Primitive::kAbs: FUSEBLOCK_UNARY(hn::Abs(x));
    case Primitive::kMinimum: FUSEBLOCK_BINARY(minimum(d, x, y));
    case Primitive::kMaximum: FUSEBLOCK_BINARY(maximum(d, x, y));
    case Primitive::kLess: FUSEBLOCK_BINARY(one_where(d, hn::Lt(x, y)));
    case Primitive::kLessEqual: FUSEBLOCK_BINARY(one_where(d, hn::Le(x, y)));
    case Primitive::kGreater: FUSEBLOCK_BINARY(one_where(d, hn::Gt(x, y)));
    case Primitive::kGreaterEqual: FUSEBLOCK_BINARY(one_where(d, hn::Ge(x, y)));
    case Primitive::kEqual: FUSEBLOCK_BINARY(one_where(d, hn::Eq(x, y)));
    case Primitive::kSelect: FUSEBLOCK_TERNARY(hn::IfThenElse(hn::Eq(x, hn::Zero(d)), z, y));
    case Primitive::kSqrt: FUSEBLOCK_UNARY(hn::Sqrt(x));
    case Primitive::kExp: FUSEBLOCK_UNARY(exp(d, x));
    case Primitive::kExpm1: FUSEBLOCK_UNARY(expm1(d, x));
    case Primitive::kLog: FUSEBLOCK_UNARY(log(d, x));
    case Primitive::kLog1pExp: FUSEBLOCK_UNARY(log1pexp(d, x));
    case Primitive::kTanh: FUSEBLOCK_UNARY(tanh(d, x));
    case Primitive::kErf: FUSEBLOCK_UNARY(erf(d, x));
    case Primitive::kSigmoid: FUSEBLOCK_UNARY(sigmoid(d, x));
  }
  return nullptr;
}

template <class T>
TileFunction<T> fused_any(FusedSteps steps) {
  switch (steps) {
    case FusedSteps::kMultiplyAdd: FUSEBLOCK_TERNARY(fused(d, x, y, z));
    case FusedSteps::kCentredMultiply: FUSEBLOCK_TERNARY(hn::Mul(hn::Sub(x, y), z));
    case FusedSteps::kCentredMultiplyTwice: FUSEBLOCK_QUATERNARY(hn::Mul(hn::Mul(hn::Sub(x, y), z), w));
    case FusedSteps::kCentredMultiplyAdd: FUSEBLOCK_QUATERNARY(fused(d, hn::Sub(x, y), z, w));
    case FusedSteps::kSumMultiply: FUSEBLOCK_TERNARY(hn::Mul(hn::Add(x, y), z));
    case FusedSteps::kTanhOfCentred: FUSEBLOCK_QUATERNARY(tanh(d, fused(d, hn::Sub(x, y), z, w)));
    case FusedSteps::kExpOfDifferenceMultiply: FUSEBLOCK_TERNARY(hn::Mul(exp(d, hn::Sub(x, y)), z));
    case FusedSteps::kSilu: FUSEBLOCK_UNARY(silu(d, x));
    case FusedSteps::kSiluOfCentred: FUSEBLOCK_QUATERNARY(silu(d, fused(d, hn::Sub(x, y), z, w)));
    case FusedSteps::kSiluSlope: FUSEBLOCK_UNARY(silu_slope(d, x));
    case FusedSteps::kSiluSlopeMultiply: FUSEBLOCK_BINARY(hn::Mul(silu_slope(d, x), y));
    case FusedSteps::kSiluSlopeOfCentredMultiply:
      FUSEBLOCK_QUINARY(hn::Mul(silu_slope(d, fused(d, hn::Sub(x, y), z, w)), v));
    case FusedSteps::kHardswish: FUSEBLOCK_UNARY(hardswish(d, x));
    case FusedSteps::kHardswishGradient: FUSEBLOCK_BINARY(hardswish_gradient(d, x, y));
  }
  return nullptr;
}

template <class T>
TileFunction<T> select_where_any(Primitive comparison) {
  switch (comparison) {
    case Primitive::kLess: FUSEBLOCK_CHOICE(hn::Lt(x, y));
    case Primitive::kLessEqual: FUSEBLOCK_CHOICE(hn::Le(x, y));
    case Primitive::kGreater: FUSEBLOCK_CHOICE(hn::Gt(x, y));
    case Primitive::kGreaterEqual: FUSEBLOCK_CHOICE(hn::Ge(x, y));
    case Primitive::kEqual: FUSEBLOCK_CHOICE(hn::Eq(x, y));
    default: return nullptr;
  }
}

#undef FUSEBLOCK_CHOICE
#undef FUSEBLOCK_QUINARY
#undef FUSEBLOCK_QUATERNARY
#undef FUSEBLOCK_TERNARY
#undef FUSEBLOCK_BINARY
#undef FUSEBLOCK_UNARY
#undef FUSEBLOCK_LOOP

TileFunction<float> primitive_f32(Primitive primitive) { return primitive_any<float>(primitive); }
TileFunction<double> primitive_f64(Primitive primitive) { return primitive_any<double>(primitive); }
TileFunction<float> fused_f32(FusedSteps steps) { return fused_any<float>(steps); }
TileFunction<double> fused_f64(FusedSteps steps) { return fused_any<double>(steps); }
TileFunction<float> select_where_f32(Primitive comparison) { return select_where_any<float>(comparison); }
TileFunction<double> select_where_f64(Primitive comparison) { return select_where_any<double>(comparison); }

}  // namespace
}  // namespace fuseblock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace fuseblock::cpu {
namespace {

HWY_EXPORT(primitive_f32);
HWY_EXPORT(primitive_f64);
HWY_EXPORT(fused_f32);
HWY_EXPORT(fused_f64);
HWY_EXPORT(select_where_f32);
HWY_EXPORT(select_where_f64);

}  // namespace

template <class T>
TileFunction<T> tile_function(Primitive primitive) {
  TileFunction<T> function = nullptr;
  if constexpr (std::is_same_v<T, float>)
    function = HWY_DYNAMIC_DISPATCH(primitive_f32)(primitive);
  else
    function = HWY_DYNAMIC_DISPATCH(primitive_f64)(primitive);
  if (function == nullptr) throw InternalError("tile_function: not a primitive with operands");
  return function;
}

template <class T>
TileFunction<T> fused_function(FusedSteps steps) {
  if constexpr (std::is_same_v<T, float>)
    return HWY_DYNAMIC_DISPATCH(fused_f32)(steps);
  else
    return HWY_DYNAMIC_DISPATCH(fused_f64)(steps);
}

template <class T>
TileFunction<T> select_where_function(Primitive comparison) {
  TileFunction<T> function = nullptr;
  if constexpr (std::is_same_v<T, float>)
    function = HWY_DYNAMIC_DISPATCH(select_where_f32)(comparison);
  else
    function = HWY_DYNAMIC_DISPATCH(select_where_f64)(comparison);
  if (function == nullptr) throw InternalError("select_where_function: not a comparison");
  return function;
}

template TileFunction<float> tile_function(Primitive);
template TileFunction<double> tile_function(Primitive);
template TileFunction<float> fused_function(FusedSteps);
template TileFunction<double> fused_function(FusedSteps);
template TileFunction<float> select_where_function(Primitive);
template TileFunction<double> select_where_function(Primitive);

}  // namespace fuseblock::cpu

#endif  // HWY_ONCE
