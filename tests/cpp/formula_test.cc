// Formulas: read, written, evaluated, folded and differentiated.
#include "fuseblock/formula.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "fuseblock/block.h"
#include "refusal.h"

namespace fuseblock {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A formula as a block holds it, with the names of its inputs in order.
struct Named {
  Formula formula;
  std::vector<std::string> names;

  std::string text() const { return formula.to_string(names); }
  double at(const std::map<std::string, double>& point) const {
    std::vector<double> inputs;
    for (const std::string& name : names) inputs.push_back(point.at(name));
    return formula.evaluate(inputs);
  }
};

Named read(const std::string& text) {
  const Block block = Block::parse("out = (" + text + "); return out");
  Named result{block.nodes()[0].formula, {}};
  for (const Operand& operand : block.nodes()[0].operands)
    result.names.push_back(block.value(operand.value()).name);
  return result;
}

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

TEST(FormulaText, BindsAsUsual) {
  const std::map<std::string, double> point = {{"x", 3}, {"y", 5}, {"z", -2}};
  const std::vector<std::pair<std::string, double>> cases = {
      {"1 + 2 * x", 7},
      {"(1 + 2) * x", 9},
      {"20 - x - y", 12},
      {"20 - (x - y)", 22},
      {"60 / x / y", 4},
      {"60 / (x / y)", 100},
      {"2 * x / y * 10", 12},
      {"-x * x", -9},
      {"--x", 3},
      {"x - -y", 8},
      {"- -2 * -x", -6},
      {"x + 1 < y", 1},
      {"(x < y) + 1", 2},
      {"x <= 3", 1},
      {"x >= 4", 0},
      {"x > z", 1},
      {"x == 3", 1},
      {"select(z, x, y)", 3},
      {"select(x > y, x, y)", 5},
      {"select(0 * x, x, y)", 5},
      {"minimum(x, y) * 2", 6},
      {"maximum(x, y)", 5},
      {"abs(z)", 2},
      {"sqrt(x * x)", 3},
      {"exp(0 * x)", 1},
      {"expm1(0 * x)", 0},
      {"log(x / x)", 0},
      {"tanh(0 * x)", 0},
      {"erf(0 * x)", 0},
      {"sigmoid(0 * x)", 0.5},
      {"log1pexp(1000 * x)", 3000},
      {"x * 1e2", 300},
      {"x * .5e1", 15},
      {"x + 1.E1", 13},
      {"x / inf", 0},
      {"relu(z) + relu(x)", 3},
      {"leaky_relu(z, negative_slope=0.5)", -1},
      {"leaky_relu(z, 0.25) + x", 2.5},
      {"add(x, y, alpha=10)", 53},
      {"square(add(x, 1))", 16},
      {"clamp(y, min=0, max=4)", 4},
  };
  for (const auto& [text, value] : cases) EXPECT_EQ(read(text).at(point), value) << text;
  EXPECT_TRUE(std::isnan(read("x + nan").at(point)));
}

TEST(FormulaText, IsWrittenWithTheParenthesesItNeeds) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"1+2*x", "1 + 2 * x"},
      {"(x + y) + z", "x + y + z"},
      {"x + (y + z)", "x + (y + z)"},
      {"x - (y - z)", "x - (y - z)"},
      {"(x * y) / z", "x * y / z"},
      {"x / (y * z)", "x / (y * z)"},
      {"-(x + y)", "-(x + y)"},
      {"-x * y", "-x * y"},
      {"-(x * y)", "-(x * y)"},
      {"x * -2", "x * -2"},
      {"x - (-2)", "x - -2"},
      {"(x < y) < z", "(x < y) < z"},
      {"select(x < y, x + 1, (y))", "select(x < y, x + 1, y)"},
      {"x + 1e-5", "x + 1e-05"},
      {"x + 1e400", "x + inf"},
      {"x * -inf", "x * -inf"},
      {"x + nan", "x + nan"},
      {"x + -0", "x + -0"},
      {"silu(x)", "x * sigmoid(x)"},
      {"relu(x + y)", "select(x + y <= 0, 0, x + y)"},
  };
  for (const auto& [text, written] : cases) EXPECT_EQ(read(text).text(), written);
}

