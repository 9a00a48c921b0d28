#include "block/adjoint.h"

#include <algorithm>
#include <unordered_set>

#include "block/formula_text.h"
#include "block/text.h"

namespace fuseblock {
namespace {

// A slope times the input number `d`. Where the slope is a choice the product is one too: a slope of 0 then
// stops an infinite gradient, as in PyTorch, and does not make it NaN.
Formula scaled(const Formula& slope, int d) {
  FormulaBuilder builder;
  const FormulaBuilder::Id factor = builder.input(d);
  std::vector<FormulaBuilder::Id> values;
  std::vector<FormulaBuilder::Id> products;
  for (const Formula::Step& step : slope.steps()) {
    auto at = [](const std::vector<FormulaBuilder::Id>& ids, std::int32_t i) {
      return i < 0 ? -1 : ids[static_cast<std::size_t>(i)];
    };
    switch (step.primitive) {
      case Primitive::kInput: values.push_back(builder.input(step.input)); break;
      case Primitive::kConstant: values.push_back(builder.constant(step.constant)); break;
      default:
        values.push_back(
            builder.apply(step.primitive, at(values, step.a), at(values, step.b), at(values, step.c)));
    }
    products.push_back(step.primitive == Primitive::kSelect
                           ? builder.apply_derived(Primitive::kSelect, at(values, step.a),
                                                   at(products, step.b), at(products, step.c))
                           : builder.apply_derived(Primitive::kMul, factor, values.back()));
  }
  return builder.finish(products.back());
}

}  // namespace

Builder::NamedArguments named_arguments(const Node& node) {
  Builder::NamedArguments result;
  for (std::size_t i = 0; i < node.arguments.size(); ++i)
    result.emplace_back(node.operation->arguments[i].name, node.arguments[i]);
  return result;
}

Adjoint::Adjoint(const TypedBlock& forward, std::vector<std::string> wanted)
    : forward_(forward), wanted_(std::move(wanted)) {
  if (wanted_.empty()) wanted_ = forward_.differentiable();
  std::unordered_set<std::string> seen;
  for (const std::string& name : wanted_) {
    const auto value = forward_.block().find(name);
    if (!value || forward_.block().value(*value).kind == ValueKind::kResult)
      throw UserError("backward: " + in_quotes(name) +
                      " is not an input or parameter of the block; those with a gradient are " +
                      join(forward_.differentiable(), ", "));
    if (!forward_.block().differentiable(*value))
      throw UserError("backward: `" + name + "` holds running statistics, which have no gradient");
    if (!seen.insert(name).second) throw UserError("backward: `" + name + "` is wanted twice");
  }
}

TypedBlock Adjoint::run() {
  copy_forward();
  find_needs();
  start_from_outputs();
  const auto nodes = forward_.block().nodes();
  for (int node = static_cast<int>(nodes.size()) - 1; node >= 0; --node) {
    const Value result = nodes[static_cast<std::size_t>(node)].result;
    if (!needs(result) || contributions_[static_cast<std::size_t>(result.id)].empty()) continue;
    try {
      differentiate(node, gradient(result));
    } catch (const UserError& error) {
      forward_.block().fail(node, std::string("its gradient: ") + error.what());
    }
  }
  std::vector<Value> outputs;
  for (const std::string& name : wanted_)
    outputs.push_back(output_gradient(name, *forward_.block().find(name), outputs));
  const TypedBlock typed = infer(builder_.finish(outputs));
  cast_outputs(typed, outputs);
  return infer(builder_.finish(outputs));
}

void Adjoint::copy_forward() {
  const Block& block = forward_.block();
  copies_.assign(block.values().size(), Value{});
  copies_[0] = builder_.x();
  auto copy = [&](const Operand& operand) -> Operand {
    if (operand.is_scalar()) return operand;
    Value& known = copies_[static_cast<std::size_t>(operand.value().id)];
    if (known.id < 0) known = builder_.value(block.value(operand.value()).name);
    return known;
  };
  for (const Node& node : block.nodes()) {
    const std::string& name = block.value(node.result).name;
    Value& result = copies_[static_cast<std::size_t>(node.result.id)];
    std::vector<Operand> operands;
    if (node.operation->code == OpCode::kFormula) {
      std::vector<Value> values;
      for (const Operand& operand : node.operands) values.push_back(copy(operand).value());
      result = builder_.apply(node.formula, values, name);
      continue;
    }
    const auto value_operands = static_cast<std::size_t>(node.operation->value_operand_count());
    for (std::size_t i = 0; i < value_operands; ++i) operands.push_back(copy(node.operands[i]));
    Builder::NamedOperands parameters;
    std::size_t next = value_operands;
    for (std::size_t i = value_operands; i < node.operation->operands.size() && next < node.operands.size();
         ++i) {
      const OperandSpec& spec = node.operation->operands[i];
      const bool present = std::all_of(spec.present_if.begin(), spec.present_if.end(),
                                       [&](const auto& flag) { return node.flag(flag); });
      if (!present) continue;
      const Value parameter = node.operands[next++].value();
      if (block.value(parameter).name != name + "." + spec.name)
        parameters.emplace_back(spec.name, copy(parameter).value());
    }
    result = builder_.apply(node.operation->name, operands, named_arguments(node), name, parameters);
    for (std::size_t i = value_operands; i < node.operands.size(); ++i) copy(node.operands[i]);
  }
  contributions_.resize(block.values().size());
  forward_values_ = builder_.value_count();
}

void Adjoint::find_needs() {
  const Block& block = forward_.block();
  needs_.assign(block.values().size(), false);
  for (const std::string& name : wanted_) needs_[static_cast<std::size_t>(block.find(name)->id)] = true;
  for (const Node& node : block.nodes())
    for (const Operand& operand : node.operands)
      if (!operand.is_scalar() && needs(operand.value()))
        needs_[static_cast<std::size_t>(node.result.id)] = true;
}

void Adjoint::start_from_outputs() {
  for (Value output : forward_.block().outputs()) {
    const std::string name = "d_" + forward_.block().value(output).name;
    d_outputs_.push_back(builder_.value(builder_.free_name(name)));
    add(output, d_outputs_.back());
  }
}

void Adjoint::add(Value value, Value contribution) {
  if (needs(value)) contributions_[static_cast<std::size_t>(value.id)].push_back(contribution);
}

void Adjoint::add_reduced(Value value, Value contribution, const TensorType& from, bool average) {
  if (!needs(value)) return;
  const TensorType& to = forward_.type(value);
  AxisSet kept;     // shorter axes that stay with extent 1
  AxisSet removed;  // axes that `to` does not have
  for (Axis axis : from.axes.list()) {
    if (!to.axes.contains(axis))
      removed.insert(axis);
    else if (to.extent(axis) != from.extent(axis))
      kept.insert(axis);
  }
  const std::string operation = average ? "mean" : "sum";
  if (!kept.empty())
    contribution = builder_.apply(operation, {contribution}, {{"axes", kept}, {"keepdim", true}});
  if (!removed.empty()) contribution = builder_.apply(operation, {contribution}, {{"axes", removed}});
  add(value, contribution);
}

Value Adjoint::formula(std::string_view text,
                       std::initializer_list<std::pair<std::string_view, Term>> terms) {
  FormulaBuilder steps;
  std::vector<Value> operands;
  Lexer lexer(text);
  ExpressionContext context;
  context.name = [&](const Token& token) {
    for (const auto& [name, term] : terms) {
      if (name != token.text) continue;
      if (const auto* number = std::get_if<double>(&term)) return steps.constant(*number);
      operands.push_back(std::get<Value>(term));
      return steps.input(static_cast<int>(operands.size()) - 1);
    }
    throw InternalError("a rule's formula mentions " + std::string(token.text));
  };
  context.operation = [](std::string_view) { return nullptr; };
  const FormulaBuilder::Id root = read_expression(lexer, steps, context);
  return builder_.apply(steps.finish(root), operands);
}

// The sum of the contributions to a value's gradient, under the name `d_` + value where it is free.
Value Adjoint::gradient(Value value) {
  auto& parts = contributions_[static_cast<std::size_t>(value.id)];
  while (parts.size() > 1) {
    const Value sum = formula("a + b", {{"a", parts[0]}, {"b", parts[1]}});
    parts.erase(parts.begin());
    parts[0] = sum;
  }
  const Value total = parts[0];
  named_.resize(std::max(named_.size(), static_cast<std::size_t>(total.id) + 1), false);
  const bool is_forward = total.id < forward_values_;
  if (!named_[static_cast<std::size_t>(total.id)] && !is_forward && builder_.is_result(total))
    builder_.rename(total, builder_.free_name("d_" + forward_.block().value(value).name));
  named_[static_cast<std::size_t>(total.id)] = true;
  return total;
}

void Adjoint::differentiate(int node, Value d_result) {
  const Node& which = forward_.block().nodes()[static_cast<std::size_t>(node)];
  switch (which.operation->code) {
    case OpCode::kPointwise:
    case OpCode::kFormula: differentiate_pointwise(node, d_result); return;
    case OpCode::kConvolution:
    case OpCode::kConvolutionGradInput:
    case OpCode::kConvolutionGradWeight: differentiate_convolution(*this, node, d_result); return;
    case OpCode::kGroupNorm:
    case OpCode::kInstanceNorm:
    case OpCode::kLayerNorm:
    case OpCode::kRmsNorm:
    case OpCode::kBatchNorm:
    case OpCode::kL2Normalize:
    case OpCode::kSoftmax: differentiate_norm(*this, node, d_result); return;
    case OpCode::kMean:
    case OpCode::kSum:
    case OpCode::kMax:
    case OpCode::kMin:
    case OpCode::kLogSumExp:
    case OpCode::kRstd:
    case OpCode::kExpand: differentiate_reduction(*this, node, d_result); return;
    case OpCode::kMaxPool:
    case OpCode::kMaxPoolTake:
    case OpCode::kMaxPoolPut:
    case OpCode::kAvgPool:
    case OpCode::kAvgPoolGrad: differentiate_pool(*this, node, d_result); return;
    case OpCode::kCast: {
      const Value x = which.operand(0);
      add(x, builder_.apply("cast", {d_result}, {{"dtype", std::string(to_string(forward_.type(x).dtype))}}));
      return;
    }
    case OpCode::kZeros: return;
  }
}

// d_operand = d_result * (derivative of the formula by the operand), summed where the operand was broadcast.
void Adjoint::differentiate_pointwise(int node, Value d_result) {
  const Node& which = forward_.block().nodes()[static_cast<std::size_t>(node)];
  const Formula formula = forward_.block().formula(node);
  std::vector<Value> operands;
  for (const Operand& operand : which.operands)
    if (!operand.is_scalar()) operands.push_back(operand.value());
  std::vector<Value> inputs;
  for (Value operand : operands) inputs.push_back(here(operand));
  inputs.push_back(d_result);
  const int d = static_cast<int>(operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!needs(operands[i])) continue;
    const Formula slope = formula.derivative(static_cast<int>(i));
    const Formula product = scaled(slope, d);
    if (product.is_constant(0)) continue;
    const Value contribution = slope.is_constant(1) ? d_result : builder_.apply(product, inputs);
    add_reduced(operands[i], contribution, forward_.type(which.result));
  }
}

