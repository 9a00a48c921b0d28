// The elements of a slot one behind the other in the arithmetic's type, as convolutions read their weights.
#pragma once

#include "cpu/memory.h"
#include "cpu/parallel.h"

namespace fuseblock::cpu {

// A pointer into the slot itself where it holds all its elements so; else converted and copied into `buffer`, which has
// room for them.
template <class T>
const T* dense_elements(const Workers& workers, const SlotView& view, const Extents& extents, T* buffer);

extern template const float* dense_elements(const Workers&, const SlotView&, const Extents&, float*);
extern template const double* dense_elements(const Workers&, const SlotView&, const Extents&, double*);

}  // namespace fuseblock::cpu
