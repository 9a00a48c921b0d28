#include "cuda/emit/formula_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "cuda/emit/nesting.h"
#include "fuseblock/error.h"

namespace fuseblock::cuda {
namespace {

std::string function_name(Primitive primitive) {
  switch (primitive) {
    case Primitive::kAbs: return "absolute";
    case Primitive::kMinimum: return "minimum";
    case Primitive::kMaximum: return "maximum";
    case Primitive::kSqrt: return "square_root";
    case Primitive::kExp: return "exponential";
    case Primitive::kExpm1: return "exponential_minus_1";
    case Primitive::kLog: return "logarithm";
    case Primitive::kLog1pExp: return "log_1_plus_exp";
    case Primitive::kTanh: return "hyperbolic_tangent";
    case Primitive::kErf: return "error_function";
    case Primitive::kSigmoid: return "sigmoid";
    default: throw InternalError("a primitive without a function in device code");
  }
}

std::string operator_text(Primitive primitive) {
  switch (primitive) {
    case Primitive::kSub: return " - ";
    case Primitive::kDiv: return " / ";
    case Primitive::kLess: return " < ";
    case Primitive::kLessEqual: return " <= ";
    case Primitive::kGreater: return " > ";
    case Primitive::kGreaterEqual: return " >= ";
    case Primitive::kEqual: return " == ";
    default: return "";
  }
}

bool is_comparison(Primitive primitive) {
  return primitive == Primitive::kLess || primitive == Primitive::kLessEqual ||
         primitive == Primitive::kGreater || primitive == Primitive::kGreaterEqual ||
         primitive == Primitive::kEqual;
}

// Looks for a hardswish among the steps of a formula.
class HardswishFinder {
 public:
  explicit HardswishFinder(std::span<const Formula::Step> steps) : steps_(steps) {}

  // The operand x of x * (x + 3) / 6, which is `step`; -1 for others.
  std::int32_t inner_operand(const Formula::Step& step) const {
    if (step.primitive != Primitive::kDiv || !is_constant(step.b, 6)) return -1;
    const Formula::Step& product = at(step.a);
    const std::int32_t x = product.a;
    return product.primitive == Primitive::kMul && is(product.b, Primitive::kAdd, x, 3) ? x : -1;
  }

  // Of select(x <= -3, 0 * x, select(x >= 3, x, x * (x + 3) / 6)), whose outer select is `step`.
  std::int32_t operand(const Formula::Step& step) const {
    if (step.primitive != Primitive::kSelect || at(step.a).primitive != Primitive::kLessEqual) return -1;
    const std::int32_t x = at(step.a).a;
    if (!is(step.a, Primitive::kLessEqual, x, -3)) return -1;
    const Formula::Step& low = at(step.b);
    if (low.primitive != Primitive::kMul || !is_constant(low.a, 0) || low.b != x) return -1;
    const Formula::Step& high = at(step.c);
    if (high.primitive != Primitive::kSelect || high.b != x || !is(high.a, Primitive::kGreaterEqual, x, 3))
      return -1;
    return inner_operand(at(high.c)) == x ? x : -1;
  }

 private:
  const Formula::Step& at(std::int32_t id) const { return steps_[static_cast<std::size_t>(id)]; }
  bool is_constant(std::int32_t id, double value) const {
    return at(id).primitive == Primitive::kConstant && at(id).constant == value;
  }
  bool is(std::int32_t id, Primitive primitive, std::int32_t x, double constant) const {
    return at(id).primitive == primitive && at(id).a == x && is_constant(at(id).b, constant);
  }

  std::span<const Formula::Step> steps_;
};

}  // namespace

std::string element_name(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "double";
    case DType::kF32: return "float";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
  }
  throw InternalError("an unknown dtype");
}

std::string literal(double value, bool single) {
  if (std::isnan(value)) return single ? "__int_as_float(0x7fffffff)" : "(double)__int_as_float(0x7fffffff)";
  if (std::isinf(value))
    return std::string("(") + (single ? "" : "double)(") + (value < 0 ? "-" : "") +
           "__int_as_float(0x7f800000))";
  char buffer[64];
  const auto end = single ? std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value)).ptr
                          : std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  if (single) text += "f";
  return value < 0 || std::signbit(value) ? "(" + text + ")" : text;
}

namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

