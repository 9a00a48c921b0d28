// The path of a run: lay the values out in the workspace, load the arguments, run the nodes in order, store
// the outputs.
#include "reference/reference.h"

#include <limits>
#include <string>
#include <vector>

#include "block/geometry.h"
#include "fuseblock/error.h"
#include "fuseblock/tensor.h"
#include "reference/operations.h"

namespace fuseblock::reference {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr double kOne = 1;
constexpr double kZero = 0;

// Bytes of a value's array, rounded up so that the next one is aligned.
std::size_t array_bytes(const TensorType& type) {
  const std::size_t limit = std::numeric_limits<std::ptrdiff_t>::max() - kAlignment;
  const auto count = static_cast<std::size_t>(type.element_count());
  if (count > limit / sizeof(double)) {
    throw NotSupportedError("reference engine: " + to_string(type) +
                            " is too large to be kept in double precision");
  }
  return (count * sizeof(double) + kAlignment - 1) / kAlignment * kAlignment;
}

// Every value of the block at its own place in the workspace.
std::vector<Array> lay_out(const TypedBlock& block, std::span<std::byte> workspace) {
  std::vector<Array> values;
  std::byte* free = workspace.data();
  const auto count = static_cast<std::int32_t>(block.block().values().size());
  for (std::int32_t id = 0; id < count; ++id) {
    const TensorType& type = block.type(Value{id});
    values.emplace_back(reinterpret_cast<double*>(free), type.canonical());
    free += array_bytes(type);
  }
  return values;
}

// The strides of a view along n c d h w: 0 for the axes its type does not have.
Extents canonical_strides(const TensorType& type, const std::vector<std::int64_t>& strides) {
  Extents canonical = {};
  std::size_t i = 0;
  for (Axis axis : type.axes.list()) canonical[index(axis)] = strides[i++];
  return canonical;
}

std::int64_t offset(const Extents& strides, const Position& at) {
  std::int64_t sum = 0;
  for (int axis = 0; axis < kAxisCount; ++axis) sum += at[axis] * strides[axis];
  return sum;
}

void load(const TensorType& type, const ConstTensorView& view, Array values) {
  const Extents strides = canonical_strides(type, view.strides);
  for_each(values.extents, [&](const Position& at) {
    values[at] = load_element(view.data, view.dtype, offset(strides, at));
  });
}

void store(const TensorType& type, ConstArray values, const TensorView& view) {
  const Extents strides = canonical_strides(type, view.strides);
  for_each(values.extents, [&](const Position& at) {
    store_element(view.data, view.dtype, offset(strides, at), values[at]);
  });
}

// The operands of a node that are values.
std::vector<ConstArray> value_operands(const Node& node, std::span<const Array> values) {
  std::vector<ConstArray> operands;
  for (const Operand& operand : node.operands)
    if (!operand.is_scalar()) operands.emplace_back(values[operand.value().id]);
  return operands;
}

void run_node(const TypedBlock& block, int node_index, std::span<const Array> values) {
  const Node& node = block.block().nodes()[node_index];
  const std::vector<ConstArray> operands = value_operands(node, values);
  const Array y = values[node.result.id];
  const auto statistics = [&] { return statistics_geometry(block, node_index); };
  const auto pool = [&] { return pool_geometry(block, node_index); };
  const auto conv = [&] { return conv_geometry(block, node_index); };
  // A parameter that the node's flags may switch off, or an array of one constant in its place.
  const auto parameter = [&](std::size_t i, const double& absent) {
    return i < operands.size() ? operands[i] : ConstArray(&absent, {1, 1, 1, 1, 1});
  };

  switch (node.operation->code) {
    case OpCode::kPointwise:
    case OpCode::kFormula: return pointwise(block.block().formula(node_index), operands, y);
    case OpCode::kCast: return cast(operands[0], y);
    case OpCode::kZeros: return zeros(y);
    case OpCode::kExpand: return expand(operands[0], node.flag("share"), y);

    case OpCode::kConvolution: return convolution(conv(), operands[0], operands[1], parameter(2, kZero), y);
    case OpCode::kConvolutionGradInput: return convolution_grad_input(conv(), operands[0], operands[1], y);
    case OpCode::kConvolutionGradWeight: return convolution_grad_weight(conv(), operands[0], operands[1], y);

    case OpCode::kGroupNorm:
    case OpCode::kInstanceNorm:
    case OpCode::kLayerNorm:
      return mean_variance_norm(statistics(), operands[0], parameter(1, kOne), parameter(2, kZero), y);
    case OpCode::kRmsNorm: return rms_norm(statistics(), operands[0], parameter(1, kOne), y);
    case OpCode::kBatchNorm:
      return batch_norm(node.number("eps"), operands[0], operands[1], operands[2], parameter(3, kOne),
                        parameter(4, kZero), y);
    case OpCode::kL2Normalize: return l2_normalize(statistics(), operands[0], y);
    case OpCode::kSoftmax: return softmax(statistics(), operands[0], y);
    case OpCode::kRstd: return rstd(statistics(), operands[0], y);

    case OpCode::kMean: return mean(statistics(), operands[0], y);
    case OpCode::kSum: return sum(statistics(), operands[0], y);
    case OpCode::kMax: return max(statistics(), operands[0], y);
    case OpCode::kMin: return min(statistics(), operands[0], y);
    case OpCode::kLogSumExp: return logsumexp(statistics(), operands[0], y);

    case OpCode::kMaxPool: return max_pool(pool(), operands[0], y);
    case OpCode::kMaxPoolTake: return max_pool_take(pool(), operands[0], operands[1], y);
    case OpCode::kMaxPoolPut: return max_pool_put(pool(), operands[0], operands[1], y);
    case OpCode::kAvgPool: return avg_pool(pool(), operands[0], y);
    case OpCode::kAvgPoolGrad: return avg_pool_grad(pool(), operands[0], y);
  }
}

}  // namespace

std::size_t workspace_bytes(const TypedBlock& block) {
  const std::size_t limit = std::numeric_limits<std::ptrdiff_t>::max();
  std::size_t total = 0;
  const auto count = static_cast<std::int32_t>(block.block().values().size());
  for (std::int32_t id = 0; id < count; ++id) {
    const std::size_t bytes = array_bytes(block.type(Value{id}));
    if (bytes > limit - total) {
      throw NotSupportedError(
          "reference engine: the values of the block are too large to be kept in double precision");
    }
    total += bytes;
  }
  return total;
}

void run(const TypedBlock& block, const Arguments& arguments, std::span<std::byte> workspace) {
  const std::vector<Array> values = lay_out(block, workspace);

  const std::vector<Value> inputs = block.block().arguments();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    load(block.type(inputs[i]), arguments.inputs[i], values[inputs[i].id]);

  const int nodes = static_cast<int>(block.block().nodes().size());
  for (int node = 0; node < nodes; ++node) run_node(block, node, values);

  const std::span<const Value> outputs = block.block().outputs();
  for (std::size_t i = 0; i < outputs.size(); ++i)
    store(block.type(outputs[i]), values[outputs[i].id], arguments.outputs[i]);
}

}  // namespace fuseblock::reference
