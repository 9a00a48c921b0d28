// Which products of a program are rounded on their own.
//
// The compiler makes one instruction with one rounding of a product and the sum or difference that takes it. That is as
// good as two, except where the other operand was made of the same product: x * y - mean is 0 in a constant channel, and
// with one rounding it is the error of the product, which a norm multiplies by up to 1 / sqrt(eps); exp(x * y - largest)
// is one number in the sweep that sums it up and another one in the sweep that divides by the sum.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule.h"

namespace fuseblock::cuda {

// By step of the sweep's program. Rounded are products
//   - of which moments or sums of exponentials are taken, and
//   - whose difference from such a statistic, or from the largest or smallest, or from a logsumexp is taken. A mean out of a sum counts where it
//     is one for each element; one over more elements has an error of its own, and only the gradients of norms subtract
//     it, which nothing makes large.
std::vector<bool> rounded_products(const Schedule& schedule, const Sweep& sweep);

// Whether the sweep takes a statistic for each of its elements. A value less its own mean is 0 where both were made by the
// same functions, so that such a sweep takes those of the kernel that made the statistic, which are for f32.
bool takes_statistic_of_each(const Schedule& schedule, const Sweep& sweep);

// The same as rounded_products for a program that has some of the steps: `places` says where each step is, -1 for nowhere.
std::vector<bool> rounded_at(const std::vector<bool>& rounded, const std::vector<std::int32_t>& places);

}  // namespace fuseblock::cuda
