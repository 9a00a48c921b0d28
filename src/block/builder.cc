#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "block/arguments.h"
#include "block/block_body.h"
#include "block/lexer.h"
#include "block/notation.h"
#include "block/table.h"
#include "block/text.h"
#include "fuseblock/block.h"

namespace fuseblock {
namespace {

// Larger ones could not be written down any more.
constexpr double kLargestFormula = 100000;

// How many letters to insert, drop, change, or swap with their neighbour.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const std::size_t changed = a[i - 1] == b[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + changed});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

// One value for each argument of the operation, defaults filled in.
std::vector<ArgumentValue> complete_arguments(const Operation& operation,
                                              const Builder::NamedArguments& given) {
  std::vector<std::optional<ArgumentValue>> found(operation.arguments.size());
  for (const auto& [name, value] : given) {
    const int place = operation.find_argument(name);
    if (place < 0)
      throw UserError(operation.name + ": there is no argument " + in_quotes(name) + "; it is " +
                      signature(operation));
    auto& slot = found[static_cast<std::size_t>(place)];
    if (slot) throw UserError(operation.name + ": argument `" + name + "` is given twice");
    try {
      slot = checked_argument(operation.arguments[static_cast<std::size_t>(place)], value);
    } catch (const UserError& error) {
      throw UserError(operation.name + ": " + error.what());
    }
  }
  std::vector<ArgumentValue> result;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const ArgumentSpec& spec = operation.arguments[i];
    if (!found[i] && spec.required)
      throw UserError(operation.name + ": argument `" + spec.name + "` is missing (" + spec.help +
                      "); it is " + signature(operation));
    result.push_back(found[i].value_or(spec.default_value));
  }
  return result;
}

void check_value_operands(const Operation& operation, const std::vector<Operand>& operands) {
  const auto wanted = static_cast<std::size_t>(operation.value_operand_count());
  if (operands.size() != wanted)
    throw UserError(operation.name + ": expected " + std::to_string(wanted) +
                    (wanted == 1 ? " operand" : " operands") + ", got " + std::to_string(operands.size()) +
                    "; it is " + signature(operation));
  for (std::size_t i = 0; i < wanted; ++i)
    if (operands[i].is_scalar() && operation.operands[i].role != OperandRole::kValueOrScalar)
      throw UserError(operation.name + ": operand `" + operation.operands[i].name +
                      "` is a value, got the number " + number_text(operands[i].scalar()));
}

bool is_present(const OperandSpec& operand, const Node& node) {
  return std::all_of(operand.present_if.begin(), operand.present_if.end(),
                     [&](const std::string& name) { return node.flag(name); });
}

bool is_parameter(const OperandSpec& operand) {
  return operand.role == OperandRole::kParameter || operand.role == OperandRole::kBuffer;
}

// The formula with one input for each different operand, folded.
Formula merge_equal_inputs(const Formula& formula, const std::vector<Value>& operands) {
  if (formula.steps().empty()) throw UserError("the formula is empty");
  if (formula.input_count() > static_cast<int>(operands.size()))
    throw UserError("the formula has more inputs than there are operands");
  std::vector<Formula> inputs;
  for (const Value& operand : operands)
    inputs.push_back(Formula::input(
        static_cast<int>(std::find(operands.begin(), operands.end(), operand) - operands.begin())));
  return formula.substitute(inputs);
}

std::vector<bool> find_buffers(const std::vector<Node>& nodes, std::size_t value_count) {
  std::vector<bool> buffers(value_count, false);
  for (const Node& node : nodes) {
    // Buffers come right after the value operands, before any operand that can be absent.
    for (std::size_t i = 0; i < node.operation->operands.size(); ++i)
      if (node.operation->operands[i].role == OperandRole::kBuffer)
        buffers[static_cast<std::size_t>(node.operands[i].value().id)] = true;
  }
  return buffers;
}

// A stage owns the parameters that bear its name: `conv2d.weight` as the weight of `conv2d`.
void find_owners(const std::vector<Node>& nodes, std::vector<ValueInfo>& values) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    auto next = static_cast<std::size_t>(node.operation->value_operand_count());
    for (const OperandSpec& operand : node.operation->operands) {
      if (!is_parameter(operand) || !is_present(operand, node)) continue;
      ValueInfo& info = values[static_cast<std::size_t>(node.operands[next++].value().id)];
      const std::string own = values[static_cast<std::size_t>(node.result.id)].name + "." + operand.name;
      if (info.kind == ValueKind::kParameter && info.name == own) info.node = static_cast<int>(i);
    }
  }
}

}  // namespace

