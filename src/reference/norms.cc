// Norms and softmax: each element is scaled by statistics of its set.
#include <cmath>

#include "reference/operations.h"
#include "reference/statistics.h"

namespace fuseblock::reference {

// y = (x - mean) / sqrt(variance + eps) * weight + bias
void mean_variance_norm(const StatisticsGeometry& geometry, ConstArray x, ConstArray weight, ConstArray bias,
                        Array y) {
  for_each_set(x.extents, geometry, [&](const Box& set) {
    const MeanVariance of_set = two_pass_mean_variance(x, set);
    const double scale = 1 / std::sqrt(of_set.variance + geometry.eps);
    for_each(set, [&](const Position& at) { y[at] = (x[at] - of_set.mean) * scale * weight[at] + bias[at]; });
  });
}

// y = x / sqrt(mean of squares + eps) * weight
void rms_norm(const StatisticsGeometry& geometry, ConstArray x, ConstArray weight, Array y) {
  for_each_set(x.extents, geometry, [&](const Box& set) {
    const double mean_square = mean_of(set, [&](const Position& at) { return x[at] * x[at]; });
    const double scale = 1 / std::sqrt(mean_square + geometry.eps);
    for_each(set, [&](const Position& at) { y[at] = x[at] * scale * weight[at]; });
  });
}

// y = (x - running_mean) / sqrt(running_var + eps) * weight + bias
void batch_norm(double eps, ConstArray x, ConstArray running_mean, ConstArray running_var, ConstArray weight,
                ConstArray bias, Array y) {
  for_each(x.extents, [&](const Position& at) {
    const double scale = 1 / std::sqrt(running_var[at] + eps);
    y[at] = (x[at] - running_mean[at]) * scale * weight[at] + bias[at];
  });
}

// y = x / max(|x|, eps), |x| the Euclidean norm of the set; a NaN in the set makes all of it NaN.
void l2_normalize(const StatisticsGeometry& geometry, ConstArray x, Array y) {
  for_each_set(x.extents, geometry, [&](const Box& set) {
    const double norm = std::sqrt(sum_of(set, [&](const Position& at) { return x[at] * x[at]; }));
    const double divisor = norm < geometry.eps ? geometry.eps : norm;
    for_each(set, [&](const Position& at) { y[at] = x[at] / divisor; });
  });
}

// y = exp(x - m) / sum exp(x - m), m the largest element
void softmax(const StatisticsGeometry& geometry, ConstArray x, Array y) {
  for_each_set(x.extents, geometry, [&](const Box& set) {
    const double largest = largest_of(x, set);
    const double total = sum_of(set, [&](const Position& at) { return std::exp(x[at] - largest); });
    for_each(set, [&](const Position& at) { y[at] = std::exp(x[at] - largest) / total; });
  });
}

// y = 1 / sqrt(variance + eps)
void rstd(const StatisticsGeometry& geometry, ConstArray x, Array y) {
  for_each_set(x.extents, geometry, [&](const Box& set) {
    store_statistic(1 / std::sqrt(two_pass_mean_variance(x, set).variance + geometry.eps), set, y);
  });
}

}  // namespace fuseblock::reference
