// The primitives of a formula applied to arrays: one step of a program on a tile that stays in L1.
//
// Each primitive means what fuseblock::evaluate says, in the arithmetic of T (float or double): minimum and
// maximum give NaN if either operand is, comparisons give 1 or 0, select takes b wherever a is not 0, NaN
// included. Every step rounds by itself; only products that are added or subtracted are fused.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fuseblock/formula.h"

namespace fuseblock::cpu {

// One operand of a step on a tile: `count` elements, or one element that stands for all of them. Float operands may be
// bf16 as they lie in memory: `bf16` is set then and `data` is not looked at.
template <class T>
struct TileOperand {
  const T* data;
  bool uniform;
  const std::uint16_t* bf16 = nullptr;
};

// The most operands of a function.
inline constexpr std::size_t kMostOperands = 5;

// out[i] = f(a[i], b[i], ...) for i < count, a being operands[0] and so on; operands that f does not take are not
// looked at. `out` may be one of the operands' arrays and must not overlap them otherwise. Arrays need no alignment and
// are never read or written past `count`.
template <class T>
using TileFunction = void (*)(const TileOperand<T>* operands, T* out, std::size_t count);

// The loop of a primitive for the best target of this machine. Inputs and constants have none: InternalError.
template <class T>
TileFunction<T> tile_function(Primitive primitive);

// Several steps in one loop. Sums of products round once, on every machine; all else as the steps one by one.
enum class FusedSteps : std::uint8_t {
  kMultiplyAdd,                 // a * b + c
  kCentredMultiply,             // (a - b) * c
  kCentredMultiplyTwice,        // (a - b) * c * d
  kCentredMultiplyAdd,          // (a - b) * c + d
  kSumMultiply,                 // (a + b) * c
  kTanhOfCentred,               // tanh((a - b) * c + d)
  kExpOfDifferenceMultiply,     // exp(a - b) * c
  kSilu,                        // a * sigmoid(a)
  kSiluOfCentred,               // silu((a - b) * c + d)
  kSiluSlope,                   // s + a * (s * (1 - s)), s = sigmoid(a)
  kSiluSlopeMultiply,           // silu_slope(a) * b
  kSiluSlopeOfCentredMultiply,  // silu_slope((a - b) * c + d) * e
  kHardswish,                   // 0 * a where a <= -3, a where a >= 3, else a * (a + 3) * (1 / 6)
  kHardswishGradient,           // 0 where a <= -3, b where a >= 3, else b * ((a + 3 + a) * (1 / 6))
};
template <class T>
TileFunction<T> fused_function(FusedSteps steps);

// c where comparison(a, b) holds, else d; InternalError for a primitive that is no comparison.
template <class T>
TileFunction<T> select_where_function(Primitive comparison);

// One call, for those who make few.
template <class T>
void apply(Primitive primitive, TileOperand<T> a, TileOperand<T> b, TileOperand<T> c, T* out,
           std::size_t count) {
  const TileOperand<T> operands[] = {a, b, c};
  tile_function<T>(primitive)(operands, out, count);
}

extern template TileFunction<float> tile_function(Primitive);
extern template TileFunction<double> tile_function(Primitive);
extern template TileFunction<float> fused_function(FusedSteps);
extern template TileFunction<double> fused_function(FusedSteps);
extern template TileFunction<float> select_where_function(Primitive);
extern template TileFunction<double> select_where_function(Primitive);

}  // namespace fuseblock::cpu
