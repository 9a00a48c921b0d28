// Pools and their adjoints. A window is a tap at q*stride - pad + r*dilation for each r; taps outside the
// input are absent.
#include <cmath>
#include <limits>
#include <optional>

#include "reference/operations.h"

namespace fuseblock::reference {
namespace {

// Calls visit(input position) for each tap inside the input of the window at an output position, in scan
// order.
template <typename Visit>
void for_each_in_window(const PoolGeometry& geometry, const Position& out, Visit visit) {
  const Extents taps = {1, 1, geometry.window[0], geometry.window[1], geometry.window[2]};
  for_each(taps, [&](const Position& tap) {
    Position in = out;
    for (int i = 0; i < 3; ++i) {
      const int axis = index(kSpatial[i]);
      in[axis] = out[axis] * geometry.stride[i] - geometry.pad[i] + tap[axis] * geometry.dilation[i];
      if (in[axis] < 0 || in[axis] >= geometry.in[i]) return;
    }
    visit(in);
  });
}

// Where the window has its largest element: the first of equal ones, but the last NaN if there is one.
// Nothing where no tap lies inside.
std::optional<Position> find_largest(const PoolGeometry& geometry, ConstArray x, const Position& out) {
  std::optional<Position> largest;
  for_each_in_window(geometry, out, [&](const Position& in) {
    if (!largest || x[in] > x[*largest] || std::isnan(x[in])) largest = in;
  });
  return largest;
}

double divisor_at(const PoolGeometry& geometry, const Position& out) {
  return static_cast<double>(geometry.divisor({out[2], out[3], out[4]}));
}

}  // namespace

void max_pool(const PoolGeometry& geometry, ConstArray x, Array y) {
  for_each(y.extents, [&](const Position& out) {
    const std::optional<Position> largest = find_largest(geometry, x, out);
    y[out] = largest ? x[*largest] : -std::numeric_limits<double>::infinity();
  });
}

void max_pool_take(const PoolGeometry& geometry, ConstArray v, ConstArray x, Array y) {
  for_each(y.extents, [&](const Position& out) {
    const std::optional<Position> largest = find_largest(geometry, x, out);
    y[out] = largest ? v[*largest] : 0;
  });
}

void max_pool_put(const PoolGeometry& geometry, ConstArray d_y, ConstArray x, Array d_x) {
  zeros(d_x);
  for_each(d_y.extents, [&](const Position& out) {
    if (const std::optional<Position> largest = find_largest(geometry, x, out)) d_x[*largest] += d_y[out];
  });
}

void avg_pool(const PoolGeometry& geometry, ConstArray x, Array y) {
  for_each(y.extents, [&](const Position& out) {
    double total = 0;
    for_each_in_window(geometry, out, [&](const Position& in) { total += x[in]; });
    y[out] = total / divisor_at(geometry, out);
  });
}

void avg_pool_grad(const PoolGeometry& geometry, ConstArray d_y, Array d_x) {
  zeros(d_x);
  for_each(d_y.extents, [&](const Position& out) {
    const double share = d_y[out] / divisor_at(geometry, out);
    for_each_in_window(geometry, out, [&](const Position& in) { d_x[in] += share; });
  });
}

}  // namespace fuseblock::reference
