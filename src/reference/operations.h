// One function for each operation and each adjoint operation. Arguments are what the operation reads, then
// the array it writes; the result never shares memory with an operand. Parameters that an operation goes
// without are passed as arrays of extent 1: a weight of 1, a bias of 0.
#pragma once

#include <span>

#include "block/geometry.h"
#include "fuseblock/formula.h"
#include "reference/arrays.h"

namespace fuseblock::reference {

// pointwise.cc
void pointwise(const Formula& formula, std::span<const ConstArray> operands, Array y);
void cast(ConstArray x, Array y);
void zeros(Array y);
// `share` divides by the number of copies of each element.
void expand(ConstArray x, bool share, Array y);

// convolution.cc
void convolution(const ConvGeometry& geometry, ConstArray x, ConstArray weight, ConstArray bias, Array y);
void convolution_grad_input(const ConvGeometry& geometry, ConstArray d_y, ConstArray weight, Array d_x);
void convolution_grad_weight(const ConvGeometry& geometry, ConstArray d_y, ConstArray x, Array d_weight);

// norms.cc
// Group, instance and layer norm: they differ in the sets that share a statistic.
void mean_variance_norm(const StatisticsGeometry& geometry, ConstArray x, ConstArray weight, ConstArray bias,
                        Array y);
void rms_norm(const StatisticsGeometry& geometry, ConstArray x, ConstArray weight, Array y);
void batch_norm(double eps, ConstArray x, ConstArray running_mean, ConstArray running_var, ConstArray weight,
                ConstArray bias, Array y);
void l2_normalize(const StatisticsGeometry& geometry, ConstArray x, Array y);
void softmax(const StatisticsGeometry& geometry, ConstArray x, Array y);
void rstd(const StatisticsGeometry& geometry, ConstArray x, Array y);

// reductions.cc
void mean(const StatisticsGeometry& geometry, ConstArray x, Array y);
void sum(const StatisticsGeometry& geometry, ConstArray x, Array y);
void max(const StatisticsGeometry& geometry, ConstArray x, Array y);
void min(const StatisticsGeometry& geometry, ConstArray x, Array y);
void logsumexp(const StatisticsGeometry& geometry, ConstArray x, Array y);

// pools.cc
void max_pool(const PoolGeometry& geometry, ConstArray x, Array y);
void max_pool_take(const PoolGeometry& geometry, ConstArray v, ConstArray x, Array y);
void max_pool_put(const PoolGeometry& geometry, ConstArray d_y, ConstArray x, Array d_x);
void avg_pool(const PoolGeometry& geometry, ConstArray x, Array y);
void avg_pool_grad(const PoolGeometry& geometry, ConstArray d_y, Array d_x);

}  // namespace fuseblock::reference
