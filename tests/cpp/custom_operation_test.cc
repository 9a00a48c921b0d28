// One entry adds a pointwise operation: with it come notation, printing, types, JSON, values and gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "cases.h"
#include "fuseblock/operations.h"
#include "refusal.h"

namespace fuseblock {
namespace {

ArgumentSpec argument(const std::string& name, ArgumentKind kind, ArgumentValue default_value) {
  ArgumentSpec spec;
  spec.name = name;
  spec.kind = kind;
  spec.default_value = std::move(default_value);
  return spec;
}

Operation entry(const std::string& name, const std::string& formula,
                std::vector<ArgumentSpec> arguments = {}) {
  Operation operation;
  operation.name = name;
  operation.summary = "An operation of this test.";
  operation.operands = {{"x", OperandRole::kValue, {}, "the value"}};
  operation.arguments = std::move(arguments);
  operation.formula_text = formula;
  return operation;
}

// The operation most tests look at: x * sigmoid(scale * x).
const Operation& quick_gelu() {
  static const Operation& operation = define_pointwise(entry(
      "quick_gelu", "x * sigmoid(scale * x)", {argument("scale", ArgumentKind::kNumber, std::int64_t{2})}));
  return operation;
}

// Two operands, a flag and a keyword, written with another entry.
const Operation& gate() {
  static const Operation& operation = [&]() -> const Operation& {
    quick_gelu();
    ArgumentSpec keyword = argument("by", ArgumentKind::kKeyword, std::string("value"));
    keyword.choices = {"value", "square"};
    Operation definition =
        entry("gate", "quick_gelu(x, scale=3) * select(by, other * other, other) + select(shifted, 1, 0)",
              {argument("shifted", ArgumentKind::kFlag, false), keyword});
    definition.operands.push_back({"other", OperandRole::kValueOrScalar, {}, "a number or a value"});
    return define_pointwise(std::move(definition));
  }();
  return operation;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(CustomOperation, IsInTheCatalogue) {
  const Operation& operation = quick_gelu();
  EXPECT_EQ(find_operation("quick_gelu"), &operation);
  const std::vector<const Operation*> all = operations();
  EXPECT_EQ(std::count(all.begin(), all.end(), &operation), 1);
  EXPECT_EQ(operation.code, OpCode::kPointwise);
  EXPECT_EQ(signature(operation), "quick_gelu(x, scale=2)");
  EXPECT_EQ(signature(gate()), "gate(x, other, shifted=false, by=value)");
  EXPECT_EQ(operation.formula.evaluate(std::vector<double>{0.5, 2}), 0.5 * sigmoid(1));
}

TEST(CustomOperation, ReadsAndPrints) {
  quick_gelu();
  gate();
  for (const char* text :
       {"quick_gelu", "quick_gelu(scale=1.702)", "conv2d(4, k=3) | quick_gelu | group_norm(2)",
        "quick_gelu as quick_gelu2 | quick_gelu", "gate(2.5)", "gate(skip, shifted)",
        "gate(x, shifted, by=square)", "y = quick_gelu(x); z = gate(x, y); return z"}) {
    const Block block = Block::parse(text);
    EXPECT_EQ(block.to_string(), text);
    EXPECT_EQ(Block::parse(block.to_statements()), block) << text;
    EXPECT_EQ(Block::from_json(block.to_json()), block) << text;
  }
  EXPECT_EQ(Block::parse("quick_gelu(2)"), Block::parse("quick_gelu"));
  EXPECT_EQ(Block::parse("quick_gelu(1.702)"), Block::parse("quick_gelu(scale=1.702)"));
  EXPECT_EQ(Block::parse("y = 1 + quick_gelu(x, 3); return y").to_string(),
            "y = 1 + x * sigmoid(3 * x); return y");
  EXPECT_EQ(refusal([] { Block::parse("quik_gelu"); }).message,
            "no operation `quik_gelu`; did you mean quick_gelu?");
  EXPECT_EQ(refusal([] { Block::parse("quick_gelu(scale=none)"); }).message,
            "quick_gelu: scale=none: expected a number");
}

TEST(CustomOperation, HasTypes) {
  quick_gelu();
  gate();
  const TypedBlock block =
      TypedBlock::infer(Block::parse("quick_gelu | gate(skip)"), TensorType::parse("bf16[2,3,4]:cl"),
                        {{"skip", TensorType::parse("f32[3,1]")}});
  EXPECT_EQ(to_string(block.outputs()[0].type), "f32[2,3,4]:cl");
  EXPECT_EQ(block.operation_count(0), 3 * 24);  // a product, a sigmoid, a product
}

// The output at one element of x and, where the block has such an input, of `skip`.
double run(const std::string& text, double x, double skip = 0) {
  const Plan plan = Plan::make(Block::parse(text), "f64[1,1]", {}, Device::reference());
  cases::TensorMap arguments;
  arguments["x"] = Tensor(TensorType::make(DType::kF64, {1, 1}));
  arguments["skip"] = Tensor(TensorType::make(DType::kF64, {1, 1}));
  arguments["x"].set(0, x);
  arguments["skip"].set(0, skip);
  return cases::run(plan, arguments).at(plan.outputs()[0].name).get(0);
}

TEST(CustomOperation, RunsOnTheReferenceEngine) {
  quick_gelu();
  gate();
  EXPECT_EQ(run("quick_gelu", 0.5), 0.5 * sigmoid(1));
  EXPECT_EQ(run("quick_gelu(1.702)", -0.5), -0.5 * sigmoid(1.702 * -0.5));
  EXPECT_EQ(run("gate(10)", 0.5), 0.5 * sigmoid(1.5) * 10);
  EXPECT_EQ(run("gate(skip, shifted, square)", 0.5, 3), 0.5 * sigmoid(1.5) * 9 + 1);
}

TEST(CustomOperation, HasGradients) {
  quick_gelu();
  gate();
  constexpr double kStep = 1e-6;
  for (const std::string text :
       {"quick_gelu", "quick_gelu(-0.7)", "gate(2.5)", "gate(skip)", "gate(skip, by=square)"}) {
    const TypedBlock block = TypedBlock::infer(Block::parse(text), TensorType::parse("f64[1,1]"));
    const Plan backward = Plan::make(block.backward(), Device::reference());
    for (double x : {-2.0, -0.3, 0.0, 0.4, 3.0}) {
      const double skip = 1.25;
      cases::TensorMap arguments = cases::random_output_gradients(block, 5);
      for (const NamedType& argument : block.arguments()) {
        arguments[argument.name] = Tensor(argument.type);
        arguments[argument.name].set(0, argument.name == "x" ? x : skip);
      }
      const double d_y = arguments.at("d_" + block.outputs()[0].name).get(0);
      const cases::TensorMap gradients = cases::run(backward, arguments);
      const double by_x = (run(text, x + kStep, skip) - run(text, x - kStep, skip)) / (2 * kStep);
      const double by_skip = (run(text, x, skip + kStep) - run(text, x, skip - kStep)) / (2 * kStep);
      EXPECT_NEAR(gradients.at("d_x").get(0), d_y * by_x, 1e-8) << text << " at " << x;
      if (block.block().find("skip")) {
        EXPECT_NEAR(gradients.at("d_skip").get(0), d_y * by_skip, 1e-8) << text << " at " << x;
      }
    }
  }
}

TEST(CustomOperation, DefinitionsThatAreRefused) {
  struct Case {
    Operation operation;
    std::string message;
  };
  const auto with_operands = [](std::vector<OperandSpec> operands) {
    Operation operation = entry("new_operation", "x");
    operation.operands = std::move(operands);
    return operation;
  };
  const auto with_argument = [](const ArgumentSpec& spec) { return entry("new_operation", "x", {spec}); };
  ArgumentSpec outside = argument("scale", ArgumentKind::kNumber, -1.0);
  outside.minimum = 0;
  ArgumentSpec aliased = argument("scale", ArgumentKind::kNumber, 1.0);
  aliased.alias = "x";
  const std::vector<Case> cases = {
      {entry("relu", "x"), "define_pointwise: there is already an operation `relu`"},
      {entry("conv2d", "x"), "define_pointwise: there is already an operation `conv2d`"},
      {entry("", "x"), "define_pointwise: `` is not a name an operation can have"},
      {entry("2x", "x"), "define_pointwise: `2x` is not a name an operation can have"},
      {entry("a.b", "x"), "define_pointwise: `a.b` is not a name an operation can have"},
      {entry("return", "x"), "define_pointwise: `return` is not a name an operation can have"},
      {entry("new_operation", ""), "expected a number, a name, a call or `(`, got the end of the text"},
      {entry("new_operation", "x +"), "expected a number, a name, a call or `(`, got the end of the text"},
      {entry("new_operation", "x y"), "expected the end of the formula"},
      {entry("new_operation", "x * z"), "new_operation has no operand or argument `z`"},
      {entry("new_operation", "conv2d(x)"),
       "no function `conv2d`; a formula calls primitives and pointwise operations"},
      {with_operands({}), "define_pointwise: new_operation: the first operand must be a value"},
      {with_operands({{"x", OperandRole::kValueOrScalar, {}, ""}}),
       "define_pointwise: new_operation: the first operand must be a value"},
      {with_operands({{"x", OperandRole::kValue, {}, ""}, {"weight", OperandRole::kParameter, {}, ""}}),
       "define_pointwise: new_operation: operand `weight` must be a value or a number, always there"},
      {with_operands({{"x", OperandRole::kValue, {}, ""}, {"x", OperandRole::kValue, {}, ""}}),
       "define_pointwise: new_operation: `x` is named twice"},
      {with_argument(argument("c", ArgumentKind::kNumber, 1.0)),
       "define_pointwise: new_operation: `c` is not a name an operand or argument can have"},
      {with_argument(argument("x", ArgumentKind::kNumber, 1.0)),
       "define_pointwise: new_operation: `x` is named twice"},
      {with_argument(aliased), "define_pointwise: new_operation: `x` is named twice"},
      {with_argument(argument("scale", ArgumentKind::kNumber, {})),
       "define_pointwise: new_operation: argument `scale` needs a default value"},
      {with_argument(outside),
       "define_pointwise: new_operation: the default of scale=-1: expected a number from 0"},
      {with_argument(argument("over", ArgumentKind::kAxes, AxisSet{})),
       "define_pointwise: new_operation: argument `over` cannot stand in a formula; use a number, a flag or "
       "a keyword"},
  };
  const std::size_t before = operations().size();
  for (const Case& each : cases)
    EXPECT_EQ(refusal([&] { define_pointwise(each.operation); }).message, each.message);
  EXPECT_EQ(operations().size(), before);
  EXPECT_EQ(find_operation("new_operation"), nullptr);
}

TEST(CustomOperation, IsDefinedOnceHoweverManyThreadsTry) {
  std::atomic<int> defined = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      const Refusal got = refusal([] { define_pointwise(entry("contested", "x + 1")); });
      defined += got.message.empty() ? 1 : 0;
      EXPECT_EQ(Block::parse("contested | relu").to_string(), "contested | relu");
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(defined, 1);
}

}  // namespace
}  // namespace fuseblock
