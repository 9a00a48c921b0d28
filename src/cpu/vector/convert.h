// Elements of a tensor's type to and from arrays of the arithmetic type T (float or double).
//
// Widening is exact. Narrowing rounds once to the nearest value, ties to even, beyond the largest to infinity; NaN
// stays NaN. `stride` is the distance of two elements of the tensor in elements and may be negative; 1 is a pass
// of vectors, others go element by element through a small buffer. Nothing needs to be aligned beyond its element,
// nothing is read or written between or past the `count` elements.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fuseblock/type.h"

namespace fuseblock::cpu {

// to[i] = the element i * stride behind `from`.
template <class T>
void load_elements(const void* from, DType dtype, std::int64_t stride, T* to, std::size_t count);

// The element i * stride behind `to` = from[i].
template <class T>
void store_elements(const T* from, void* to, DType dtype, std::int64_t stride, std::size_t count);

}  // namespace fuseblock::cpu
