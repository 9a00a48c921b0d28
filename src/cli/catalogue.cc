#include "catalogue.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <variant>

#include "fuseblock/error.h"
#include "table.h"

namespace fuseblock::cli {
namespace {

constexpr double kNoLimit = 0x1p31 - 1;  // a limit from here on says nothing to a reader

std::string_view family_title(const Operation& operation) {
  if (operation.adjoint) return "Operations of backward blocks";
  switch (operation.code) {
    case OpCode::kPointwise:
    case OpCode::kFormula: return "Pointwise";
    case OpCode::kConvolution:
    case OpCode::kConvolutionGradInput:
    case OpCode::kConvolutionGradWeight: return "Convolutions";
    case OpCode::kGroupNorm:
    case OpCode::kInstanceNorm:
    case OpCode::kLayerNorm:
    case OpCode::kRmsNorm:
    case OpCode::kBatchNorm:
    case OpCode::kL2Normalize:
    case OpCode::kSoftmax: return "Norms";
    case OpCode::kMean:
    case OpCode::kSum:
    case OpCode::kMax:
    case OpCode::kMin:
    case OpCode::kLogSumExp:
    case OpCode::kRstd: return "Reductions";
    case OpCode::kMaxPool:
    case OpCode::kMaxPoolTake:
    case OpCode::kMaxPoolPut:
    case OpCode::kAvgPool:
    case OpCode::kAvgPoolGrad: return "Pools";
    case OpCode::kCast:
    case OpCode::kZeros:
    case OpCode::kExpand: return "Types";
  }
  throw InternalError("operation " + operation.name + " belongs to no family");
}

// Insertions, deletions and replacements between two words.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row[b.size()];
}

// The names of a formula's inputs: operands, then arguments.
std::vector<std::string> input_names(const Operation& operation) {
  std::vector<std::string> names;
  for (const OperandSpec& operand : operation.operands) names.push_back(operand.name);
  for (const ArgumentSpec& argument : operation.arguments) names.push_back(argument.name);
  return names;
}

// The number a formula sees for an argument's default; a keyword counts as its place among the choices.
double default_number(const ArgumentSpec& argument) {
  const ArgumentValue& value = argument.default_value;
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  if (const auto* word = std::get_if<std::string>(&value)) {
    const auto place = std::find(argument.choices.begin(), argument.choices.end(), *word);
    return static_cast<double>(place - argument.choices.begin());
  }
  return std::nan("");
}

}  // namespace

std::vector<Family> families() {
  std::vector<Family> result;
  std::vector<const Operation*> all = operations();
  std::stable_partition(all.begin(), all.end(),
                        [](const Operation* operation) { return !operation->adjoint; });
  for (const Operation* operation : all) {
    const std::string_view title = family_title(*operation);
    auto family =
        std::find_if(result.begin(), result.end(), [&](const Family& other) { return other.title == title; });
    if (family == result.end()) family = result.insert(result.end(), Family{title, {}});
    family->operations.push_back(operation);
  }
  return result;
}

const Operation& require_operation(std::string_view name) {
  if (const Operation* found = find_operation(name)) return *found;
  std::vector<std::string> similar;
  for (const Operation* operation : operations()) {
    const bool contained = name.size() >= 3 && operation->name.find(name) != std::string::npos;
    if (!operation->adjoint && (contained || edit_distance(name, operation->name) <= 2))
      similar.push_back(operation->name);
  }
  throw UserError(
      "there is no operation `" + std::string(name) + "`; " +
      (similar.empty() ? "`fuseblock ops` lists all" : "did you mean " + join(similar, ", ") + "?"));
}

std::string kind_text(const ArgumentSpec& argument) {
  switch (argument.kind) {
    case ArgumentKind::kInteger: return "whole number";
    case ArgumentKind::kNumber: return "number";
    case ArgumentKind::kFlag: return "flag";
    case ArgumentKind::kKeyword: return "word";
    case ArgumentKind::kIntegers: return "whole number, or one for each axis";
    case ArgumentKind::kAxes: return "axes";
  }
  throw InternalError("argument " + argument.name + " is of no kind");
}

std::string default_text(const ArgumentSpec& argument) {
  if (argument.required) return {};
  if (std::holds_alternative<std::monostate>(argument.default_value)) return "none";
  if (const auto* axes = std::get_if<AxisSet>(&argument.default_value); axes != nullptr && axes->empty())
    return "all";
  return to_string(argument.default_value);
}

std::string range_text(const ArgumentSpec& argument) {
  std::vector<std::string> allowed;
  const bool below = std::isfinite(argument.minimum);
  const bool above = std::isfinite(argument.maximum) && argument.maximum < kNoLimit;
  if (below && above) {
    allowed.push_back(number_text(argument.minimum) + " to " + number_text(argument.maximum));
  } else if (below || above) {
    allowed.push_back(below ? ">= " + number_text(argument.minimum) : "<= " + number_text(argument.maximum));
  }
  allowed.insert(allowed.end(), argument.choices.begin(), argument.choices.end());
  return join(allowed, ", ");
}

std::string role_text(const OperandSpec& operand) {
  std::string text;
  switch (operand.role) {
    case OperandRole::kValue: text = "value"; break;
    case OperandRole::kValueOrScalar: text = "value or number"; break;
    case OperandRole::kParameter: text = "parameter"; break;
    case OperandRole::kBuffer: text = "buffer, no gradient"; break;
  }
  if (!operand.present_if.empty()) text += " if " + join(operand.present_if, " and ");
  return text;
}

std::vector<Derivative> derivatives(const Operation& operation) {
  std::vector<Derivative> result;
  if (operation.code != OpCode::kPointwise) return result;
  const std::vector<std::string> names = input_names(operation);
  for (std::size_t i = 0; i < operation.operands.size(); ++i)
    result.push_back({names[i], operation.formula.derivative(static_cast<int>(i)).to_string(names)});
  return result;
}

std::vector<Slope> slopes(const Operation& operation) {
  std::vector<Slope> result;
  if (operation.kinks.empty()) return result;
  const Formula derivative = operation.formula.derivative(0);
  std::vector<double> inputs(operation.operands.size(), 0.0);
  for (const ArgumentSpec& argument : operation.arguments) inputs.push_back(default_number(argument));
  for (double kink : operation.kinks) {
    inputs[0] = kink;
    result.push_back({kink, derivative.evaluate(inputs)});
  }
  return result;
}

PrimitiveText primitive_text(const PrimitiveInfo& primitive) {
  const std::vector<std::string> names = {"a", "b", "c"};
  std::vector<Formula> inputs;
  for (int i = 0; i < primitive.arity; ++i) inputs.push_back(Formula::input(i));
  const Formula formula = Formula::apply(primitive.primitive, inputs);
  PrimitiveText text{formula.to_string(names), {}};
  for (int i = 0; i < primitive.arity; ++i)
    text.derivatives.push_back({names[static_cast<std::size_t>(i)], formula.derivative(i).to_string(names)});
  return text;
}

}  // namespace fuseblock::cli