// The gradient of a wanted argument as an output: a result that no other output is, under the name `d_` +
// argument.
Value Adjoint::output_gradient(const std::string& name, Value argument, std::vector<Value>& outputs) {
  auto& parts = contributions_[static_cast<std::size_t>(argument.id)];
  if (parts.empty()) {
    const Value like = here(argument).id >= 0 ? here(argument) : builder_.value(name);
    return builder_.apply("zeros", {like}, {}, builder_.free_name("d_" + name));
  }
  const Value total = gradient(argument);
  const bool usable =
      builder_.is_result(total) && std::find(outputs.begin(), outputs.end(), total) == outputs.end();
  if (!usable) return builder_.apply(Formula::input(0), {total}, builder_.free_name("d_" + name));
  if (builder_.name(total) != "d_" + name) builder_.rename(total, builder_.free_name("d_" + name));
  return total;
}

TypedBlock Adjoint::infer(const Block& block) const {
  TypeMap types;
  auto add = [&](const std::string& name, const TensorType& type) {
    const auto value = block.find(name);
    if (value && value->id > 0 && block.value(*value).kind != ValueKind::kResult) types.emplace(name, type);
  };
  for (const NamedType& argument : forward_.arguments()) add(argument.name, argument.type);
  for (std::size_t i = 0; i < d_outputs_.size(); ++i)
    add(builder_.name(d_outputs_[i]), forward_.type(forward_.block().outputs()[i]));
  return TypedBlock::infer(block, forward_.type(Value{0}), types);
}

// A gradient has the dtype of what it is the gradient of.
void Adjoint::cast_outputs(const TypedBlock& typed, std::vector<Value>& outputs) {
  const std::vector<NamedType> types = typed.outputs();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const DType wanted = forward_.type(*forward_.block().find(wanted_[i])).dtype;
    if (types[i].type.dtype == wanted) continue;
    builder_.rename(outputs[i], builder_.free_name(types[i].name + "_wide"));
    outputs[i] =
        builder_.apply("cast", {outputs[i]}, {{"dtype", std::string(to_string(wanted))}}, types[i].name);
  }
}

TypedBlock TypedBlock::backward(std::vector<std::string> wanted) const {
  return Adjoint(*this, std::move(wanted)).run();
}

}  // namespace fuseblock
