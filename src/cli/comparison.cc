#include "comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fuseblock::cli {

Comparison compare(const NamedType& named, const Tensor& reference, const Tensor& result, double tolerance) {
  Comparison comparison{named.name, named.type};
  const DType dtype = named.type.dtype;
  double largest = 0;
  for_each_element(named.type, [&](std::int64_t, std::int64_t offset) {
    const double expected = load_element(reference.data(), dtype, offset);
    const double found = load_element(result.data(), dtype, offset);
    if (std::isfinite(expected)) largest = std::max(largest, std::abs(expected));
    if (expected == found || (std::isnan(expected) && std::isnan(found))) return;
    const double error = std::abs(found - expected);
    comparison.max_abs_error = std::max(comparison.max_abs_error,
                                        std::isnan(error) ? std::numeric_limits<double>::infinity() : error);
  });
  const double arithmetic = epsilon(dtype == DType::kF64 ? DType::kF64 : DType::kF32);
  comparison.bound = tolerance * (1 + largest) * (epsilon(dtype) + 64 * arithmetic);
  comparison.max_rel_error = comparison.max_abs_error == 0 ? 0 : comparison.max_abs_error / largest;
  comparison.ok = comparison.max_abs_error <= comparison.bound;
  return comparison;
}

Comparison compare_bits(const NamedType& named, const Tensor& first, const Tensor& second) {
  Comparison comparison = compare(named, first, second, 0);
  comparison.ok = comparison.ok && statistics(first).digest == statistics(second).digest;
  return comparison;
}

}  // namespace fuseblock::cli
