// Types of convolutions and their gradients, and their geometry.
#include <algorithm>

#include "block/geometry.h"
#include "block/text.h"
#include "block/typing.h"

namespace fuseblock {
namespace {

// Extents above this cannot be counted in a tensor anyway.
constexpr double kTooLarge = 4e18;

class ConvReader {
 public:
  ConvReader(const Block& block, int node, const TensorType& input)
      : block_(block), node_(node), which_(block.nodes()[static_cast<std::size_t>(node)]), input_(input) {}

  ConvGeometry read() {
    const int rank = which_.operation->spatial_rank;
    check_axes(rank);
    geometry_.transposed = which_.operation->transposed;
    geometry_.batch = input_.extent(Axis::kN);
    geometry_.in_channels = input_.extent(Axis::kC);
    geometry_.out_channels = which_.integer("channels");
    if (rank == 0) return geometry_;
    geometry_.groups = which_.integer("groups");
    check_groups(geometry_.in_channels, "input");
    check_groups(geometry_.out_channels, "output");
    geometry_.filter = per_axis("k", rank, 1);
    geometry_.stride = per_axis("stride", rank, 1);
    geometry_.dilation = per_axis("dilation", rank, 1);
    for (int i = 3 - rank; i < 3; ++i) geometry_.in[place(i)] = input_.extent(kSpatial[place(i)]);
    if (geometry_.transposed)
      read_transposed(rank);
    else
      read_padded(rank);
    return geometry_;
  }

 private:
  static std::size_t place(int i) { return static_cast<std::size_t>(i); }

  void check_axes(int rank) const {
    const AxisSet wanted = default_axes(rank + 2);
    if (input_.axes != wanted)
      block_.fail(node_, "expects a value with the axes " + to_string(wanted) + ", got " + to_string(input_) +
                             " with the axes " + to_string(input_.axes));
  }

  void check_groups(std::int64_t channels, const std::string& which) const {
    if (channels == 0) block_.fail(node_, "expected 1 or more " + which + " channels, got 0");
    if (channels % geometry_.groups != 0)
      block_.fail(node_, std::to_string(channels) + " " + which + " channels do not divide into " +
                             std::to_string(geometry_.groups) +
                             (geometry_.groups == 1 ? " group" : " groups"));
  }

  Spatial per_axis(std::string_view name, int rank, std::int64_t elsewhere) const {
    return spatial_argument(block_, node_, name, rank, {elsewhere, elsewhere, elsewhere});
  }

  void read_padded(int rank) {
    geometry_.pad_mode = std::find(kModes.begin(), kModes.end(), which_.keyword("pad_mode"))->mode;
    const auto* word = std::get_if<std::string>(&which_.argument("pad"));
    const Spatial sides = word == nullptr ? per_axis("pad", rank, 0) : Spatial{0, 0, 0};
    for (int i = 3 - rank; i < 3; ++i) {
      const std::size_t at = place(i);
      const std::int64_t reach = geometry_.dilation[at] * (geometry_.filter[at] - 1);
      std::int64_t front = sides[at];
      std::int64_t both = 2 * sides[at];
      if (word != nullptr && *word == "same") {
        if (geometry_.stride[at] != 1) block_.fail(node_, "pad=same needs stride=1, as in PyTorch");
        front = reach / 2;
        both = reach;
      }
      check_pad_mode(i, std::max(front, both - front));
      const std::int64_t padded = geometry_.in[at] + both;
      if (padded < reach + 1)
        block_.fail(node_, std::string("along ") + letter(kSpatial[at]) + " the filter reaches over " +
                               std::to_string(reach + 1) + " positions, but the padded input has " +
                               std::to_string(padded));
      geometry_.pad[at] = front;
      geometry_.out[at] = (padded - reach - 1) / geometry_.stride[at] + 1;
    }
  }

  void check_pad_mode(int axis, std::int64_t pad) const {
    const std::size_t at = place(axis);
    const std::int64_t extent = geometry_.in[at];
    const bool fits = geometry_.pad_mode == PadMode::kZeros || pad == 0 ||
                      (geometry_.pad_mode == PadMode::kReflect && pad < extent) ||
                      (geometry_.pad_mode == PadMode::kReplicate && extent > 0) ||
                      (geometry_.pad_mode == PadMode::kCircular && pad <= extent);
    if (!fits)
      block_.fail(node_, std::string("along ") + letter(kSpatial[at]) + " an extent of " +
                             std::to_string(extent) + " cannot be padded by " + std::to_string(pad) +
                             " with pad_mode=" + which_.keyword("pad_mode"));
  }