const Operation& require_operation(std::string_view name) {
  if (const Operation* found = find_operation(name)) return *found;
  std::vector<std::string> close;
  for (const Operation* operation : operations())
    if (name.size() < 40 && edit_distance(name, operation->name) <= 1 + name.size() / 5)
      close.push_back(operation->name);
  throw UserError("no operation " + in_quotes(name) +
                  (close.empty() ? "" : "; did you mean " + join(close, " or ") + "?"));
}

void Builder::State::check_new_name(const std::string& name) const {
  if (!is_name(name)) throw UserError(in_quotes(name) + " is not a name");
  if (is_reserved(name))
    throw UserError(in_quotes(name) + " is a word of the notation and cannot name a value");
  if (by_name.contains(name)) throw UserError("the name `" + name + "` is taken already");
}

Value Builder::State::add_value(ValueInfo info) {
  check_new_name(info.name);
  const auto id = static_cast<std::int32_t>(values.size());
  by_name.emplace(info.name, id);
  values.push_back(std::move(info));
  return Value{id};
}

Value Builder::State::parameter(const std::string& name) {
  const auto place = by_name.find(name);
  if (place == by_name.end() || info(Value{place->second}).kind != ValueKind::kParameter)
    return add_value({name, ValueKind::kParameter, -1});
  return Value{place->second};
}

ValueInfo& Builder::State::info(Value value) {
  if (value.id < 0 || static_cast<std::size_t>(value.id) >= values.size())
    throw UserError("the builder has no value number " + std::to_string(value.id));
  return values[static_cast<std::size_t>(value.id)];
}

Builder::Builder() : state_(std::make_unique<State>()) { state_->add_value({"x", ValueKind::kInput, -1}); }
Builder::~Builder() = default;
Builder::Builder(Builder&&) noexcept = default;
Builder& Builder::operator=(Builder&&) noexcept = default;

Value Builder::value(std::string_view name) {
  const auto place = state_->by_name.find(std::string(name));
  if (place != state_->by_name.end()) return Value{place->second};
  const bool dotted = name.find('.') != std::string_view::npos;
  return state_->add_value({std::string(name), dotted ? ValueKind::kParameter : ValueKind::kInput, -1});
}

Value Builder::apply(std::string_view operation_name, const std::vector<Operand>& operands,
                     const NamedArguments& arguments, std::string_view name,
                     const NamedOperands& parameters) {
  const Operation& operation = require_operation(operation_name);
  Node node;
  node.operation = &operation;
  node.arguments = complete_arguments(operation, arguments);
  check_value_operands(operation, operands);
  for (const Operand& operand : operands) {
    if (!operand.is_scalar()) state_->info(operand.value());
    // Every NaN is written `nan`, so that there is only one.
    const bool is_nan = operand.is_scalar() && std::isnan(operand.scalar());
    node.operands.push_back(is_nan ? Operand(std::numeric_limits<double>::quiet_NaN()) : operand);
  }
  for (const auto& [key, value] : parameters) {
    state_->info(value);
    const int place = operation.find_operand(key);
    if (place < 0 || !is_parameter(operation.operands[static_cast<std::size_t>(place)]))
      throw UserError(operation.name + ": there is no parameter " + in_quotes(key));
    if (!is_present(operation.operands[static_cast<std::size_t>(place)], node))
      throw UserError(operation.name + ": parameter `" + key + "` is given, but its flag is off");
  }

  const int index = static_cast<int>(state_->nodes.size());
  const std::string result_name = name.empty() ? free_name(operation.name) : std::string(name);
  state_->check_new_name(result_name);
  for (const OperandSpec& operand : operation.operands) {
    if (!is_parameter(operand) || !is_present(operand, node)) continue;
    const auto given = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const auto& entry) { return entry.first == operand.name; });
    node.operands.emplace_back(
        given != parameters.end() ? given->second : state_->parameter(result_name + "." + operand.name));
  }
  node.result = state_->add_value({result_name, ValueKind::kResult, index});
  state_->nodes.push_back(std::move(node));
  return state_->nodes.back().result;
}

Value Builder::apply(const Formula& formula, const std::vector<Value>& operands, std::string_view name) {
  for (Value operand : operands) state_->info(operand);
  Node node;
  node.operation = &formula_operation();
  const Formula merged = merge_equal_inputs(formula, operands);
  // Operands in the order in which the formula mentions them, so that its text alone says everything.
  std::vector<Formula> inputs(operands.size(), Formula::constant(0));
  for (const Formula::Step& step : merged.steps()) {
    if (step.primitive != Primitive::kInput) continue;
    const auto number = static_cast<std::size_t>(step.input);
    inputs[number] = Formula::input(static_cast<int>(node.operands.size()));
    node.operands.emplace_back(operands[number]);
  }
  if (node.operands.empty()) throw UserError("a formula needs at least one value");
  node.formula = merged.substitute(inputs);
  if (node.formula.written_size() > kLargestFormula)
    throw UserError("the formula is too long to be written down");
  node.result = state_->add_value({name.empty() ? free_name("value") : std::string(name), ValueKind::kResult,
                                   static_cast<int>(state_->nodes.size())});
  state_->nodes.push_back(std::move(node));
  return state_->nodes.back().result;
}

