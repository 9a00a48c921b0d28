// Operations and bytes of a node when it runs by itself.
#include "block/geometry.h"
#include "fuseblock/typed_block.h"

namespace fuseblock {
namespace {

double elements(const TypedBlock& block, Value value) {
  return static_cast<double>(block.type(value).element_count());
}

double window_size(const PoolGeometry& geometry) {
  return static_cast<double>(geometry.window[0]) * static_cast<double>(geometry.window[1]) *
         static_cast<double>(geometry.window[2]);
}

// Primitives of a formula, without inputs and constants.
double primitive_count(const Formula& formula) {
  double count = 0;
  for (const Formula::Step& step : formula.steps())
    if (step.primitive != Primitive::kInput && step.primitive != Primitive::kConstant) ++count;
  return count;
}

}  // namespace

double TypedBlock::operation_count(int node) const {
  const Node& which = block().nodes()[static_cast<std::size_t>(node)];
  const double result = elements(*this, which.result);
  switch (which.operation->code) {
    case OpCode::kPointwise:
    case OpCode::kFormula: return primitive_count(block().formula(node)) * result;
    case OpCode::kCast:
    case OpCode::kZeros:
    case OpCode::kExpand: return 0;
    case OpCode::kConvolution:
    case OpCode::kConvolutionGradInput:
    case OpCode::kConvolutionGradWeight: return 2 * conv_geometry(*this, node).multiply_adds();
    // Sum, squared deviation, then subtract, scale, scale, shift.
    case OpCode::kGroupNorm:
    case OpCode::kInstanceNorm:
    case OpCode::kLayerNorm: return 8 * result;
    case OpCode::kRmsNorm:
    case OpCode::kL2Normalize:
    case OpCode::kSoftmax: return 4 * result;
    case OpCode::kBatchNorm: return 2 * result;
    case OpCode::kMean:
    case OpCode::kSum:
    case OpCode::kMax:
    case OpCode::kMin: return elements(*this, which.operand(0));
    case OpCode::kLogSumExp:
    case OpCode::kRstd: return 4 * elements(*this, which.operand(0));
    case OpCode::kMaxPool:
    case OpCode::kMaxPoolTake:
    case OpCode::kAvgPool: return window_size(pool_geometry(*this, node)) * result;
    case OpCode::kMaxPoolPut:
    case OpCode::kAvgPoolGrad:
      return window_size(pool_geometry(*this, node)) * elements(*this, which.operand(0));
  }
  throw InternalError("an operation without a count");
}

double TypedBlock::byte_count(int node) const {
  const Node& which = block().nodes()[static_cast<std::size_t>(node)];
  double bytes = static_cast<double>(type(which.result).byte_count());
  for (std::size_t i = 0; i < which.operands.size(); ++i) {
    if (which.operands[i].is_scalar()) continue;
    const bool only_its_type =
        i < which.operation->operands.size() && which.operation->operands[i].name == "like";
    if (!only_its_type) bytes += static_cast<double>(type(which.operands[i].value()).byte_count());
  }
  return bytes;
}

double TypedBlock::border_bytes() const {
  double bytes = 0;
  for (const NamedType& argument : arguments()) bytes += static_cast<double>(argument.type.byte_count());
  for (const NamedType& output : outputs()) bytes += static_cast<double>(output.type.byte_count());
  return bytes;
}

}  // namespace fuseblock
