// The primitives of a formula applied to arrays: one step of a program on a tile that stays in L1.
//
// Each primitive means what fuseblock::evaluate says, in the arithmetic of T (float or double): minimum and
// maximum give NaN if either operand is, comparisons give 1 or 0, select takes b wherever a is not 0, NaN
// included. Every step rounds by itself; only multiply_add fuses.
#pragma once

#include <cstddef>

#include "fuseblock/formula.h"

namespace fuseblock::cpu {

// One operand of a step on a tile: `count` elements, or one element that stands for all of them.
template <class T>
struct TileOperand {
  const T* data;
  bool uniform;
};

// out[i] = f(a[i], b[i], c[i], d[i]) for i < count; operands that f does not take are ignored. `out` may be one of
// the operands' arrays and must not overlap them otherwise. Arrays need no alignment and are never read or written
// past `count`.
template <class T>
using TileFunction = void (*)(TileOperand<T> a, TileOperand<T> b, TileOperand<T> c, TileOperand<T> d, T* out,
                              std::size_t count);

// The loop of a primitive for the best target of this machine. Inputs and constants have none: InternalError.
template <class T>
TileFunction<T> tile_function(Primitive primitive);

// a * b + c, rounded once on every machine.
template <class T>
TileFunction<T> multiply_add_function();

// c where comparison(a, b) holds, else d; InternalError for a primitive that is no comparison.
template <class T>
TileFunction<T> select_where_function(Primitive comparison);

// (a - b) * c and (a - b) * c + d: the difference is rounded, then the product or the sum.
template <class T>
TileFunction<T> centred_multiply_function();
template <class T>
TileFunction<T> centred_multiply_add_function();

// a * sigmoid(a), rounded as the two steps are.
template <class T>
TileFunction<T> silu_function();

// One call, for those who make few.
template <class T>
void apply(Primitive primitive, TileOperand<T> a, TileOperand<T> b, TileOperand<T> c, T* out,
           std::size_t count) {
  tile_function<T>(primitive)(a, b, c, {nullptr, true}, out, count);
}

extern template TileFunction<float> tile_function(Primitive);
extern template TileFunction<double> tile_function(Primitive);
extern template TileFunction<float> multiply_add_function();
extern template TileFunction<double> multiply_add_function();
extern template TileFunction<float> centred_multiply_function();
extern template TileFunction<double> centred_multiply_function();
extern template TileFunction<float> centred_multiply_add_function();
extern template TileFunction<double> centred_multiply_add_function();
extern template TileFunction<float> silu_function();
extern template TileFunction<double> silu_function();
extern template TileFunction<float> select_where_function(Primitive);
extern template TileFunction<double> select_where_function(Primitive);

}  // namespace fuseblock::cpu
