// Products of warpgroups as text: device/warpgroup.cuh has what surrounds them.
#pragma once

#include "cuda/emit/text.h"
#include "fuseblock/type.h"

namespace fuseblock::cuda {

// warpgroup::multiply and warpgroup::hold for products of 64 x 2 * `sums`, whose sums are operands one by
// one. Of f32 they are products of tf32 numbers. With `keeps` products take a number more, 0 where their sums
// begin at 0.
void write_warpgroup_products(Text& text, int sums, DType dtype, bool keeps = false);

// warpgroup::multiply_taken: the same of pairs of 16-bit numbers, of f32 pairs of f16, whose first factor is
// in registers.
void write_warpgroup_products_taken(Text& text, int sums, DType dtype, bool holds);

}  // namespace fuseblock::cuda