TEST(FormulaText, OneStepForEqualParts) {
  const Named formula = read("(x + y) * (x + y) + (x + y)");
  EXPECT_EQ(formula.formula.steps().size(), 5U);  // x, y, x + y, its square, the sum
  EXPECT_EQ(formula.formula.written_size(), 11);
  EXPECT_EQ(formula.formula.input_count(), 2);
  EXPECT_TRUE(formula.formula.uses(1));
  EXPECT_FALSE(formula.formula.uses(2));
}

// Random formulas, each with its value at one point computed while it is made.
class RandomFormula {
 public:
  explicit RandomFormula(unsigned seed) : random_(seed) {}

  struct Text {
    std::string text;
    double value;
  };

  Text make(int depth) {
    if (depth == 0 || below(8) == 0) return leaf();
    const auto all = primitives();
    const PrimitiveInfo& primitive = all[below(all.size())];
    std::vector<Text> operands;
    for (int i = 0; i < primitive.arity; ++i) operands.push_back(make(depth - 1));
    const double value =
        evaluate(primitive.primitive, operands[0].value, primitive.arity > 1 ? operands[1].value : 0,
                 primitive.arity > 2 ? operands[2].value : 0);
    const std::string name(primitive.name);
    const bool infix = !std::isalpha(static_cast<unsigned char>(name[0]));
    if (infix && primitive.arity == 1) return {name + "(" + operands[0].text + ")", value};
    if (infix) return {"(" + operands[0].text + ")" + name + "(" + operands[1].text + ")", value};
    std::string text = name + "(" + operands[0].text;
    for (std::size_t i = 1; i < operands.size(); ++i) text += ", " + operands[i].text;
    return {text + ")", value};
  }

  static const std::map<std::string, double>& point() {
    static const std::map<std::string, double> kPoint = {{"x", 0.75}, {"y", -1.5}, {"skip.weight", 2}};
    return kPoint;
  }

 private:
  std::size_t below(std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
  }

  Text leaf() {
    static const std::vector<Text> kConstants = {
        {"0", 0},     {"1", 1},      {"2.5", 2.5},  {"-3", -3},     {"1e-300", 1e-300},
        {"-0", -0.0}, {"inf", kInf}, {"nan", kNan}, {"1e22", 1e22}, {"0.1", 0.1}};
    if (below(3) == 0) return kConstants[below(kConstants.size())];
    auto name = point().begin();
    std::advance(name, below(point().size()));
    return {name->first, name->second};
  }

  std::mt19937 random_;
};

TEST(FormulaText, ReadsBackAsItself) {
  int checked = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    const RandomFormula::Text made = RandomFormula(seed).make(5);
    Named formula;
    try {
      formula = read(made.text);
    } catch (const UserError& error) {
      ASSERT_STREQ(error.what(), "a formula needs at least one value") << made.text;
      continue;
    }
    ++checked;
    EXPECT_PRED2(same, formula.at(RandomFormula::point()), made.value)
        << made.text << "\nread as " << formula.text();
    const Named again = read(formula.text());
    ASSERT_EQ(again.formula, formula.formula) << formula.text();
    ASSERT_EQ(again.names, formula.names) << formula.text();
  }
  EXPECT_GT(checked, 2000);
}

Formula x() { return Formula::input(0); }
Formula number(double value) { return Formula::constant(value); }

