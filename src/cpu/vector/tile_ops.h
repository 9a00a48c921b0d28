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

// out[i] = primitive(a[i], b[i], c[i]) for i < count; operands the primitive does not take are ignored. `out` may
// be one of the operands' arrays and must not overlap them otherwise. Arrays need no alignment and are never read
// or written past `count`. Inputs and constants are no steps: InternalError.
template <class T>
void apply(Primitive primitive, TileOperand<T> a, TileOperand<T> b, TileOperand<T> c, T* out,
           std::size_t count);

// out[i] = a[i] * b[i] + c[i], rounded once on every machine.
template <class T>
void multiply_add(TileOperand<T> a, TileOperand<T> b, TileOperand<T> c, T* out, std::size_t count);

// out[i] = c[i] where comparison(a[i], b[i]) holds, else d[i]; InternalError for a primitive that is no comparison.
template <class T>
void select_where(Primitive comparison, TileOperand<T> a, TileOperand<T> b, TileOperand<T> c,
                  TileOperand<T> d, T* out, std::size_t count);

extern template void apply(Primitive, TileOperand<float>, TileOperand<float>, TileOperand<float>, float*,
                           std::size_t);
extern template void apply(Primitive, TileOperand<double>, TileOperand<double>, TileOperand<double>, double*,
                           std::size_t);
extern template void multiply_add(TileOperand<float>, TileOperand<float>, TileOperand<float>, float*,
                                  std::size_t);
extern template void multiply_add(TileOperand<double>, TileOperand<double>, TileOperand<double>, double*,
                                  std::size_t);
extern template void select_where(Primitive, TileOperand<float>, TileOperand<float>, TileOperand<float>,
                                  TileOperand<float>, float*, std::size_t);
extern template void select_where(Primitive, TileOperand<double>, TileOperand<double>, TileOperand<double>,
                                  TileOperand<double>, double*, std::size_t);

}  // namespace fuseblock::cpu
