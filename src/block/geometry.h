// What a structural node does, in plain numbers: the meeting of its arguments with the types of its operands.
// Type inference makes these (and reports what does not fit); engines read them. Spatial arrays always hold
// d, h, w, with extent 1, stride 1 and no padding on the axes a value does not have, so that one loop nest
// serves one to three axes.
#pragma once

#include <array>
#include <cstdint>

#include "fuseblock/block.h"
#include "fuseblock/typed_block.h"

namespace fuseblock {

using Spatial = std::array<std::int64_t, 3>;
inline constexpr std::array<Axis, 3> kSpatial = {Axis::kD, Axis::kH, Axis::kW};

enum class PadMode : std::uint8_t { kZeros, kReflect, kReplicate, kCircular };

// The input coordinate that padding maps `i` to, or -1 where it reads a zero. `i` may lie one extent outside.
std::int64_t padded_coordinate(std::int64_t i, std::int64_t extent, PadMode mode);

// A convolution, its transpose, or linear (no spatial axes), seen from its forward side:
//   conv       y[n,k,q] = bias[k] + sum_{c,r} x[n,c, q*stride - pad + r*dilation] * w[k,c,r]     w is [K, C/groups, filter]
//   transposed y[n,k, q*stride - pad + r*dilation] += x[n,c,q] * w[c,k,r]                        w is [C, K/groups, filter]
struct ConvGeometry {
  std::int64_t batch = 0;
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t groups = 1;
  Spatial in = {1, 1, 1};
  Spatial out = {1, 1, 1};
  Spatial filter = {1, 1, 1};
  Spatial stride = {1, 1, 1};
  Spatial pad = {0, 0, 0};  // in front; what lies behind follows from `out`
  Spatial dilation = {1, 1, 1};
  PadMode pad_mode = PadMode::kZeros;
  bool transposed = false;

  double multiply_adds() const;
  friend bool operator==(const ConvGeometry&, const ConvGeometry&) = default;
};

// Pooling windows: out position q covers q*stride - pad + r*dilation.
struct PoolGeometry {
  Spatial in = {1, 1, 1};
  Spatial out = {1, 1, 1};
  Spatial window = {1, 1, 1};
  Spatial stride = {1, 1, 1};
  Spatial pad = {0, 0, 0};
  Spatial dilation = {1, 1, 1};
  bool count_include_pad = true;
  std::int64_t divisor_override = 0;  // 0: none

  // The divisor of the average at an output position: the elements of the window inside the padded
  // (count_include_pad) or the real input.
  std::int64_t divisor(const Spatial& position) const;
};

// The elements that share one mean and one scale: those equal in every axis outside `axes`, and of one of
// `groups` blocks of channels.
struct StatisticsGeometry {
  AxisSet axes;
  std::int64_t groups = 1;
  double eps = 0;
  std::int64_t count = 0;  // elements of one statistic
};

// For the forward node or one of its two gradients.
ConvGeometry conv_geometry(const TypedBlock& block, int node);
PoolGeometry pool_geometry(const TypedBlock& block, int node);
// Norms, softmax, l2_normalize, reductions and rstd.
StatisticsGeometry statistics_geometry(const TypedBlock& block, int node);

}  // namespace fuseblock