TEST(FormulaFolding, LeavesOutWhatChangesNothing) {
  auto apply = [](Primitive primitive, std::initializer_list<Formula> operands) {
    return Formula::apply(primitive, operands);
  };
  EXPECT_EQ(apply(Primitive::kAdd, {x(), number(0)}), x());
  EXPECT_EQ(apply(Primitive::kAdd, {number(0), x()}), x());
  EXPECT_EQ(apply(Primitive::kSub, {x(), number(0)}), x());
  EXPECT_EQ(apply(Primitive::kSub, {number(0), x()}), apply(Primitive::kNeg, {x()}));
  EXPECT_EQ(apply(Primitive::kMul, {x(), number(1)}), x());
  EXPECT_EQ(apply(Primitive::kMul, {number(-1), x()}), apply(Primitive::kNeg, {x()}));
  EXPECT_TRUE(apply(Primitive::kMul, {x(), number(0)}).is_constant(0));
  EXPECT_EQ(apply(Primitive::kDiv, {x(), number(1)}), x());
  EXPECT_TRUE(apply(Primitive::kDiv, {number(0), x()}).is_constant(0));
  EXPECT_EQ(apply(Primitive::kNeg, {apply(Primitive::kNeg, {x()})}), x());
  EXPECT_EQ(apply(Primitive::kSelect, {number(2), x(), number(3)}), x());
  EXPECT_TRUE(apply(Primitive::kSelect, {number(0), x(), number(3)}).is_constant(3));
  EXPECT_EQ(apply(Primitive::kSelect, {Formula::input(1), x(), x()}), x());
  EXPECT_TRUE(apply(Primitive::kTanh, {number(0)}).is_constant(0));
  EXPECT_EQ(refusal([&] { apply(Primitive::kAdd, {x()}); }).message, "+ takes 2 operands");
}

TEST(FormulaFolding, LeavesOutComparisonsThatNeverHold) {
  auto apply = [](Primitive primitive, std::initializer_list<Formula> operands) {
    return Formula::apply(primitive, operands);
  };
  const Formula tanh = apply(Primitive::kTanh, {x()});
  const Formula sigmoid = apply(Primitive::kSigmoid, {x()});
  EXPECT_TRUE(apply(Primitive::kGreaterEqual, {tanh, number(3)}).is_constant(0));
  EXPECT_TRUE(apply(Primitive::kLessEqual, {tanh, number(-3)}).is_constant(0));
  EXPECT_TRUE(apply(Primitive::kGreater, {tanh, number(1)}).is_constant(0));
  EXPECT_TRUE(apply(Primitive::kLess, {sigmoid, number(0)}).is_constant(0));
  EXPECT_TRUE(apply(Primitive::kEqual, {sigmoid, number(2)}).is_constant(0));
  // At a bound they may hold; and what holds for all numbers does not for NaN.
  EXPECT_FALSE(apply(Primitive::kGreaterEqual, {tanh, number(1)}).is_constant(0));
  EXPECT_FALSE(apply(Primitive::kLess, {tanh, number(3)}).is_constant(1));
  EXPECT_FALSE(apply(Primitive::kGreater, {x(), number(3)}).is_constant(0));
  const Named hardswish = read("select(x <= -3, 0 * x, select(x >= 3, x, x * (x + 3) / 6))");
  const std::vector<Formula> of_tanh = {tanh};
  const std::vector<std::string> names = {"x"};
  EXPECT_EQ(hardswish.formula.substitute(of_tanh).to_string(names), "tanh(x) * (tanh(x) + 3) / 6");
}

// A formula that is written, rather than derived, keeps what NaN and infinities would show.
TEST(FormulaFolding, KeepsWrittenProductsWithZero) {
  EXPECT_EQ(read("x * 0").text(), "x * 0");
  EXPECT_TRUE(std::isnan(read("x * 0").at({{"x", kInf}})));
  EXPECT_EQ(read("x + 0").text(), "x + 0");
  EXPECT_EQ(read("x * 1 / 1").text(), "x");
}

TEST(FormulaSubstitution, ReplacesInputs) {
  const Named square = read("x * x + y");
  const std::vector<Formula> replacements = {Formula::apply(Primitive::kAdd, {Formula::input(0), number(1)}),
                                             number(3)};
  const Formula formula = square.formula.substitute(replacements);
  EXPECT_EQ(formula.evaluate(std::vector<double>{4}), 28);
  EXPECT_EQ(formula.input_count(), 1);
}