Value Builder::formula(std::string_view text, std::string_view name) {
  Lexer lexer(text);
  const auto [formula, operands] = read_formula(lexer, *this);
  if (lexer.peek().kind != TokenKind::kEnd) lexer.fail(lexer.peek(), "expected the end of the formula");
  return apply(formula, operands, name);
}

std::string Builder::free_name(std::string_view name) const {
  const std::string base(name);
  if (!state_->by_name.contains(base)) return base;
  int& number = state_->next_number.try_emplace(base, 2).first->second;
  while (state_->by_name.contains(base + std::to_string(number))) ++number;
  return base + std::to_string(number);
}

const std::string& Builder::name(Value value) const { return state_->info(value).name; }

bool Builder::is_result(Value value) const { return state_->info(value).kind == ValueKind::kResult; }

std::int32_t Builder::value_count() const { return static_cast<std::int32_t>(state_->values.size()); }

void Builder::rename(Value value, std::string_view name) {
  ValueInfo& info = state_->info(value);
  if (info.name == name) return;
  if (info.kind != ValueKind::kResult || !is_name(name) || is_reserved(name) ||
      state_->by_name.contains(std::string(name)))
    throw UserError("`" + info.name + "` cannot be renamed to " + in_quotes(name));
  state_->by_name.erase(info.name);
  state_->by_name.emplace(name, value.id);
  info.name = name;
}

Block Builder::finish(const std::vector<Value>& outputs) {
  if (outputs.empty()) throw UserError("a block needs at least one output");
  // Backwards: which nodes do the outputs need?
  std::vector<bool> needed_value(state_->values.size(), false);
  for (Value output : outputs) {
    const ValueInfo& info = state_->info(output);
    if (info.kind != ValueKind::kResult)
      throw UserError("output `" + info.name + "` is an input; outputs are results");
    if (needed_value[static_cast<std::size_t>(output.id)])
      throw UserError("output `" + info.name + "` is named twice");
    needed_value[static_cast<std::size_t>(output.id)] = true;
  }
  std::vector<bool> needed_node(state_->nodes.size(), false);
  for (std::size_t i = state_->nodes.size(); i-- > 0;) {
    const Node& node = state_->nodes[i];
    needed_node[i] = needed_value[static_cast<std::size_t>(node.result.id)];
    if (!needed_node[i]) continue;
    for (const Operand& operand : node.operands)
      if (!operand.is_scalar()) needed_value[static_cast<std::size_t>(operand.value().id)] = true;
  }

  // Forwards: copy them, values numbered by first use.
  auto body = std::make_shared<Block::Body>();
  std::vector<std::int32_t> new_id(state_->values.size(), -1);
  std::vector<int> new_node(state_->nodes.size(), -1);
  auto renumber = [&](Value value) {
    std::int32_t& id = new_id[static_cast<std::size_t>(value.id)];
    if (id < 0) {
      id = static_cast<std::int32_t>(body->values.size());
      ValueInfo info = state_->values[static_cast<std::size_t>(value.id)];
      info.node = info.kind == ValueKind::kResult ? new_node[static_cast<std::size_t>(info.node)] : -1;
      body->by_name.emplace(info.name, id);
      body->values.push_back(std::move(info));
    }
    return Value{id};
  };
  renumber(x());
  for (std::size_t i = 0; i < state_->nodes.size(); ++i) {
    if (!needed_node[i]) continue;
    new_node[i] = static_cast<int>(body->nodes.size());
    Node node = state_->nodes[i];
    for (Operand& operand : node.operands)
      if (!operand.is_scalar()) operand = renumber(operand.value());
    node.result = renumber(node.result);
    body->nodes.push_back(std::move(node));
    if (!state_->source.empty()) body->origins.push_back(state_->origins[i]);
  }
  for (Value output : outputs) body->outputs.push_back(renumber(output));
  find_owners(body->nodes, body->values);
  body->buffers = find_buffers(body->nodes, body->values.size());
  body->source = state_->source;
  return Block(std::move(body));
}

}  // namespace fuseblock
