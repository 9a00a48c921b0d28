#include "cpu/vector/tile_ops.h"

#include <cmath>
#include <type_traits>

#include "cpu/vector/targets.h"
#include "fuseblock/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vector/tile_ops.cc"  // NOLINT(readability-identifier-naming): Highway's name
#include "hwy/foreach_target.h"                      // IWYU pragma: keep
#include "hwy/highway.h"

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

// Calls op(d, vectors...) for each vector of the operands.
template <class Op, class T, class... Operands>
HWY_INLINE void transform(Op op, T* out, std::size_t count, Operands... operands) {
  const hn::ScalableTag<T> d;
  const std::size_t step = hn::Lanes(d);
  const auto run = [&](const auto&... walks) HWY_ATTR {
    std::size_t i = 0;
    for (; i + step <= count; i += step) hn::StoreU(op(d, walks.load(d, i)...), d, out + i);
    if (i < count) store_first(d, op(d, walks.load_last(d, i, count - i)...), out + i, count - i);
  };
  run(Operand<hn::ScalableTag<T>>(d, operands)...);
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

template <class T>
HWY_INLINE void multiply_add_any(TileOperand<T> a, TileOperand<T> b, TileOperand<T> c, T* out,
                                 std::size_t count) {
  transform([](auto d, auto x, auto y, auto z) HWY_ATTR { return fused(d, x, y, z); }, out, count, a, b, c);
}

// One loop for each comparison. False where it is none.
template <class T>
HWY_INLINE bool select_where_any(Primitive comparison, TileOperand<T> a, TileOperand<T> b, TileOperand<T> c,
                                 TileOperand<T> d, T* out, std::size_t count) {
  const auto run = [&](auto compare) HWY_ATTR {
    transform([compare](auto, auto x, auto y, auto yes, auto no)
                  HWY_ATTR { return hn::IfThenElse(compare(x, y), yes, no); },
              out, count, a, b, c, d);
    return true;
  };
  switch (comparison) {
    case Primitive::kLess: return run([](auto x, auto y) HWY_ATTR { return hn::Lt(x, y); });
    case Primitive::kLessEqual: return run([](auto x, auto y) HWY_ATTR { return hn::Le(x, y); });
    case Primitive::kGreater: return run([](auto x, auto y) HWY_ATTR { return hn::Gt(x, y); });
    case Primitive::kGreaterEqual: return run([](auto x, auto y) HWY_ATTR { return hn::Ge(x, y); });
    case Primitive::kEqual: return run([](auto x, auto y) HWY_ATTR { return hn::Eq(x, y); });
    default: return false;
  }
}

// One loop for each primitive. False where it is none that takes operands.
// clang-format off
#define FUSEBLOCK_UNARY(expression) \
  transform([](auto d, auto x) HWY_ATTR { (void)d; return expression; }, out, count, a); return true
#define FUSEBLOCK_BINARY(expression) \
  transform([](auto d, auto x, auto y) HWY_ATTR { (void)d; return expression; }, out, count, a, b); return true
// clang-format on

template <class T>
HWY_INLINE bool apply_any(Primitive primitive, TileOperand<T> a, TileOperand<T> b, TileOperand<T> c, T* out,
                          std::size_t count) {
  switch (primitive) {
    case Primitive::kInput:
    case Primitive::kConstant: return false;
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
    case Primitive::kSelect:
      transform([](auto d, auto x, auto y, auto z)
                    HWY_ATTR { return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), z, y); },
                out, count, a, b, c);
      return true;
    case Primitive::kSqrt: FUSEBLOCK_UNARY(hn::Sqrt(x));
    case Primitive::kExp: FUSEBLOCK_UNARY(exp(d, x));
    case Primitive::kExpm1: FUSEBLOCK_UNARY(expm1(d, x));
    case Primitive::kLog: FUSEBLOCK_UNARY(log(d, x));
    case Primitive::kLog1pExp: FUSEBLOCK_UNARY(log1pexp(d, x));
    case Primitive::kTanh: FUSEBLOCK_UNARY(tanh(d, x));
    case Primitive::kErf: FUSEBLOCK_UNARY(erf(d, x));
    case Primitive::kSigmoid: FUSEBLOCK_UNARY(sigmoid(d, x));
  }
  return false;
}

