// Types of pools and their gradients, and their windows.
#include <algorithm>

#include "block/geometry.h"
#include "block/text.h"
#include "block/typing.h"

namespace fuseblock {
namespace {

class PoolReader {
 public:
  PoolReader(const Block& block, int node, const TensorType& input)
      : block_(block), node_(node), which_(block.nodes()[static_cast<std::size_t>(node)]), input_(input) {}

  PoolGeometry read() {
    const int rank = input_.rank() - 2;
    if (rank < 1 || input_.axes != default_axes(input_.rank()))
      block_.fail(node_, "expects a value with the axes n, c and at least one spatial axis, got " +
                             to_string(input_));
    const bool average = which_.operation->find_argument("dilation") < 0;
    geometry_.window = spatial_argument(block_, node_, "k", rank, {1, 1, 1});
    geometry_.stride = spatial_argument(block_, node_, "stride", rank, geometry_.window);
    geometry_.pad = spatial_argument(block_, node_, "pad", rank, {0, 0, 0});
    if (average) {
      geometry_.count_include_pad = which_.flag("count_include_pad");
      const auto* divisor = std::get_if<std::int64_t>(&which_.argument("divisor_override"));
      geometry_.divisor_override = divisor != nullptr ? *divisor : 0;
    } else {
      geometry_.dilation = spatial_argument(block_, node_, "dilation", rank, {1, 1, 1});
    }
    for (std::size_t i = static_cast<std::size_t>(3 - rank); i < 3; ++i) read_axis(i);
    return geometry_;
  }

 private:
  void read_axis(std::size_t at) {
    const std::int64_t reach = geometry_.dilation[at] * (geometry_.window[at] - 1) + 1;
    const std::int64_t pad = geometry_.pad[at];
    const std::int64_t stride = geometry_.stride[at];
    const std::int64_t in = input_.extent(kSpatial[at]);
    const std::string along = std::string("along ") + letter(kSpatial[at]) + " ";
    if (pad > reach / 2)
      block_.fail(node_, along + "pad=" + std::to_string(pad) + " is more than half the window's reach of " +
                             std::to_string(reach));
    const bool ceil_mode = which_.flag("ceil_mode");
    const std::int64_t room = in + 2 * pad - reach;
    const std::int64_t shifted = room + (ceil_mode ? stride - 1 : 0);
    std::int64_t out = shifted < 0 ? 0 : shifted / stride + 1;
    // A last window that would start in the padding behind the input is left out.
    if (ceil_mode && (out - 1) * stride >= in + pad) --out;
    if (out < 1)
      block_.fail(node_, along + "the window reaches over " + std::to_string(reach) +
                             " positions, but the padded input has " + std::to_string(in + 2 * pad));
    geometry_.in[at] = in;
    geometry_.out[at] = out;
  }

  const Block& block_;
  int node_;
  const Node& which_;
  const TensorType& input_;
  PoolGeometry geometry_;
};

// The operand that has the type of the pool's input.
int input_operand(OpCode code) {
  return code == OpCode::kMaxPoolPut || code == OpCode::kAvgPoolGrad || code == OpCode::kMaxPoolTake ? 1 : 0;
}

}  // namespace

TensorType infer_pool(Typing& typing, int node) {
  const OpCode code = typing.block().nodes()[static_cast<std::size_t>(node)].operation->code;
  const TensorType input = typing.operand(node, input_operand(code));
  const PoolGeometry geometry = PoolReader(typing.block(), node, input).read();
  const TensorType output = with_extents(
      input, input.axes,
      {input.extent(Axis::kN), input.extent(Axis::kC), geometry.out[0], geometry.out[1], geometry.out[2]});
  if (code == OpCode::kMaxPoolTake) {
    TensorType result = output;
    result.dtype = typing.expect(node, 0, input).dtype;
    return result;
  }
  if (code == OpCode::kMaxPool || code == OpCode::kAvgPool) return output;
  TensorType result = input;
  result.dtype = typing.expect(node, 0, output).dtype;
  return result;
}

PoolGeometry pool_geometry(const TypedBlock& block, int node) {
  const Node& which = block.block().nodes()[static_cast<std::size_t>(node)];
  return PoolReader(block.block(), node, block.type(which.operand(input_operand(which.operation->code))))
      .read();
}

std::int64_t PoolGeometry::divisor(const Spatial& position) const {
  if (divisor_override > 0) return divisor_override;
  std::int64_t padded = 1;
  std::int64_t inside = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t begin = position[i] * stride[i] - pad[i];
    const std::int64_t end = std::min(begin + window[i], in[i] + pad[i]);
    padded *= end - begin;
    inside *= std::max<std::int64_t>(std::min(end, in[i]) - std::max<std::int64_t>(begin, 0), 0);
  }
  // A window without a real element averages to 0.
  if (inside == 0) return 1;
  return count_include_pad ? padded : inside;
}

}  // namespace fuseblock
