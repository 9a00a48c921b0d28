#include "fuseblock/block.h"

#include <algorithm>
#include <bit>

#include "block/arguments.h"
#include "block/block_body.h"
#include "block/text.h"

namespace fuseblock {

bool Operand::operator==(const Operand& other) const {
  return value_ == other.value_ &&
         std::bit_cast<std::uint64_t>(scalar_) == std::bit_cast<std::uint64_t>(other.scalar_);
}

const ArgumentValue& Node::argument(std::string_view name) const {
  const int place = operation->find_argument(name);
  if (place < 0) throw InternalError(operation->name + " has no argument " + std::string(name));
  return arguments[static_cast<std::size_t>(place)];
}

std::int64_t Node::integer(std::string_view name) const { return std::get<std::int64_t>(argument(name)); }
double Node::number(std::string_view name) const { return std::get<double>(argument(name)); }
bool Node::flag(std::string_view name) const { return std::get<bool>(argument(name)); }
const std::string& Node::keyword(std::string_view name) const {
  return std::get<std::string>(argument(name));
}
AxisSet Node::axes(std::string_view name) const { return std::get<AxisSet>(argument(name)); }

Value Node::operand(int index) const {
  const Operand& operand = operands.at(static_cast<std::size_t>(index));
  if (operand.is_scalar())
    throw InternalError("operand " + std::to_string(index) + " of " + operation->name + " is a number");
  return operand.value();
}

std::span<const ValueInfo> Block::values() const { return body_->values; }
const ValueInfo& Block::value(Value value) const {
  return body_->values.at(static_cast<std::size_t>(value.id));
}
std::span<const Node> Block::nodes() const { return body_->nodes; }
std::span<const Value> Block::outputs() const { return body_->outputs; }

std::vector<Value> Block::arguments() const {
  std::vector<Value> result;
  for (ValueKind kind : {ValueKind::kInput, ValueKind::kParameter})
    for (std::size_t i = 0; i < body_->values.size(); ++i)
      if (body_->values[i].kind == kind) result.push_back(Value{static_cast<std::int32_t>(i)});
  return result;
}

std::optional<Value> Block::find(std::string_view name) const {
  const auto place = body_->by_name.find(std::string(name));
  if (place == body_->by_name.end()) return std::nullopt;
  return Value{place->second};
}

Formula Block::formula(int node) const {
  const Node& which = nodes()[static_cast<std::size_t>(node)];
  if (which.operation->code == OpCode::kFormula) return which.formula;
  if (which.operation->code != OpCode::kPointwise)
    throw InternalError(which.operation->name + " has no formula");
  std::vector<Formula> inputs;
  int next = 0;
  for (const Operand& operand : which.operands)
    inputs.push_back(operand.is_scalar() ? Formula::constant(operand.scalar()) : Formula::input(next++));
  for (std::size_t i = 0; i < which.arguments.size(); ++i)
    inputs.push_back(Formula::constant(formula_constant(which.operation->arguments[i], which.arguments[i])));
  return which.operation->formula.substitute(inputs);
}

bool Block::differentiable(Value value) const {
  return this->value(value).kind == ValueKind::kResult || !body_->buffers[static_cast<std::size_t>(value.id)];
}

namespace {

template <class Kind>
[[noreturn]] void throw_at(const std::string& message, const std::string& source, const Origin& origin) {
  if (source.empty()) throw Kind(message);
  if (!origin.pointer.empty()) throw Kind(message, Position{0, 0, origin.pointer}, "");
  throw Kind(message, position_of(source, origin.begin),
             excerpt_of(source, origin.begin, origin.end - origin.begin));
}

}  // namespace

void Block::fail(int node, const std::string& message) const {
  const Origin origin = body_->source.empty() ? Origin{} : body_->origins[static_cast<std::size_t>(node)];
  throw_at<UserError>(stage_text(node) + ": " + message, body_->source, origin);
}

void Block::fail_unsupported(int node, const std::string& message) const {
  const Origin origin = body_->source.empty() ? Origin{} : body_->origins[static_cast<std::size_t>(node)];
  throw_at<NotSupportedError>(stage_text(node) + ": " + message, body_->source, origin);
}

bool Block::operator==(const Block& other) const {
  auto same_value = [](const ValueInfo& a, const ValueInfo& b) {
    return a.name == b.name && a.kind == b.kind && a.node == b.node;
  };
  return body_ == other.body_ ||
         (body_->nodes == other.body_->nodes && body_->outputs == other.body_->outputs &&
          std::equal(body_->values.begin(), body_->values.end(), other.body_->values.begin(),
                     other.body_->values.end(), same_value));
}

}  // namespace fuseblock
