#include "block/arguments.h"

#include <algorithm>
#include <cmath>

#include "block/text.h"
#include "fuseblock/error.h"

namespace fuseblock {
namespace {

bool in_range(const ArgumentSpec& spec, double value) {
  return value >= spec.minimum && value <= spec.maximum;
}

bool is_choice(const ArgumentSpec& spec, const ArgumentValue& value) {
  const auto* word = std::get_if<std::string>(&value);
  return word != nullptr && std::find(spec.choices.begin(), spec.choices.end(), *word) != spec.choices.end();
}

bool is_integers(const ArgumentSpec& spec, const ArgumentValue& value) {
  if (is_choice(spec, value)) return true;
  if (const auto* one = std::get_if<std::int64_t>(&value)) return in_range(spec, static_cast<double>(*one));
  const auto* list = std::get_if<std::vector<std::int64_t>>(&value);
  if (list == nullptr || list->empty() || list->size() > 3) return false;
  return std::all_of(list->begin(), list->end(),
                     [&](std::int64_t i) { return in_range(spec, static_cast<double>(i)); });
}

bool fits(const ArgumentSpec& spec, const ArgumentValue& value) {
  const bool none = std::holds_alternative<std::monostate>(value);
  if (none) return !spec.required && std::holds_alternative<std::monostate>(spec.default_value);
  switch (spec.kind) {
    case ArgumentKind::kInteger: {
      const auto* integer = std::get_if<std::int64_t>(&value);
      return integer != nullptr && in_range(spec, static_cast<double>(*integer));
    }
    case ArgumentKind::kNumber: {
      const auto* number = std::get_if<double>(&value);
      return number != nullptr && in_range(spec, *number);
    }
    case ArgumentKind::kFlag: return std::holds_alternative<bool>(value);
    case ArgumentKind::kKeyword: return is_choice(spec, value);
    case ArgumentKind::kIntegers: return is_integers(spec, value);
    case ArgumentKind::kAxes: return std::holds_alternative<AxisSet>(value);
  }
  return false;
}

ArgumentValue normal_form(const ArgumentSpec& spec, ArgumentValue value) {
  if (spec.kind == ArgumentKind::kNumber && std::holds_alternative<std::int64_t>(value))
    return static_cast<double>(std::get<std::int64_t>(value));
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value); list != nullptr && list->size() == 1)
    return list->front();
  return value;
}

std::string range_text(const ArgumentSpec& spec) {
  if (std::isfinite(spec.minimum)) return " from " + number_text(spec.minimum);
  return "";
}

}  // namespace

ArgumentValue checked_argument(const ArgumentSpec& spec, ArgumentValue value) {
  value = normal_form(spec, std::move(value));
  if (const auto* whole = std::get_if<std::int64_t>(&value);
      whole != nullptr && static_cast<double>(*whole) > spec.maximum)
    throw UserError(spec.name + "=" + to_string(value) + ": expected at most " + number_text(spec.maximum));
  if (!fits(spec, value))
    throw UserError(spec.name + "=" + printable(to_string(value)) + ": expected " + expectation(spec));
  return value;
}

std::string expectation(const ArgumentSpec& spec) {
  const bool optional = !spec.required && std::holds_alternative<std::monostate>(spec.default_value);
  const std::string none = optional ? " or none" : "";
  switch (spec.kind) {
    case ArgumentKind::kInteger: return "a whole number" + range_text(spec) + none;
    case ArgumentKind::kNumber: return "a number" + range_text(spec) + none;
    case ArgumentKind::kFlag: return "true or false";
    case ArgumentKind::kKeyword: return "one of " + join(spec.choices, ", ");
    case ArgumentKind::kIntegers: {
      const std::string words = spec.choices.empty() ? "" : ", or " + join(spec.choices, " or ");
      return "a whole number" + range_text(spec) + " or a list of one for each spatial axis" + words + none;
    }
    case ArgumentKind::kAxes: return "axes out of n, c, d, h, w";
  }
  throw InternalError("an argument without a kind");
}

double formula_constant(const ArgumentSpec& spec, const ArgumentValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const auto* is_true = std::get_if<bool>(&value)) return *is_true ? 1 : 0;
  if (const auto* word = std::get_if<std::string>(&value))
    return static_cast<double>(std::find(spec.choices.begin(), spec.choices.end(), *word) -
                               spec.choices.begin());
  throw InternalError("argument " + spec.name + " cannot stand in a formula");
}

std::string to_string(const ArgumentValue& value) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "none"; }
    std::string operator()(std::int64_t integer) const { return std::to_string(integer); }
    std::string operator()(double number) const { return number_text(number); }
    std::string operator()(bool is_true) const { return is_true ? "true" : "false"; }
    std::string operator()(const std::string& word) const { return word; }
    std::string operator()(const std::vector<std::int64_t>& list) const {
      std::vector<std::string> parts;
      for (std::int64_t integer : list) parts.push_back(std::to_string(integer));
      return "(" + join(parts, ",") + ")";
    }
    std::string operator()(AxisSet axes) const { return to_string(axes); }
    static std::string to_string(AxisSet axes) { return fuseblock::to_string(axes); }
  };
  return std::visit(Visitor{}, value);
}

}  // namespace fuseblock
