// Reductions: one number for each set of elements. What PyTorch gives for empty sets, NaN and infinities
// holds here too.
#include <cmath>

#include "reference/operations.h"
#include "reference/statistics.h"

namespace fuseblock::reference {

void mean(const StatisticsGeometry& geometry, ConstArray x, Array y) {
  for_each_set(x.extents, geometry,
               [&](const Box& set) { store_statistic(mean_of_elements(x, set), set, y); });
}

void sum(const StatisticsGeometry& geometry, ConstArray x, Array y) {
  for_each_set(x.extents, geometry, [&](const Box& set) {
    store_statistic(sum_of(set, [&](const Position& at) { return x[at]; }), set, y);
  });
}

void max(const StatisticsGeometry& geometry, ConstArray x, Array y) {
  for_each_set(x.extents, geometry, [&](const Box& set) { store_statistic(largest_of(x, set), set, y); });
}

void min(const StatisticsGeometry& geometry, ConstArray x, Array y) {
  for_each_set(x.extents, geometry, [&](const Box& set) { store_statistic(smallest_of(x, set), set, y); });
}

// log(sum exp(x)) = m + log(sum exp(x - m)) with m the largest element; an infinite m is left out, so that
// the result is that infinity and not NaN.
void logsumexp(const StatisticsGeometry& geometry, ConstArray x, Array y) {
  for_each_set(x.extents, geometry, [&](const Box& set) {
    const double largest = largest_of(x, set);
    const double shift = std::isinf(largest) ? 0 : largest;
    const double total = sum_of(set, [&](const Position& at) { return std::exp(x[at] - shift); });
    store_statistic(shift + std::log(total), set, y);
  });
}

}  // namespace fuseblock::reference