// The derivative at random points against central differences; points near `kinks` are moved away from them.
void check_derivative(const Formula& formula, int operands, double low, double high,
                      const std::vector<double>& kinks, const std::string& what) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(low, high);
  constexpr double kStep = 1e-5;
  for (int number = 0; number < operands; ++number) {
    const Formula derivative = formula.derivative(number);
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<double> point;
      for (int i = 0; i < operands; ++i) point.push_back(uniform(random));
      for (double kink : kinks)
        if (std::fabs(point[0] - kink) < 1e-3) point[0] = kink + 2e-3;
      if (operands > 1 && std::fabs(point[0] - point[1]) < 1e-3) point[1] += 2e-3;
      std::vector<double> shifted = point;
      auto at = [&](double offset) {
        shifted[static_cast<std::size_t>(number)] = point[static_cast<std::size_t>(number)] + offset;
        return formula.evaluate(shifted);
      };
      const double difference = (at(kStep) - at(-kStep)) / (2 * kStep);
      const double slope =
          derivative.input_count() == 0 ? derivative.evaluate({}) : derivative.evaluate(point);
      ASSERT_NEAR(slope, difference, 1e-7 * (1 + std::fabs(difference) + std::fabs(at(0))))
          << what << " by operand " << number << " at " << point[0] << (operands > 1 ? " and another" : "");
    }
  }
}

TEST(FormulaDerivative, OfEveryPrimitive) {
  for (const PrimitiveInfo& primitive : primitives()) {
    std::vector<Formula> inputs;
    for (int i = 0; i < primitive.arity; ++i) inputs.push_back(Formula::input(i));
    const bool positive = primitive.primitive == Primitive::kLog || primitive.primitive == Primitive::kSqrt ||
                          primitive.primitive == Primitive::kDiv;
    check_derivative(Formula::apply(primitive.primitive, inputs), primitive.arity, positive ? 0.2 : -4, 4,
                     {0}, std::string(primitive.name));
  }
}

// Every pointwise operation of the catalogue, with its defaults and with arguments that move its pieces into sight.
TEST(FormulaDerivative, OfEveryPointwiseOperation) {
  struct Variant {
    std::string stage;
    std::vector<double> kinks;
  };
  std::vector<Variant> variants = {
      {"leaky_relu(-0.7)", {0}},
      {"elu(2.5)", {0}},
      {"hardtanh(-2, 3)", {-2, 3}},
      {"clamp(-1.5, 2)", {-1.5, 2}},
      {"clamp(max=0.5)", {0.5}},
      {"gelu(tanh)", {}},
      {"softplus(2, threshold=3)", {1.5}},
      {"add(other, alpha=-3)", {}},
      {"sub(other, alpha=0.5)", {}},
      {"mul(2.5)", {}},
      {"div(-4)", {}},
      {"maximum(0.5)", {0.5}},
      {"minimum(-0.5)", {-0.5}},
  };
  std::size_t pointwise = 0;
  for (const Operation* operation : operations()) {
    if (operation->code != OpCode::kPointwise) continue;
    ++pointwise;
    variants.push_back(
        {operation->name + (operation->operands.size() > 1 ? "(other)" : ""), operation->kinks});
  }
  EXPECT_GE(pointwise, 26U);
  for (const Variant& variant : variants) {
    const Block block = Block::parse(variant.stage);
    const Formula formula = block.formula(0);
    const bool positive = variant.stage == "log" || variant.stage == "sqrt" || variant.stage == "div(other)";
    check_derivative(formula, formula.input_count(), positive ? 0.2 : -5, 5, variant.kinks, variant.stage);
  }
}

// The slope at a kink is PyTorch's.
TEST(FormulaDerivative, AtKinks) {
  struct Case {
    std::string stage;
    double x;
    double slope;
  };
  const std::vector<Case> cases = {
      {"relu", 0, 0},         {"leaky_relu(0.2)", 0, 0.2},
      {"relu6", 0, 0},        {"relu6", 6, 0},
      {"elu(0.5)", 0, 0.5},   {"hardsigmoid", -3, 0},
      {"hardsigmoid", 3, 0},  {"hardswish", -3, 0},
      {"hardswish", 3, 1},    {"hardtanh", -1, 0},
      {"hardtanh", 1, 0},     {"clamp(-1, 1)", -1, 1},
      {"clamp(-1, 1)", 1, 1}, {"abs", 0, 0},
      {"maximum(0)", 0, 0.5}, {"minimum(2)", 2, 0.5},
  };
  for (const Case& each : cases) {
    const Formula derivative = Block::parse(each.stage).formula(0).derivative(0);
    EXPECT_EQ(derivative.evaluate(std::vector<double>{each.x}), each.slope) << each.stage << " at " << each.x;
  }
}

