// Programs taken apart at their sigmoid, and which kernels do so.
#include "cuda/emit/around_sigmoid.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fuseblock/sources.h"

namespace fuseblock::cuda {
namespace {

Formula of(Primitive primitive, std::initializer_list<Formula> operands) {
  return Formula::apply(primitive, operands);
}

// The value of a step, that of an input being its number's in `inputs`.
double value_of(const std::vector<Formula::Step>& steps, std::int32_t wanted,
                const std::vector<double>& inputs) {
  std::vector<double> values;
  auto at = [&](std::int32_t id) { return id < 0 ? 0 : values[static_cast<std::size_t>(id)]; };
  for (const Formula::Step& step : steps) {
    if (step.primitive == Primitive::kInput)
      values.push_back(inputs.at(static_cast<std::size_t>(step.input)));
    else if (step.primitive == Primitive::kConstant)
      values.push_back(step.constant);
    else
      values.push_back(evaluate(step.primitive, at(step.a), at(step.b), at(step.c)));
  }
  return at(wanted);
}

std::vector<Formula::Step> steps_of(const Formula& formula) {
  return {formula.steps().begin(), formula.steps().end()};
}

TEST(AroundSigmoid, BothPartsTogetherAreTheProgram) {
  const Formula x = Formula::input(0);
  const Formula scaled = of(Primitive::kMul, {x, Formula::input(1)});
  const Formula gate = of(Primitive::kSigmoid, {scaled});
  const Formula program = of(Primitive::kAdd, {of(Primitive::kMul, {scaled, gate}), Formula::input(2)});
  const std::vector<Formula::Step> steps = steps_of(program);
  const auto last = static_cast<std::int32_t>(steps.size()) - 1;
  const auto parts = around_sigmoid(steps, 3, {last});
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->input, 3);
  const double operand = value_of(parts->before, parts->operand, {1.5, -2, 7});
  EXPECT_EQ(operand, -3);
  const double sigmoid = evaluate(Primitive::kSigmoid, operand, 0, 0);
  EXPECT_EQ(value_of(parts->behind, last, {1.5, -2, 7, sigmoid}), value_of(steps, last, {1.5, -2, 7}));
  // What is taken of the sigmoid is the input alone.
  const auto is_sigmoid = [](const Formula::Step& step) { return step.primitive == Primitive::kSigmoid; };
  EXPECT_TRUE(std::none_of(parts->behind.begin(), parts->behind.end(), is_sigmoid));
  EXPECT_TRUE(std::none_of(parts->before.begin(), parts->before.end(), is_sigmoid));
}

TEST(AroundSigmoid, ProgramsWithNoneOrSeveralStayWhole) {
  const Formula x = Formula::input(0);
  const Formula one = of(Primitive::kSigmoid, {x});
  const Formula two = of(Primitive::kAdd, {one, of(Primitive::kSigmoid, {Formula::input(1)})});
  const auto last = [](const Formula& formula) {
    return std::vector<std::int32_t>{static_cast<std::int32_t>(formula.steps().size()) - 1};
  };
  EXPECT_TRUE(around_sigmoid(one.steps(), 2, last(one)));
  EXPECT_FALSE(around_sigmoid(two.steps(), 2, last(two)));
  const Formula none = of(Primitive::kTanh, {x});
  EXPECT_FALSE(around_sigmoid(none.steps(), 2, last(none)));
  // Of `two` the first sigmoid alone is wanted.
  const std::vector<Formula::Step> steps = steps_of(two);
  const auto first = std::find_if(steps.begin(), steps.end(), [](const Formula::Step& step) {
    return step.primitive == Primitive::kSigmoid;
  });
  EXPECT_TRUE(around_sigmoid(steps, 2, {static_cast<std::int32_t>(first - steps.begin())}));
}

// Whether the first kernel of a block computes sigmoids together.
bool together(const std::string& block, const std::string& input) {
  const TypedBlock typed = TypedBlock::infer(Block::parse(block), TensorType::parse(input));
  return kernel_sources(typed, Device::by_name("h200")).front().text.find("sigmoids(operands") !=
         std::string::npos;
}

TEST(AroundSigmoid, KernelsWhoseVectorsLieInAChannel) {
  EXPECT_TRUE(together("group_norm(32) | silu", "bf16[2,320,64,64]"));
  EXPECT_TRUE(together("group_norm(32) | silu", "f16[2,320,64,64]:cl"));
  EXPECT_TRUE(together("group_norm(32) | silu", "bf16[64,256,56,56]"));
  // Results of more bits; a channel that ends inside of vectors; a sigmoid of each channel; no sigmoid.
  EXPECT_FALSE(together("group_norm(32) | silu", "f32[2,320,64,64]"));
  EXPECT_FALSE(together("group_norm(32) | silu", "bf16[2,320,13,13]"));
  EXPECT_FALSE(together("m = mean(x, h,w, keepdim); z = x * sigmoid(m); return z", "bf16[2,320,64,64]"));
  EXPECT_FALSE(together("group_norm(32) | relu", "bf16[2,320,64,64]:cl"));
}

}  // namespace
}  // namespace fuseblock::cuda
