// A convolution, its transpose, or a gradient of either by its input, seen from its result.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "block/geometry.h"
#include "plan/schedule.h"

namespace fuseblock::cuda {

struct ConvSum {
  ConvGeometry geometry;  // from the forward side
  // The result is the narrow side: element q takes input q * stride - pad + r * dilation. Else it is the wide
  // one.
  bool gathers = true;
  std::int64_t in_channels = 0;
  std::int64_t channels = 0;
  Spatial in = {1, 1, 1};
  Spatial out = {1, 1, 1};

  // Products of one element of the result, where no tap is left out.
  std::int64_t terms() const;
  // Whether element q takes input q * stride - pad + r * dilation of some window: one that gathers, or one of
  // stride 1, whose window is the flipped one.
  bool has_window() const;
  // The geometry with that window.
  ConvGeometry window() const;
};

// One of two dimensions with its rows as depths; the others as they are.
bool can_fold(const ConvSum& conv);
ConvSum folded(const ConvSum& conv);

// `node` is a convolution of the block, or a gradient of one by its input.
ConvSum conv_sum(const TypedBlock& block, int node);
// `part` is of the kind kConv.
ConvSum conv_sum(const Schedule& schedule, int part);

// The type of the elements of a slot as kernels read them.
DType element_type(const Schedule& schedule, int slot);

// The input of a tile of `conv_wide`: so many positions one behind the other, of a strip of the result's
// columns.
struct ConvBox {
  int strip = 1;      // columns
  int crossings = 0;  // planes that a tile may go on to
  int rows = 1;       // of the input, for one depth of the filter
  int columns = 1;    // of the input
  int pitch = 1;      // from one row to the next
  int quad = 1;       // from one cell of channels to the next, for all depths

  int positions(const ConvGeometry& window) const {
    return static_cast<int>(window.filter[0]) * rows * columns;
  }
};
ConvBox conv_box(const ConvSum& conv, int tile, int strip);

// The kernels that compute convolutions.
enum class ConvKernel : std::uint8_t {
  kDirect,  // any geometry and type; the result is stored, nothing else
  kConv,    // few channels, with either statistics of each channel or reductions over channels
  kWide,    // many channels, groups, flipped windows; with statistics of each channel
};

// Which of them takes a sweep over a convolution. Where it is kDirect, `kConv` and `kWide` may take the sweep
// that only stores the convolution; kDirect takes no other.
ConvKernel conv_kernel(const Schedule& schedule, const Sweep& sweep);

// Which of them takes a convolution of elements of that type, zeros as padding, the input loaded as it is,
// and what of its result is reduced: over channels, over positions.
ConvKernel conv_kernel(const ConvSum& conv, DType dtype, bool over_channels, bool over_positions);

// The constants kFilter, kStride, kPad and kDilation of device code, each by D, H, W.
void add_window(std::vector<std::pair<std::string, std::string>>& constants, const ConvGeometry& geometry);

}  // namespace fuseblock::cuda