// The step of erf or tanh whose sum with 1 a step is; -1 where it is none.
std::int32_t summand_of_one(std::span<const Formula::Step> steps, const Formula::Step& step) {
  if (step.primitive != Primitive::kAdd) return -1;
  for (const auto& [one, other] : {std::pair(step.a, step.b), std::pair(step.b, step.a)}) {
    const Primitive primitive = steps[at(other)].primitive;
    if (steps[at(one)].primitive == Primitive::kConstant && steps[at(one)].constant == 1 &&
        (primitive == Primitive::kErf || primitive == Primitive::kTanh))
      return other;
  }
  return -1;
}

// Statements for the steps of a program, one after the other.
class StatementWriter {
 public:
  StatementWriter(std::span<const Formula::Step> steps, bool single, const Rounding& rounding,
                  std::string prefix = "t")
      : steps_(steps), single_(single), rounding_(rounding), prefix_(std::move(prefix)) {
    rounded_ = rounding.products;
    rounded_.resize(steps.size(), false);
    if (!rounding.exact_sums || !single) return;
    for (const Formula::Step& step : steps)
      if (const std::int32_t summand = summand_of_one(steps, step); summand >= 0) mark(steps[at(summand)].a);
  }

  // The name or the constant that stands for each step.
  std::vector<std::string> write(const std::function<std::string(int)>& input) {
    for (const Formula::Step& step : steps_) {
      if (step.primitive == Primitive::kInput) {
        names_.push_back(input(step.input));
      } else if (step.primitive == Primitive::kConstant) {
        names_.push_back(literal(step.constant, single_));
      } else {
        std::string value = value_of(step);
        names_.push_back(prefix_ + std::to_string(names_.size()));
        statements_.push_back({names_.back(), std::move(value), true});
      }
    }
    return std::move(names_);
  }

  const std::vector<Statement>& statements() const { return statements_; }

 private:
  const std::string& name(std::int32_t id) const { return names_[at(id)]; }

  // The products and sums that an argument is made of: each is rounded on its own, so that its rest can be told.
  void mark(std::int32_t number) {
    const Formula::Step& step = steps_[at(number)];
    if (step.primitive != Primitive::kMul && step.primitive != Primitive::kAdd) return;
    rounded_[at(number)] = true;
    mark(step.a);
    mark(step.b);
  }

  std::string product(const std::string& a, const std::string& b) const {
    if (!rounded_[names_.size()]) return a + " * " + b;
    return call(single_ ? "__fmul_rn" : "__dmul_rn", a, b);
  }

  static std::string call(const std::string& function, const std::string& a, const std::string& b) {
    return function + "(" + a + ", " + b + ")";
  }

  // A name for what a step's value leaves out, empty for nothing; a statement for each step on the way.
  std::string rest_of(std::int32_t number) {
    const Formula::Step& step = steps_[at(number)];
    if (step.primitive == Primitive::kConstant) {
      const double rest = step.constant - static_cast<double>(static_cast<float>(step.constant));
      return rest == 0 || !std::isfinite(rest) ? "" : literal(rest, single_);
    }
    if (step.primitive != Primitive::kMul && step.primitive != Primitive::kAdd) return "";
    const std::string result = "rest" + std::to_string(number);
    if (std::find(rests_.begin(), rests_.end(), number) != rests_.end()) return result;
    const std::string a_rest = rest_of(step.a);
    const std::string b_rest = rest_of(step.b);
    const std::string& own = name(number);
    const std::string& a = name(step.a);
    const std::string& b = name(step.b);
    std::string value;
    if (step.primitive == Primitive::kMul) {
      value = "fmaf(" + a + ", " + b + ", -" + own + ")";
      if (!a_rest.empty()) value += " + " + a_rest + " * " + b;
      if (!b_rest.empty()) value += " + " + a + " * " + b_rest;
    } else {
      const std::string part = "part" + std::to_string(number);
      statements_.push_back({part, own + " - " + a, false});
      value = "(" + a + " - (" + own + " - " + part + ")) + (" + b + " - " + part + ")";
      if (!a_rest.empty()) value += " + " + a_rest;
      if (!b_rest.empty()) value += " + " + b_rest;
    }
    statements_.push_back({result, value, false});
    rests_.push_back(number);
    return result;
  }

