// Types of norms and reductions, and the sets of elements that share a statistic.
#include "block/geometry.h"
#include "block/text.h"
#include "block/typing.h"

namespace fuseblock {
namespace {

AxisSet spatial_of(const TensorType& type) { return type.axes - AxisSet{Axis::kN, Axis::kC}; }

void check_channels_divide(const Block& block, int node, const TensorType& type, std::int64_t groups) {
  const std::int64_t channels = type.extent(Axis::kC);
  if (channels % groups != 0)
    block.fail(node, std::to_string(channels) + " channels do not divide into " + std::to_string(groups) +
                         " groups");
}

// The axes named by the node, all of them where none are; each must be one of the value's.
AxisSet named_axes(const Block& block, int node, const TensorType& type) {
  const AxisSet axes = block.nodes()[static_cast<std::size_t>(node)].axes("axes");
  for (Axis axis : axes.list())
    if (!type.axes.contains(axis))
      block.fail(node, std::string("there is no axis ") + letter(axis) + "; the value is " + to_string(type) +
                           " with the axes " + to_string(type.axes));
  return axes.empty() ? type.axes : axes;
}

AxisSet statistics_axes(const Block& block, int node, const TensorType& type) {
  switch (block.nodes()[static_cast<std::size_t>(node)].operation->code) {
    case OpCode::kGroupNorm: return type.axes - AxisSet{Axis::kN};
    case OpCode::kInstanceNorm: return spatial_of(type);
    case OpCode::kBatchNorm: return {};
    default: return named_axes(block, node, type);
  }
}

double resolved_eps(const Node& node, DType dtype) {
  if (node.operation->find_argument("eps") < 0) return 0;
  if (const auto* eps = std::get_if<double>(&node.argument("eps"))) return *eps;
  // PyTorch computes 16-bit types in f32 and takes f32's spacing there.
  return epsilon(dtype == DType::kF64 ? DType::kF64 : DType::kF32);
}

std::array<std::int64_t, kAxisCount> reduced(const TensorType& type, AxisSet axes) {
  auto extents = type.canonical();
  for (Axis axis : axes.list()) extents[static_cast<std::size_t>(index(axis))] = 1;
  return extents;
}

void expect_affine(Typing& typing, int node, const TensorType& parameter) {
  const Node& which = typing.block().nodes()[static_cast<std::size_t>(node)];
  for (int i = 1; i < static_cast<int>(which.operands.size()); ++i) typing.expect(node, i, parameter);
}

}  // namespace

TensorType infer_norm(Typing& typing, int node) {
  const Block& block = typing.block();
  const Node& which = block.nodes()[static_cast<std::size_t>(node)];
  const TensorType x = typing.operand(node, 0);
  const OpCode code = which.operation->code;
  const bool per_channel =
      code == OpCode::kGroupNorm || code == OpCode::kInstanceNorm || code == OpCode::kBatchNorm;
  if (per_channel && !x.axes.contains_all({Axis::kN, Axis::kC}))
    block.fail(node, "expects a value with the axes n and c, got " + to_string(x) + " with the axes " +
                         to_string(x.axes));
  if (code == OpCode::kGroupNorm) check_channels_divide(block, node, x, which.integer("groups"));
  if (code == OpCode::kInstanceNorm && spatial_of(x).empty())
    block.fail(node, "needs at least one spatial axis, got " + to_string(x));
  const AxisSet axes = statistics_axes(block, node, x);
  if (per_channel)
    expect_affine(typing, node, channel_type(x.dtype, x.extent(Axis::kC)));
  else
    expect_affine(typing, node, with_extents(x, axes, x.canonical()));
  return x;
}

TensorType infer_reduction(Typing& typing, int node) {
  const Block& block = typing.block();
  const Node& which = block.nodes()[static_cast<std::size_t>(node)];
  const OpCode code = which.operation->code;
  const TensorType x = typing.operand(node, 0);
  const AxisSet axes = named_axes(block, node, x);
  const bool keepdim = code == OpCode::kRstd || which.flag("keepdim");
  const bool has_groups = which.operation->find_argument("groups") >= 0;
  const std::int64_t groups = has_groups ? which.integer("groups") : 1;
  auto extents = reduced(x, axes);
  if (groups > 1) {
    if (!axes.contains(Axis::kC)) block.fail(node, "groups needs c among the axes");
    if (!keepdim) block.fail(node, "groups needs keepdim");
    check_channels_divide(block, node, x, groups);
    extents[static_cast<std::size_t>(index(Axis::kC))] = x.extent(Axis::kC);
  }
  const TensorType result = with_extents(x, keepdim ? x.axes : x.axes - axes, extents);
  const bool needs_elements = code == OpCode::kMax || code == OpCode::kMin;
  if (needs_elements && x.element_count() == 0 && result.element_count() > 0)
    block.fail(node, "there is nothing to take the " + which.operation->name + " of in " + to_string(x));
  return result;
}

StatisticsGeometry statistics_geometry(const TypedBlock& block, int node) {
  const Node& which = block.block().nodes()[static_cast<std::size_t>(node)];
  const TensorType& x = block.type(which.operand(0));
  StatisticsGeometry geometry;
  geometry.axes = statistics_axes(block.block(), node, x);
  geometry.groups = which.operation->find_argument("groups") >= 0 ? which.integer("groups") : 1;
  geometry.eps = resolved_eps(which, x.dtype);
  geometry.count = 1;
  for (Axis axis : geometry.axes.list()) geometry.count *= x.extent(axis);
  geometry.count /= geometry.groups;
  return geometry;
}

}  // namespace fuseblock