  void read_transposed(int rank) {
    geometry_.pad = per_axis("pad", rank, 0);
    const Spatial output_pad = per_axis("output_pad", rank, 0);
    for (int i = 3 - rank; i < 3; ++i) {
      const std::size_t at = place(i);
      if (output_pad[at] >= std::max(geometry_.stride[at], geometry_.dilation[at]))
        block_.fail(node_, "output_pad=" + std::to_string(output_pad[at]) +
                               " must be smaller than stride or dilation (" +
                               std::to_string(std::max(geometry_.stride[at], geometry_.dilation[at])) + ")");
      if (static_cast<double>(geometry_.in[at]) * static_cast<double>(geometry_.stride[at]) > kTooLarge)
        block_.fail(node_, std::string("the output along ") + letter(kSpatial[at]) + " is too long to count");
      const std::int64_t extent = (geometry_.in[at] - 1) * geometry_.stride[at] - 2 * geometry_.pad[at] +
                                  geometry_.dilation[at] * (geometry_.filter[at] - 1) + output_pad[at] + 1;
      if (extent < 1 || geometry_.in[at] < 1)
        block_.fail(node_, std::string("along ") + letter(kSpatial[at]) +
                               " nothing is left of the output (its extent would be " +
                               std::to_string(extent) + ")");
      geometry_.out[at] = extent;
    }
  }

  struct NamedMode {
    std::string_view name;
    PadMode mode;
    bool operator==(std::string_view other) const { return name == other; }
  };
  static constexpr std::array<NamedMode, 4> kModes = {{{"zeros", PadMode::kZeros},
                                                       {"reflect", PadMode::kReflect},
                                                       {"replicate", PadMode::kReplicate},
                                                       {"circular", PadMode::kCircular}}};

  const Block& block_;
  int node_;
  const Node& which_;
  const TensorType& input_;
  ConvGeometry geometry_;
};

TensorType weight_type(const ConvGeometry& geometry, int rank, DType dtype) {
  std::vector<std::int64_t> extents = {geometry.out_channels, geometry.in_channels / geometry.groups};
  if (geometry.transposed) extents = {geometry.in_channels, geometry.out_channels / geometry.groups};
  for (int i = 3 - rank; i < 3; ++i) extents.push_back(geometry.filter[static_cast<std::size_t>(i)]);
  return TensorType::make(dtype, std::move(extents));
}

TensorType output_type(const ConvGeometry& geometry, const TensorType& input) {
  return with_extents(
      input, input.axes,
      {geometry.batch, geometry.out_channels, geometry.out[0], geometry.out[1], geometry.out[2]});
}

// The operand that has the type of the convolution's input.
int input_operand(OpCode code) {
  if (code == OpCode::kConvolutionGradInput) return 2;
  return code == OpCode::kConvolutionGradWeight ? 1 : 0;
}

}  // namespace

TensorType infer_convolution(Typing& typing, int node) {
  const Node& which = typing.block().nodes()[static_cast<std::size_t>(node)];
  const OpCode code = which.operation->code;
  const TensorType input =
      typing.operand_with_positions(node, input_operand(code), which.operation->spatial_rank);
  const ConvGeometry geometry = ConvReader(typing.block(), node, input).read();
  const TensorType weight = weight_type(geometry, which.operation->spatial_rank, input.dtype);
  const TensorType output = output_type(geometry, input);
  if (code == OpCode::kConvolution) {
    typing.expect(node, 1, weight);
    if (which.flag("bias")) typing.expect(node, 2, channel_type(input.dtype, geometry.out_channels));
    return output;
  }
  typing.expect(node, 0, output);
  if (code == OpCode::kConvolutionGradInput) {
    typing.expect(node, 1, weight);
    return input;
  }
  return typing.expect(node, 2, weight);
}

ConvGeometry conv_geometry(const TypedBlock& block, int node) {
  const Node& which = block.block().nodes()[static_cast<std::size_t>(node)];
  return ConvReader(block.block(), node, block.type(which.operand(input_operand(which.operation->code))))
      .read();
}

double ConvGeometry::multiply_adds() const {
  const std::int64_t channels = in_channels / groups;
  double taps = 1;
  double positions = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    taps *= static_cast<double>(filter[i]);
    positions *= static_cast<double>(transposed ? in[i] : out[i]);
  }
  return static_cast<double>(batch) * static_cast<double>(out_channels) * static_cast<double>(channels) *
         taps * positions;
}

std::int64_t padded_coordinate(std::int64_t i, std::int64_t extent, PadMode mode) {
  if (i >= 0 && i < extent) return i;
  switch (mode) {
    case PadMode::kZeros: return -1;
    case PadMode::kReflect: return i < 0 ? -i : 2 * (extent - 1) - i;
    case PadMode::kReplicate: return i < 0 ? 0 : extent - 1;
    case PadMode::kCircular: return i < 0 ? i + extent : i - extent;
  }
  return -1;
}

}  // namespace fuseblock
