// Convolutions and pools. A convolution is linear in its input and in its weight, so the three operations
// (forward, gradient by input, gradient by weight) are each other's derivatives; the same holds for the pairs
// of pooling operations.
#include "block/adjoint.h"

namespace fuseblock {
namespace {

// `conv2d`, from `conv2d`, `conv2d_grad_input` or `conv2d_grad_weight`.
std::string family(const Node& node) {
  const std::string& name = node.operation->name;
  return name.substr(0, name.find("_grad_"));
}

// Applies one of the family's three operations with the arguments of the node.
class Family {
 public:
  Family(Adjoint& adjoint, const Node& node) : adjoint_(adjoint), node_(node), name_(family(node)) {}

  Value forward(Value x, Value weight) const {
    Builder::NamedArguments arguments = named_arguments(node_);
    for (auto& [name, value] : arguments)
      if (name == "bias") value = false;
    return adjoint_.build().apply(name_, {x}, arguments, {}, {{"weight", weight}});
  }
  Value grad_input(Value d_y, Value weight, Value like) const {
    return adjoint_.build().apply(name_ + "_grad_input", {d_y, weight, like}, named_arguments(node_));
  }
  Value grad_weight(Value d_y, Value x, Value like) const {
    return adjoint_.build().apply(name_ + "_grad_weight", {d_y, x, like}, named_arguments(node_));
  }

 private:
  Adjoint& adjoint_;
  const Node& node_;
  std::string name_;
};

}  // namespace

void differentiate_convolution(Adjoint& adjoint, int node, Value d_result) {
  const Node& which = adjoint.forward().block().nodes()[static_cast<std::size_t>(node)];
  const Family convolution(adjoint, which);
  auto here = [&](int operand) { return adjoint.here(which.operand(operand)); };
  auto needs = [&](int operand) { return adjoint.needs(which.operand(operand)); };
  switch (which.operation->code) {
    case OpCode::kConvolution:  // y = conv(x, weight) + bias
      if (needs(0)) adjoint.add(which.operand(0), convolution.grad_input(d_result, here(1), here(0)));
      if (needs(1)) adjoint.add(which.operand(1), convolution.grad_weight(d_result, here(0), here(1)));
      if (which.flag("bias"))
        adjoint.add_reduced(which.operand(2), d_result, adjoint.forward().type(which.result));
      return;
    case OpCode::
        kConvolutionGradInput:  // d_x = grad_input(d_y, weight); the result's gradient has the type of x
      if (needs(0)) adjoint.add(which.operand(0), convolution.forward(d_result, here(1)));
      if (needs(1)) adjoint.add(which.operand(1), convolution.grad_weight(here(0), d_result, here(1)));
      return;
    case OpCode::
        kConvolutionGradWeight:  // d_w = grad_weight(d_y, x); the result's gradient has the type of the weight
      if (needs(0)) adjoint.add(which.operand(0), convolution.forward(here(1), d_result));
      if (needs(1)) adjoint.add(which.operand(1), convolution.grad_input(here(0), d_result, here(1)));
      return;
    default: throw InternalError("not a convolution: " + which.operation->name);
  }
}

void differentiate_pool(Adjoint& adjoint, int node, Value d_result) {
  const Node& which = adjoint.forward().block().nodes()[static_cast<std::size_t>(node)];
  const Builder::NamedArguments arguments = named_arguments(which);
  const Value first = which.operand(0);
  if (!adjoint.needs(first)) return;
  auto apply = [&](const std::string& name, const std::vector<Operand>& operands) {
    adjoint.add(first, adjoint.build().apply(name, operands, arguments));
  };
  switch (which.operation->code) {
    case OpCode::kMaxPool: apply("max_pool_put", {d_result, adjoint.here(first)}); return;
    case OpCode::kMaxPoolTake: apply("max_pool_put", {d_result, adjoint.here(which.operand(1))}); return;
    case OpCode::kMaxPoolPut: apply("max_pool_take", {d_result, adjoint.here(which.operand(1))}); return;
    case OpCode::kAvgPool: apply("avg_pool_grad", {d_result, adjoint.here(first)}); return;
    case OpCode::kAvgPoolGrad: apply("avg_pool", {d_result}); return;
    default: throw InternalError("not a pool: " + which.operation->name);
  }
}

}  // namespace fuseblock
