// How far a result is from what it should be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensors.h"

namespace fuseblock::cli {

struct Comparison {
  std::string name;
  TensorType type;
  double max_abs_error = 0;
  double max_rel_error = 0;  // relative to the size of the tensor: see the functions below
  double bound = 0;          // of max_abs_error
  bool ok = true;
  bool skipped = false;  // values that are not finite, which differences cannot judge
};

// Element by element against the reference; two NaN agree, and so do two equal infinities. The relative error
// is relative to max|ref|. The bound is tolerance * (1 + max|ref|) * (eps(dtype) + 64 * eps(arithmetic)), the
// arithmetic being f64 for f64 tensors and f32 for all others: one rounding to the stored type and sums in
// the arithmetic.
Comparison compare(const NamedType& named, const Tensor& reference, const Tensor& result, double tolerance);

// Bit for bit: the bound is 0.
Comparison compare_bits(const NamedType& named, const Tensor& first, const Tensor& second);

// Gradients of a block against central differences of its own forward, both by the reference engine in f64.
// With the output gradients d_o and each of two random directions v along a tensor t (each element of v is
// normal times |t|, or times 1 where t is 0), the sum over d_o * (o(t + h v) - o(t - h v)) / (2 h) must be
// the sum over d_t * v. The relative error is relative to what these sums are like,
//   size = sqrt(sum (d_t * t)^2) + 0.001 * sum|d_o * o|,
// and the bound is tolerance * 1e-5 * size. h is 1e-5; where that misses the bound 1e-6, 1e-7 and 1e-4 are
// tried, since a step across a kink proves nothing.
std::vector<Comparison> compare_differences(const TypedBlock& block, const TensorMap& arguments,
                                            const TensorMap& gradients_of_outputs,
                                            const std::vector<std::string>& wanted, std::uint64_t seed,
                                            double tolerance, const Console& console);

}  // namespace fuseblock::cli