#undef FUSEBLOCK_UNARY
#undef FUSEBLOCK_BINARY

bool apply_f32(Primitive primitive, TileOperand<float> a, TileOperand<float> b, TileOperand<float> c,
               float* out, std::size_t count) {
  return apply_any(primitive, a, b, c, out, count);
}

bool apply_f64(Primitive primitive, TileOperand<double> a, TileOperand<double> b, TileOperand<double> c,
               double* out, std::size_t count) {
  return apply_any(primitive, a, b, c, out, count);
}

void multiply_add_f32(TileOperand<float> a, TileOperand<float> b, TileOperand<float> c, float* out,
                      std::size_t count) {
  multiply_add_any(a, b, c, out, count);
}

void multiply_add_f64(TileOperand<double> a, TileOperand<double> b, TileOperand<double> c, double* out,
                      std::size_t count) {
  multiply_add_any(a, b, c, out, count);
}

bool select_where_f32(Primitive comparison, TileOperand<float> a, TileOperand<float> b, TileOperand<float> c,
                      TileOperand<float> d, float* out, std::size_t count) {
  return select_where_any(comparison, a, b, c, d, out, count);
}

bool select_where_f64(Primitive comparison, TileOperand<double> a, TileOperand<double> b,
                      TileOperand<double> c, TileOperand<double> d, double* out, std::size_t count) {
  return select_where_any(comparison, a, b, c, d, out, count);
}

}  // namespace
}  // namespace fuseblock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace fuseblock::cpu {
namespace {

HWY_EXPORT(apply_f32);
HWY_EXPORT(apply_f64);
HWY_EXPORT(multiply_add_f32);
HWY_EXPORT(multiply_add_f64);
HWY_EXPORT(select_where_f32);
HWY_EXPORT(select_where_f64);

}  // namespace

template <class T>
void apply(Primitive primitive, TileOperand<T> a, TileOperand<T> b, TileOperand<T> c, T* out,
           std::size_t count) {
  bool known = false;
  if constexpr (std::is_same_v<T, float>)
    known = HWY_DYNAMIC_DISPATCH(apply_f32)(primitive, a, b, c, out, count);
  else
    known = HWY_DYNAMIC_DISPATCH(apply_f64)(primitive, a, b, c, out, count);
  if (!known) throw InternalError("apply: not a primitive with operands");
}

template <class T>
void multiply_add(TileOperand<T> a, TileOperand<T> b, TileOperand<T> c, T* out, std::size_t count) {
  if constexpr (std::is_same_v<T, float>)
    HWY_DYNAMIC_DISPATCH(multiply_add_f32)(a, b, c, out, count);
  else
    HWY_DYNAMIC_DISPATCH(multiply_add_f64)(a, b, c, out, count);
}

template <class T>
void select_where(Primitive comparison, TileOperand<T> a, TileOperand<T> b, TileOperand<T> c,
                  TileOperand<T> d, T* out, std::size_t count) {
  bool known = false;
  if constexpr (std::is_same_v<T, float>)
    known = HWY_DYNAMIC_DISPATCH(select_where_f32)(comparison, a, b, c, d, out, count);
  else
    known = HWY_DYNAMIC_DISPATCH(select_where_f64)(comparison, a, b, c, d, out, count);
  if (!known) throw InternalError("select_where: not a comparison");
}

template void apply(Primitive, TileOperand<float>, TileOperand<float>, TileOperand<float>, float*,
                    std::size_t);
template void apply(Primitive, TileOperand<double>, TileOperand<double>, TileOperand<double>, double*,
                    std::size_t);
template void multiply_add(TileOperand<float>, TileOperand<float>, TileOperand<float>, float*, std::size_t);
template void multiply_add(TileOperand<double>, TileOperand<double>, TileOperand<double>, double*,
                           std::size_t);
template void select_where(Primitive, TileOperand<float>, TileOperand<float>, TileOperand<float>,
                           TileOperand<float>, float*, std::size_t);
template void select_where(Primitive, TileOperand<double>, TileOperand<double>, TileOperand<double>,
                           TileOperand<double>, double*, std::size_t);

}  // namespace fuseblock::cpu

#endif  // HWY_ONCE
