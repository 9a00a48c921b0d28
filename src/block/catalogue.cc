// The catalogue: both tables, with formulas read, and what programs add at run time.
#include <algorithm>
#include <deque>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "block/arguments.h"
#include "block/formula_text.h"
#include "block/table.h"
#include "block/text.h"
#include "fuseblock/error.h"
#include "fuseblock/operations.h"

namespace fuseblock {
namespace {

[[noreturn]] void refuse(const Operation& operation, const std::string& message) {
  throw UserError("define_pointwise: " + operation.name + ": " + message);
}

void check_names(const Operation& operation) {
  auto is_word = [](const std::string& name) {
    return is_name(name) && name.find('.') == std::string::npos && !is_reserved(name);
  };
  if (!is_word(operation.name))
    throw UserError("define_pointwise: " + in_quotes(operation.name) +
                    " is not a name an operation can have");
  std::vector<std::string> names;
  for (const OperandSpec& operand : operation.operands) names.push_back(operand.name);
  for (const ArgumentSpec& argument : operation.arguments) {
    names.push_back(argument.name);
    if (!argument.alias.empty()) names.push_back(argument.alias);
  }
  for (const std::string& name : names) {
    if (!is_word(name)) refuse(operation, in_quotes(name) + " is not a name an operand or argument can have");
    if (std::count(names.begin(), names.end(), name) > 1)
      refuse(operation, in_quotes(name) + " is named twice");
  }
}

void check_operands(const Operation& operation) {
  if (operation.operands.empty() || operation.operands[0].role != OperandRole::kValue)
    refuse(operation, "the first operand must be a value");
  for (const OperandSpec& operand : operation.operands)
    if ((operand.role != OperandRole::kValue && operand.role != OperandRole::kValueOrScalar) ||
        !operand.present_if.empty())
      refuse(operation, "operand `" + operand.name + "` must be a value or a number, always there");
}

// Also brings the default value into its normal form.
void check_argument(const Operation& operation, ArgumentSpec& argument) {
  if (argument.kind == ArgumentKind::kIntegers || argument.kind == ArgumentKind::kAxes)
    refuse(operation,
           "argument `" + argument.name + "` cannot stand in a formula; use a number, a flag or a keyword");
  if (argument.required) return;
  if (std::holds_alternative<std::monostate>(argument.default_value))
    refuse(operation, "argument `" + argument.name + "` needs a default value");
  try {
    argument.default_value = checked_argument(argument, argument.default_value);
  } catch (const UserError& error) {
    refuse(operation, std::string("the default of ") + error.what());
  }
}

class Catalogue {
 public:
  Catalogue() {
    for (Operation& operation : pointwise_table()) add_pointwise(std::move(operation));
    for (Operation& operation : structural_table()) add(std::move(operation));
    // What a formula in statement form becomes; it has no name to be called by.
    Operation formula;
    formula.code = OpCode::kFormula;
    formula.summary = "A formula written in the block itself.";
    formula_ = std::move(formula);
  }

  std::vector<const Operation*> list() const {
    const std::shared_lock lock(mutex_);
    std::vector<const Operation*> result;
    for (const Operation& operation : operations_) result.push_back(&operation);
    return result;
  }

  const Operation* find(std::string_view name) const {
    const std::shared_lock lock(mutex_);
    const auto place = by_name_.find(std::string(name));
    return place == by_name_.end() ? nullptr : place->second;
  }

  const Operation& define(Operation operation) {
    check_names(operation);
    check_operands(operation);
    for (ArgumentSpec& argument : operation.arguments) check_argument(operation, argument);
    operation.code = OpCode::kPointwise;
    return add_pointwise(std::move(operation));
  }

  const Operation& formula() const { return formula_; }

 private:
  const Operation& add_pointwise(Operation operation) {
    operation.formula = read_formula(operation);
    return add(std::move(operation));
  }

  // Names in the text are operands and arguments, numbered in that order.
  Formula read_formula(const Operation& operation) const {
    FormulaBuilder builder;
    Lexer lexer(operation.formula_text);
    ExpressionContext context;
    context.name = [&](const Token& token) {
      const int operand = operation.find_operand(token.text);
      if (operand >= 0) return builder.input(operand);
      const int argument = operation.find_argument(token.text);
      if (argument < 0)
        lexer.fail(token, operation.name + " has no operand or argument " + in_quotes(token.text));
      return builder.input(static_cast<int>(operation.operands.size()) + argument);
    };
    context.operation = [this](std::string_view name) {
      const Operation* found = find(name);
      return found != nullptr && found->code == OpCode::kPointwise ? found : nullptr;
    };
    const FormulaBuilder::Id root = read_expression(lexer, builder, context);
    if (lexer.peek().kind != TokenKind::kEnd) lexer.fail(lexer.peek(), "expected the end of the formula");
    return builder.finish(root);
  }

  const Operation& add(Operation operation) {
    const std::unique_lock lock(mutex_);
    if (by_name_.contains(operation.name))
      throw UserError("define_pointwise: there is already an operation " + in_quotes(operation.name));
    operations_.push_back(std::move(operation));
    const Operation& stored = operations_.back();
    by_name_.emplace(stored.name, &stored);
    return stored;
  }

  mutable std::shared_mutex mutex_;
  std::deque<Operation> operations_;  // entries never move
  std::unordered_map<std::string, const Operation*> by_name_;
  Operation formula_;
};

Catalogue& catalogue() {
  static Catalogue instance;
  return instance;
}

}  // namespace

int Operation::value_operand_count() const {
  return static_cast<int>(std::count_if(operands.begin(), operands.end(), [](const OperandSpec& operand) {
    return operand.role == OperandRole::kValue || operand.role == OperandRole::kValueOrScalar;
  }));
}

int Operation::find_argument(std::string_view wanted) const {
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name == wanted || (!arguments[i].alias.empty() && arguments[i].alias == wanted))
      return static_cast<int>(i);
  return -1;
}

int Operation::find_operand(std::string_view wanted) const {
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (operands[i].name == wanted) return static_cast<int>(i);
  return -1;
}

std::vector<const Operation*> operations() { return catalogue().list(); }

const Operation* find_operation(std::string_view name) { return catalogue().find(name); }

const Operation& formula_operation() { return catalogue().formula(); }

const Operation& define_pointwise(Operation operation) { return catalogue().define(std::move(operation)); }

std::string signature(const Operation& operation) {
  std::vector<std::string> parts;
  for (const OperandSpec& operand : operation.operands)
    if (operand.role == OperandRole::kValue || operand.role == OperandRole::kValueOrScalar)
      parts.push_back(operand.name);
  for (const ArgumentSpec& argument : operation.arguments) {
    const bool axes = argument.kind == ArgumentKind::kAxes;
    const std::string shown = axes ? "axes..." : argument.name;
    parts.push_back(argument.required || axes ? shown : shown + "=" + to_string(argument.default_value));
  }
  return operation.name + "(" + join(parts, ", ") + ")";
}

}  // namespace fuseblock
