// Convolutions, transposed convolutions and linear, with their two gradients.
//
// All of them join a narrow side to a wide side by the same rule: the weight of narrow channel k, wide
// channel c and tap r joins narrow position q to wide position p = q*stride - pad + r*dilation, for each
// sample. A convolution reads the wide side and writes the narrow one; a transposed convolution reads the
// narrow side and writes the wide one. In both the weight is [narrow channels, wide channels / groups,
// filter]. So there are three operations:
//   gather     narrow[q] += weight * wide[p]     convolution; gradient of a transposed one by its input
//   scatter    wide[p] += weight * narrow[q]     transposed convolution; gradient of a convolution by its input
//   contract   weight  += wide[p] * narrow[q]    gradient by the weight
// Where p lies outside, the padding mode says which wide position takes its place, if any.
#include <algorithm>

#include "reference/operations.h"

namespace fuseblock::reference {
namespace {

// One axis at one tap: narrow position q meets wide position q*stride + offset.
struct TapAxis {
  std::int64_t narrow = 1;
  std::int64_t wide = 1;
  std::int64_t stride = 1;
  std::int64_t offset = 0;
  PadMode pad_mode = PadMode::kZeros;

  // The wide position that narrow position q meets; -1 where it is padding that holds zeros.
  std::int64_t wide_position(std::int64_t q) const {
    return padded_coordinate(q * stride + offset, wide, pad_mode);
  }

  // Calls visit(q, p) for each pair of positions that meet: first those that need no padding, then those that
  // do.
  template <typename Visit>
  void for_each_pair(Visit visit) const {
    // The first q with q*stride + offset >= 0, and the first with q*stride + offset >= wide.
    const std::int64_t begin = std::clamp<std::int64_t>((stride - 1 - offset) / stride, 0, narrow);
    const std::int64_t end = std::clamp<std::int64_t>((wide + stride - 1 - offset) / stride, begin, narrow);
    for (std::int64_t q = begin; q < end; ++q) visit(q, q * stride + offset);
    const auto visit_padded = [&](std::int64_t q) {
      if (const std::int64_t p = wide_position(q); p >= 0) visit(q, p);
    };
    for (std::int64_t q = 0; q < begin; ++q) visit_padded(q);
    for (std::int64_t q = end; q < narrow; ++q) visit_padded(q);
  }
};

TapAxis tap_axis(const ConvGeometry& geometry, int axis, std::int64_t tap) {
  return {.narrow = geometry.transposed ? geometry.in[axis] : geometry.out[axis],
          .wide = geometry.transposed ? geometry.out[axis] : geometry.in[axis],
          .stride = geometry.stride[axis],
          .offset = tap * geometry.dilation[axis] - geometry.pad[axis],
          .pad_mode = geometry.pad_mode};
}

// Calls visit(weight position, narrow row, wide row, axis w) for each pair of rows along w that a weight
// joins. The rows are pointers to their first elements.
template <typename Narrow, typename Wide, typename Visit>
void for_each_row_pair(const ConvGeometry& geometry, const BasicArray<Narrow>& narrow,
                       const BasicArray<Wide>& wide, Visit visit) {
  const std::int64_t narrow_per_group = narrow.extents[1] / geometry.groups;
  const std::int64_t wide_per_group = wide.extents[1] / geometry.groups;
  const Extents weights = {narrow.extents[1], wide_per_group, geometry.filter[0], geometry.filter[1],
                           geometry.filter[2]};
  for (std::int64_t n = 0; n < geometry.batch; ++n) {
    for_each(weights, [&](const Position& weight) {
      const std::int64_t k = weight[0];
      const std::int64_t c = k / narrow_per_group * wide_per_group + weight[1];
      const TapAxis depth = tap_axis(geometry, 0, weight[2]);
      const TapAxis height = tap_axis(geometry, 1, weight[3]);
      const TapAxis width = tap_axis(geometry, 2, weight[4]);
      depth.for_each_pair([&](std::int64_t narrow_d, std::int64_t wide_d) {
        height.for_each_pair([&](std::int64_t narrow_h, std::int64_t wide_h) {
          visit(weight, &narrow[{n, k, narrow_d, narrow_h, 0}], &wide[{n, c, wide_d, wide_h, 0}], width);
        });
      });
    });
  }
}

void gather(const ConvGeometry& geometry, ConstArray wide, ConstArray weight, Array narrow) {
  for_each_row_pair(
      geometry, narrow, wide,
      [&](const Position& at, double* narrow_row, const double* wide_row, const TapAxis& width) {
        const double factor = weight[at];
        width.for_each_pair([=](std::int64_t q, std::int64_t p) { narrow_row[q] += factor * wide_row[p]; });
      });
}

void scatter(const ConvGeometry& geometry, ConstArray narrow, ConstArray weight, Array wide) {
  for_each_row_pair(
      geometry, narrow, wide,
      [&](const Position& at, const double* narrow_row, double* wide_row, const TapAxis& width) {
        const double factor = weight[at];
        width.for_each_pair([=](std::int64_t q, std::int64_t p) { wide_row[p] += factor * narrow_row[q]; });
      });
}

void contract(const ConvGeometry& geometry, ConstArray narrow, ConstArray wide, Array weight) {
  for_each_row_pair(
      geometry, narrow, wide,
      [&](const Position& at, const double* narrow_row, const double* wide_row, const TapAxis& width) {
        double total = 0;
        width.for_each_pair([&](std::int64_t q, std::int64_t p) { total += narrow_row[q] * wide_row[p]; });
        weight[at] += total;
      });
}

}  // namespace

void convolution(const ConvGeometry& geometry, ConstArray x, ConstArray weight, ConstArray bias, Array y) {
  for_each(y.extents, [&](const Position& at) { y[at] = bias[at]; });
  if (geometry.transposed) {
    scatter(geometry, x, weight, y);
  } else {
    gather(geometry, x, weight, y);
  }
}

void convolution_grad_input(const ConvGeometry& geometry, ConstArray d_y, ConstArray weight, Array d_x) {
  zeros(d_x);
  if (geometry.transposed) {
    gather(geometry, d_y, weight, d_x);
  } else {
    scatter(geometry, d_y, weight, d_x);
  }
}

void convolution_grad_weight(const ConvGeometry& geometry, ConstArray d_y, ConstArray x, Array d_weight) {
  zeros(d_weight);
  if (geometry.transposed) {
    contract(geometry, x, d_y, d_weight);
  } else {
    contract(geometry, d_y, x, d_weight);
  }
}

}  // namespace fuseblock::reference