  std::string quotient(const Formula::Step& step) const {
    // Between its ends, as of a tanh.
    const std::int32_t operand = branchless() ? HardswishFinder(steps_).inner_operand(step) : -1;
    if (operand >= 0) return "branchless::hardswish(" + name(operand) + ")";
    const Formula::Step& dividend = steps_[at(step.a)];
    const Formula::Step& divisor = steps_[at(step.b)];
    if (dividend.primitive == Primitive::kConstant && dividend.constant == 1 &&
        divisor.primitive == Primitive::kSqrt)
      return "reciprocal_root(" + name(divisor.a) + ")";
    // A product with the reciprocal of a constant; its error is one rounding more.
    const double reciprocal = 1 / divisor.constant;
    if (divisor.primitive == Primitive::kConstant && std::isnormal(reciprocal) && single_)
      return product(name(step.a), literal(reciprocal, single_));
    return name(step.a) + " / " + name(step.b);
  }

  std::string sum(const Formula::Step& step) {
    if (rounding_.exact_sums && single_)
      if (const std::int32_t summand = summand_of_one(steps_, step); summand >= 0) {
        const std::int32_t argument = steps_[at(summand)].a;
        const std::string rest = rest_of(argument);
        return call("one_plus_" + function_name(steps_[at(summand)].primitive), name(argument),
                    rest.empty() ? "0.0f" : rest);
      }
    if (rounded_[names_.size()]) return call("__fadd_rn", name(step.a), name(step.b));
    return name(step.a) + " + " + name(step.b);
  }

  bool branchless() const { return rounding_.branchless && single_; }

  std::string choice(const Formula::Step& step) const {
    const std::int32_t operand = branchless() ? HardswishFinder(steps_).operand(step) : -1;
    if (operand >= 0) return "branchless::hardswish(" + name(operand) + ")";
    return name(step.a) + " != 0 ? " + name(step.b) + " : " + name(step.c);
  }

  std::string value_of(const Formula::Step& step) {
    switch (step.primitive) {
      case Primitive::kNeg: return "-" + name(step.a);
      case Primitive::kSelect: return choice(step);
      case Primitive::kDiv: return quotient(step);
      case Primitive::kMul: return product(name(step.a), name(step.b));
      case Primitive::kAdd: return sum(step);
      default: break;
    }
    const std::string op = operator_text(step.primitive);
    if (is_comparison(step.primitive)) return name(step.a) + op + name(step.b) + " ? 1 : 0";
    if (!op.empty()) return name(step.a) + op + name(step.b);
    const bool brief = rounding_.brief_logarithm && single_ && step.primitive == Primitive::kLog;
    return (brief || (branchless() && step.primitive == Primitive::kTanh) ? "branchless::" : "") +
           function_name(step.primitive) + "(" + name(step.a) + (step.b >= 0 ? ", " + name(step.b) : "") +
           ")";
  }

  std::span<const Formula::Step> steps_;
  std::vector<Statement> statements_;
  bool single_;
  const Rounding& rounding_;
  std::string prefix_;  // of names
  std::vector<bool> rounded_;
  std::vector<std::string> names_;
  std::vector<std::int32_t> rests_;  // steps whose rest has a name
};

}  // namespace

std::vector<std::string> write_statements(Text& text, std::span<const Formula::Step> steps,
                                          const std::function<std::string(int)>& input,
                                          const std::string& type, bool single, const Rounding& rounding) {
  StatementWriter writer(steps, single, rounding);
  std::vector<std::string> names = writer.write(input);
  for (const Statement& each : writer.statements())
    text.line("const " + type + " " + each.name + " = " + each.value + ";");
  return names;
}

std::vector<std::string> write_nested(Text& text, std::span<const Formula::Step> steps,
                                      const std::function<std::string(int)>& input, const std::string& type,
                                      bool single, const std::vector<std::int32_t>& wanted,
                                      const Rounding& rounding, const std::string& prefix) {
  StatementWriter writer(steps, single, rounding, prefix);
  std::vector<std::string> names = writer.write(input);
  std::vector<std::string> results;
  for (const std::int32_t step : wanted) results.push_back(names[at(step)]);
  for (const Statement& each : nested(writer.statements(), results))
    text.line("const " + type + " " + each.name + " = " + each.value + ";");
  for (std::size_t i = 0; i < wanted.size(); ++i) names[at(wanted[i])] = results[i];
  return names;
}

}  // namespace fuseblock::cuda