TEST(FormulaDerivative, JumpsWhereTheCatalogueSaysSo) {
  for (const Operation* operation : operations()) {
    if (operation->code != OpCode::kPointwise || operation->operands.size() != 1) continue;
    const std::string stage = operation->name == "elu" ? "elu(0.5)" : operation->name;  // elu(1) is smooth
    const Formula derivative = Block::parse(stage).formula(0).derivative(0);
    if (derivative.is_constant()) continue;
    auto slope = [&](double at) { return derivative.evaluate(std::vector<double>{at}); };
    for (double kink : operation->kinks)
      EXPECT_GT(std::fabs(slope(kink + 1e-9) - slope(kink - 1e-9)), 0.1) << operation->name << " at " << kink;
    // On a fine grid the slope moves slowly everywhere else.
    for (int step = 0; step <= 16000; ++step) {
      const double at = -8.0005 + 0.001 * step;
      bool near_kink = operation->name == "log" || operation->name == "sqrt";
      for (double kink : operation->kinks) near_kink = near_kink || std::fabs(at + 0.0005 - kink) < 0.001;
      if (near_kink) continue;
      EXPECT_LT(std::fabs(slope(at + 0.001) - slope(at)), 0.005 * (1 + std::fabs(slope(at))))
          << stage << " at " << at;
    }
  }
}

TEST(FormulaLimits, NestAtMost200Deep) {
  auto nested = [](const std::string& open, int depth) {
    std::string text = "out = ";
    for (int i = 0; i < depth; ++i) text += open;
    return text + "x" + std::string(static_cast<std::size_t>(depth), ')') + "; return out";
  };
  EXPECT_EQ(Block::parse(nested("(", 199)).nodes()[0].formula, x());
  EXPECT_EQ(Block::parse(nested("tanh(", 199)).nodes()[0].formula.steps().size(), 200U);
  for (const std::string& open : std::vector<std::string>{"(", "tanh(", "silu(", "-("}) {
    const Refusal got = refusal([&] { Block::parse(nested(open, 5000)); });
    EXPECT_EQ(got.message, "the formula is nested more than 200 deep") << open;
    EXPECT_EQ(got.column, 7 + 200 * static_cast<int>(open.size())) << open;
  }
}

TEST(FormulaLimits, RefuseWhatIsTooLongToWrite) {
  std::string text = "x";
  for (int i = 0; i < 190; ++i) text = "square(" + text + ")";
  const Refusal got = refusal([&] { Block::parse("y = " + text + "; return y"); });
  EXPECT_EQ(got.message, "the formula is too long to be written down");
  EXPECT_EQ(got.column, 1);
  EXPECT_EQ(refusal([] { Builder().apply(Formula(), {}); }).message, "the formula is empty");
}

TEST(FormulaLimits, LongSumsAreFine) {
  std::string text = "x";
  for (int i = 1; i < 20000; ++i) text += i % 2 == 0 ? " + x * y" : " - y";
  const Named formula = read(text);
  EXPECT_EQ(formula.at({{"x", 1}, {"y", 2}}), 1 + 9999 * 2 - 10000 * 2);
  EXPECT_EQ(read(formula.text()).formula, formula.formula);
  EXPECT_EQ(formula.formula.derivative(0).evaluate(std::vector<double>{1, 2}), 1 + 9999 * 2);
  const Block signs = Block::parse("y = " + std::string(30001, '-') + "x; return y");
  EXPECT_EQ(signs.to_string(), "y = -x; return y");
}

}  // namespace
}  // namespace fuseblock
