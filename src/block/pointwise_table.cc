// Pointwise operations: one entry each. The formula says everything: value, derivative, NaN and infinities.
// At a kink the slope is that of the branch `select` takes there, so `x <= 0` and `x < 0` are different
// rules; each follows PyTorch. Formulas may call the primitives (docs/operations.md) and entries above them.
#include <limits>

#include "block/table.h"

namespace fuseblock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ArgumentSpec number(std::string name, double default_value, std::string help, double minimum = -kInfinity,
                    double maximum = kInfinity) {
  ArgumentSpec spec;
  spec.name = std::move(name);
  spec.kind = ArgumentKind::kNumber;
  spec.default_value = default_value;
  spec.minimum = minimum;
  spec.maximum = maximum;
  spec.help = std::move(help);
  return spec;
}

ArgumentSpec keyword(std::string name, std::vector<std::string> choices, std::string help) {
  ArgumentSpec spec;
  spec.name = std::move(name);
  spec.kind = ArgumentKind::kKeyword;
  spec.default_value = choices.front();
  spec.choices = std::move(choices);
  spec.help = std::move(help);
  return spec;
}

Operation unary(std::string name, std::string formula, std::string summary, std::string torch,
                std::vector<double> kinks = {}, std::vector<ArgumentSpec> arguments = {}) {
  Operation operation;
  operation.name = std::move(name);
  operation.summary = std::move(summary);
  operation.torch = std::move(torch);
  operation.operands = {{"x", OperandRole::kValue, {}, "the value"}};
  operation.arguments = std::move(arguments);
  operation.formula_text = std::move(formula);
  operation.kinks = std::move(kinks);
  return operation;
}

Operation binary(std::string name, std::string formula, std::string summary, std::string torch,
                 std::vector<ArgumentSpec> arguments = {}) {
  Operation operation = unary(std::move(name), std::move(formula), std::move(summary), std::move(torch), {},
                              std::move(arguments));
  operation.operands.push_back({"other",
                                OperandRole::kValueOrScalar,
                                {},
                                "a number, an earlier value or an extra input that broadcasts"});
  return operation;
}

}  // namespace

std::vector<Operation> pointwise_table() {
  return {
      unary("relu", "select(x <= 0, 0, x)", "The positive part.", "F.relu(x)", {0}),
      unary("leaky_relu", "select(x > 0, x, negative_slope * x)",
            "Negative values are scaled instead of cut.", "F.leaky_relu(x, negative_slope)", {0},
            {number("negative_slope", 0.01, "the slope of the negative side")}),
      unary("relu6", "select(x <= 0, 0, select(x >= 6, 6, x))", "The positive part, at most 6.", "F.relu6(x)",
            {0, 6}),
      unary("elu", "select(x <= 0, alpha * expm1(x), x)", "An exponential negative side.", "F.elu(x, alpha)",
            {0}, {number("alpha", 1, "the value the negative side tends to, negated")}),
      unary("sigmoid", "sigmoid(x)", "1 / (1 + exp(-x)).", "torch.sigmoid(x)"),
      unary("silu", "x * sigmoid(x)", "Also called swish.", "F.silu(x)"),
      unary("hardsigmoid", "select(x <= -3, 0, select(x >= 3, 1, select(x == x, (x + 3) / 6, nan)))",
            "A sigmoid of three straight pieces.", "F.hardsigmoid(x)", {-3, 3}),
      unary("hardswish", "select(x <= -3, 0 * x, select(x >= 3, x, x * (x + 3) / 6))", "x * hardsigmoid(x).",
            "F.hardswish(x)", {-3, 3}),
      unary("hardtanh", "select(x <= min_val, min_val, select(x >= max_val, max_val, x))",
            "Cut to an interval; slope 0 at its ends.", "F.hardtanh(x, min_val, max_val)", {-1, 1},
            {number("min_val", -1, "the lower end"), number("max_val", 1, "the upper end")}),
      unary("clamp",
            "select(x == x, select(select(x < min, min, x) > max, max, select(x < min, min, x)), nan)",
            "Cut to an interval; slope 1 at its ends.", "torch.clamp(x, min, max)", {},
            {number("min", -kInfinity, "the lower end"), number("max", kInfinity, "the upper end")}),
      unary("tanh", "tanh(x)", "The hyperbolic tangent.", "torch.tanh(x)"),
      unary("gelu",
            "select(approximate, 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))), "
            "0.5 * x * (1 + erf(0.7071067811865476 * x)))",
            "x times the normal distribution function, exactly or by the usual tanh formula.",
            "F.gelu(x, approximate=approximate)", {},
            {keyword("approximate", {"none", "tanh"}, "none: through erf; tanh: the approximation")}),
      unary("softplus", "select(beta * x > threshold, x, log1pexp(beta * x) / beta)",
            "A smooth positive part.", "F.softplus(x, beta, threshold)", {},
            {number("beta", 1, "the sharpness", 1e-300),
             number("threshold", 20, "x itself where beta * x is above")}),
      unary("mish", "x * tanh(log1pexp(x))", "x * tanh(softplus(x)).", "F.mish(x)"),
      unary("exp", "exp(x)", "The exponential function.", "torch.exp(x)"),
      unary("log", "log(x)", "The natural logarithm.", "torch.log(x)"),
      unary("sqrt", "sqrt(x)", "The square root.", "torch.sqrt(x)"),
      unary("square", "x * x", "The square.", "torch.square(x)"),
      unary("abs", "abs(x)", "The absolute value; slope 0 at 0.", "torch.abs(x)", {0}),
      unary("neg", "-x", "The negated value.", "torch.neg(x)"),
      binary("add", "x + alpha * other", "The sum.", "torch.add(x, other, alpha=alpha)",
             {number("alpha", 1, "a factor of the other operand")}),
      binary("sub", "x - alpha * other", "The difference.", "torch.sub(x, other, alpha=alpha)",
             {number("alpha", 1, "a factor of the other operand")}),
      binary("mul", "x * other", "The product.", "torch.mul(x, other)"),
      binary("div", "x / other", "The quotient.", "torch.div(x, other)"),
      binary("minimum", "minimum(x, other)", "The smaller; NaN if either is; ties share the gradient.",
             "torch.minimum(x, other)"),
      binary("maximum", "maximum(x, other)", "The larger; NaN if either is; ties share the gradient.",
             "torch.maximum(x, other)"),
  };
}

}  // namespace fuseblock
