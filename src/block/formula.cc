#include "fuseblock/formula.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "block/formula_builder.h"
#include "fuseblock/error.h"

namespace fuseblock {
namespace {

constexpr std::array<PrimitiveInfo, 22> kPrimitives = {{
    {Primitive::kAdd, "+", 2},
    {Primitive::kSub, "-", 2},
    {Primitive::kMul, "*", 2},
    {Primitive::kDiv, "/", 2},
    {Primitive::kNeg, "-", 1},
    {Primitive::kAbs, "abs", 1},
    {Primitive::kMinimum, "minimum", 2},
    {Primitive::kMaximum, "maximum", 2},
    {Primitive::kLess, "<", 2},
    {Primitive::kLessEqual, "<=", 2},
    {Primitive::kGreater, ">", 2},
    {Primitive::kGreaterEqual, ">=", 2},
    {Primitive::kEqual, "==", 2},
    {Primitive::kSelect, "select", 3},
    {Primitive::kSqrt, "sqrt", 1},
    {Primitive::kExp, "exp", 1},
    {Primitive::kExpm1, "expm1", 1},
    {Primitive::kLog, "log", 1},
    {Primitive::kLog1pExp, "log1pexp", 1},
    {Primitive::kTanh, "tanh", 1},
    {Primitive::kErf, "erf", 1},
    {Primitive::kSigmoid, "sigmoid", 1},
}};

constexpr double kTwoOverSqrtPi = 1.1283791670955126;

double minimum(double a, double b) { return std::isnan(a) || std::isnan(b) ? a + b : (b < a ? b : a); }
double maximum(double a, double b) { return std::isnan(a) || std::isnan(b) ? a + b : (b > a ? b : a); }
double log1pexp(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

// Forward-mode differentiation of one step: `slopes` holds the derivatives of the steps before.
class Differentiator {
 public:
  Differentiator(const Formula& formula, int number) : formula_(formula), number_(number) {}

  Formula run() {
    for (const Formula::Step& step : formula_.steps()) add(step);
    return builder_.finish(slopes_.back());
  }

 private:
  using Id = FormulaBuilder::Id;

  void add(const Formula::Step& step) {
    switch (step.primitive) {
      case Primitive::kInput:
        values_.push_back(builder_.input(step.input));
        slopes_.push_back(builder_.constant(step.input == number_ ? 1 : 0));
        return;
      case Primitive::kConstant:
        values_.push_back(builder_.constant(step.constant));
        slopes_.push_back(builder_.constant(0));
        return;
      default: break;
    }
    auto at = [](const std::vector<Id>& ids, std::int32_t i) {
      return i < 0 ? -1 : ids[static_cast<std::size_t>(i)];
    };
    a_ = at(values_, step.a);
    b_ = at(values_, step.b);
    c_ = at(values_, step.c);
    d_a_ = at(slopes_, step.a);
    d_b_ = at(slopes_, step.b);
    d_c_ = at(slopes_, step.c);
    result_ = builder_.apply(step.primitive, a_, b_, c_);
    const Id slope = derive(step.primitive);
    values_.push_back(result_);
    slopes_.push_back(slope);
  }

  Id derive(Primitive primitive) {
    switch (primitive) {
      case Primitive::kInput:
      case Primitive::kConstant: break;
      case Primitive::kAdd: return add(d_a_, d_b_);
      case Primitive::kSub: return sub(d_a_, d_b_);
      case Primitive::kMul: return add(mul(d_a_, b_), mul(a_, d_b_));
      case Primitive::kDiv: return sub(div(d_a_, b_), div(mul(result_, d_b_), b_));
      case Primitive::kNeg: return neg(d_a_);
      case Primitive::kAbs: return mul(d_a_, sub(greater(a_, zero()), less(a_, zero())));
      case Primitive::kMinimum: return add(mul(d_a_, winner(less(b_, a_))), mul(d_b_, winner(less(a_, b_))));
      case Primitive::kMaximum: return add(mul(d_a_, winner(less(a_, b_))), mul(d_b_, winner(less(b_, a_))));
      case Primitive::kLess:
      case Primitive::kLessEqual:
      case Primitive::kGreater:
      case Primitive::kGreaterEqual:
      case Primitive::kEqual: return zero();
      case Primitive::kSelect: return select(a_, d_b_, d_c_);
      case Primitive::kSqrt: return div(d_a_, mul(number(2), result_));
      case Primitive::kExp: return mul(d_a_, result_);
      case Primitive::kExpm1: return mul(d_a_, unary(Primitive::kExp, a_));
      case Primitive::kLog: return div(d_a_, a_);
      case Primitive::kLog1pExp: return mul(d_a_, unary(Primitive::kSigmoid, a_));
      case Primitive::kTanh: return mul(d_a_, sub(one(), mul(result_, result_)));
      case Primitive::kErf:
        return mul(d_a_, mul(number(kTwoOverSqrtPi), unary(Primitive::kExp, neg(mul(a_, a_)))));
      case Primitive::kSigmoid: return mul(d_a_, mul(result_, sub(one(), result_)));
    }
    throw InternalError("no derivative for a primitive");
  }

  // The share of one side of minimum or maximum: nothing where the other side wins, a half at a tie.
  Id winner(Id other_wins) {
    return select(other_wins, zero(), select(binary(Primitive::kEqual, a_, b_), number(0.5), one()));
  }

  Id number(double value) { return builder_.constant(value); }
  Id zero() { return number(0); }
  Id one() { return number(1); }
  Id unary(Primitive primitive, Id a) { return builder_.apply_derived(primitive, a); }
  Id binary(Primitive primitive, Id a, Id b) { return builder_.apply_derived(primitive, a, b); }
  Id add(Id a, Id b) { return binary(Primitive::kAdd, a, b); }
  Id sub(Id a, Id b) { return binary(Primitive::kSub, a, b); }
  Id mul(Id a, Id b) { return binary(Primitive::kMul, a, b); }
  Id div(Id a, Id b) { return binary(Primitive::kDiv, a, b); }
  Id neg(Id a) { return unary(Primitive::kNeg, a); }
  Id less(Id a, Id b) { return binary(Primitive::kLess, a, b); }
  Id greater(Id a, Id b) { return binary(Primitive::kGreater, a, b); }
  Id select(Id a, Id b, Id c) { return builder_.apply_derived(Primitive::kSelect, a, b, c); }

  const Formula& formula_;
  int number_;
  FormulaBuilder builder_;
  std::vector<Id> values_;
  std::vector<Id> slopes_;
  Id a_ = -1, b_ = -1, c_ = -1, d_a_ = -1, d_b_ = -1, d_c_ = -1, result_ = -1;
};

}  // namespace

std::span<const PrimitiveInfo> primitives() { return kPrimitives; }

const PrimitiveInfo& info(Primitive primitive) {
  for (const PrimitiveInfo& entry : kPrimitives)
    if (entry.primitive == primitive) return entry;
  throw InternalError("inputs and constants are no primitives with operands");
}

double evaluate(Primitive primitive, double a, double b, double c) {
  switch (primitive) {
    case Primitive::kInput:
    case Primitive::kConstant: break;
    case Primitive::kAdd: return a + b;
    case Primitive::kSub: return a - b;
    case Primitive::kMul: return a * b;
    case Primitive::kDiv: return a / b;
    case Primitive::kNeg: return -a;
    case Primitive::kAbs: return std::fabs(a);
    case Primitive::kMinimum: return minimum(a, b);
    case Primitive::kMaximum: return maximum(a, b);
    case Primitive::kLess: return a < b ? 1 : 0;
    case Primitive::kLessEqual: return a <= b ? 1 : 0;
    case Primitive::kGreater: return a > b ? 1 : 0;
    case Primitive::kGreaterEqual: return a >= b ? 1 : 0;
    case Primitive::kEqual: return a == b ? 1 : 0;
    case Primitive::kSelect: return a != 0 ? b : c;
    case Primitive::kSqrt: return std::sqrt(a);
    case Primitive::kExp: return std::exp(a);
    case Primitive::kExpm1: return std::expm1(a);
    case Primitive::kLog: return std::log(a);
    case Primitive::kLog1pExp: return log1pexp(a);
    case Primitive::kTanh: return std::tanh(a);
    case Primitive::kErf: return std::erf(a);
    case Primitive::kSigmoid: return sigmoid(a);
  }
  throw InternalError("evaluate: not a primitive with operands");
}

bool Formula::Step::operator==(const Step& other) const {
  return primitive == other.primitive && a == other.a && b == other.b && c == other.c &&
         input == other.input &&
         std::bit_cast<std::uint64_t>(constant) == std::bit_cast<std::uint64_t>(other.constant);
}

Formula Formula::constant(double value) {
  FormulaBuilder builder;
  return builder.finish(builder.constant(value));
}

Formula Formula::input(int number) {
  FormulaBuilder builder;
  return builder.finish(builder.input(number));
}

Formula Formula::apply(Primitive primitive, std::span<const Formula> operands) {
  if (static_cast<int>(operands.size()) != info(primitive).arity)
    throw UserError(std::string(info(primitive).name) + " takes " + std::to_string(info(primitive).arity) +
                    " operands");
  FormulaBuilder builder;
  std::array<FormulaBuilder::Id, 3> ids = {-1, -1, -1};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    std::vector<FormulaBuilder::Id> inputs;
    for (int number = 0; number < operands[i].input_count(); ++number)
      inputs.push_back(builder.input(number));
    ids[i] = builder.insert(operands[i], inputs);
  }
  return builder.finish(builder.apply_derived(primitive, ids[0], ids[1], ids[2]));
}

Formula Formula::apply(Primitive primitive, std::initializer_list<Formula> operands) {
  return apply(primitive, std::span<const Formula>(operands.begin(), operands.size()));
}

int Formula::input_count() const {
  int count = 0;
  for (const Step& step : steps_)
    if (step.primitive == Primitive::kInput) count = std::max(count, step.input + 1);
  return count;
}

bool Formula::uses(int number) const {
  for (const Step& step : steps_)
    if (step.primitive == Primitive::kInput && step.input == number) return true;
  return false;
}

bool Formula::is_constant() const {
  return steps_.size() == 1 && steps_[0].primitive == Primitive::kConstant;
}

bool Formula::is_constant(double value) const { return is_constant() && steps_[0].constant == value; }

double Formula::evaluate(std::span<const double> inputs) const {
  std::vector<double> values;
  values.reserve(steps_.size());
  auto at = [&](std::int32_t i) { return i < 0 ? 0.0 : values[static_cast<std::size_t>(i)]; };
  for (const Step& step : steps_) {
    switch (step.primitive) {
      case Primitive::kInput: values.push_back(inputs[static_cast<std::size_t>(step.input)]); break;
      case Primitive::kConstant: values.push_back(step.constant); break;
      default: values.push_back(fuseblock::evaluate(step.primitive, at(step.a), at(step.b), at(step.c)));
    }
  }
  return values.back();
}

Formula Formula::derivative(int number) const { return Differentiator(*this, number).run(); }

Formula Formula::substitute(std::span<const Formula> replacements) const {
  FormulaBuilder builder;
  std::vector<FormulaBuilder::Id> ids;
  for (const Formula& replacement : replacements) {
    std::vector<FormulaBuilder::Id> inputs;
    for (int number = 0; number < replacement.input_count(); ++number)
      inputs.push_back(builder.input(number));
    ids.push_back(builder.insert(replacement, inputs));
  }
  return builder.finish(builder.insert(*this, ids));
}

}  // namespace fuseblock
