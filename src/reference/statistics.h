// Statistics of one set of elements: what norms and reductions have in common.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "reference/arrays.h"

namespace fuseblock::reference {

inline std::int64_t element_count(const Box& set) {
  std::int64_t count = 1;
  for (int axis = 0; axis < kAxisCount; ++axis) count *= set.end[axis] - set.begin[axis];
  return count;
}

// The sum of term(position) over the set. What each addition loses to rounding is summed beside it (Neumaier), so that
// the error does not grow with the number of terms.
template <typename Term>
double sum_of(const Box& set, Term term) {
  double total = 0;
  double lost = 0;
  for_each(set, [&](const Position& at) {
    const double value = term(at);
    const double next = total + value;
    lost += std::abs(total) >= std::abs(value) ? (total - next) + value : (value - next) + total;
    total = next;
  });
  return std::isfinite(total) ? total + lost : total;
}

// The mean of term(position) over the set; NaN for an empty one.
template <typename Term>
double mean_of(const Box& set, Term term) {
  return sum_of(set, term) / static_cast<double>(element_count(set));
}

// The mean of x over the set. The second pass takes back what a long sum has lost to rounding: the mean of
// equal numbers is that number.
inline double mean_of_elements(ConstArray x, const Box& set) {
  const double rough = mean_of(set, [&](const Position& at) { return x[at]; });
  if (!std::isfinite(rough)) return rough;
  return rough + mean_of(set, [&](const Position& at) { return x[at] - rough; });
}

struct MeanVariance {
  double mean = 0;
  double variance = 0;
};

inline MeanVariance two_pass_mean_variance(ConstArray x, const Box& set) {
  const double mean = mean_of_elements(x, set);
  const double variance = mean_of(set, [&](const Position& at) { return (x[at] - mean) * (x[at] - mean); });
  return {mean, variance};
}

// The largest element, NaN if there is one, -inf for an empty set.
inline double largest_of(ConstArray x, const Box& set) {
  double largest = -std::numeric_limits<double>::infinity();
  for_each(set, [&](const Position& at) {
    if (x[at] > largest || std::isnan(x[at])) largest = x[at];
  });
  return largest;
}

// The smallest element, NaN if there is one, inf for an empty set.
inline double smallest_of(ConstArray x, const Box& set) {
  double smallest = std::numeric_limits<double>::infinity();
  for_each(set, [&](const Position& at) {
    if (x[at] < smallest || std::isnan(x[at])) smallest = x[at];
  });
  return smallest;
}

// Writes the statistic of a set to the result y: once where y has extent 1 along an axis, else at each of the
// set's positions along it (a group's statistic stands at every channel of the group).
inline void store_statistic(double value, const Box& set, Array y) {
  Box place = set;
  for (int axis = 0; axis < kAxisCount; ++axis) {
    if (y.extents[axis] == 1) {
      place.begin[axis] = 0;
      place.end[axis] = 1;
    }
  }
  for_each(place, [&](const Position& at) { y[at] = value; });
}

}  // namespace fuseblock::reference
