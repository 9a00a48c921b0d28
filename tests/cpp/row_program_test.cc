// Programs on rows: which expressions become one loop, and that their results are those of the formula.
#include "cpu/row_program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "block/formula_builder.h"
#include "block/formula_text.h"
#include "block/lexer.h"

namespace fuseblock::cpu {
namespace {

// A formula of the inputs p, q, ...
Formula read(std::string_view text) {
  FormulaBuilder builder;
  Lexer lexer(text);
  ExpressionContext context;
  context.name = [&](const Token& token) { return builder.input(token.text[0] - 'p'); };
  context.operation = [](std::string_view name) { return find_operation(name); };
  return builder.finish(read_expression(lexer, builder, context));
}

constexpr std::size_t kCount = 77;

// The loops of a formula whose result alone is wanted. All inputs vary; the results are held against the formula.
std::size_t loops_of(std::string_view text) {
  const Formula formula = read(text);
  const auto inputs = static_cast<std::size_t>(formula.input_count());
  const RowProgram<double> program(formula.steps(), std::vector<bool>(inputs, true),
                                   {static_cast<int>(formula.steps().size()) - 1});
  std::vector<std::vector<double>> arrays(inputs, std::vector<double>(kCount));
  std::vector<TileOperand<double>> operands;
  for (std::size_t i = 0; i < inputs; ++i) {
    for (std::size_t e = 0; e < kCount; ++e)
      arrays[i][e] = static_cast<double>((e * (2 * i + 3)) % kCount) / 9 - 4;
    operands.push_back({arrays[i].data(), false});
  }
  std::vector<double> scratch(program.scratch_elements());
  program.run(operands, kCount, scratch.data());
  const TileOperand<double> result = program.result(0, operands, scratch.data());
  for (std::size_t e = 0; e < kCount; ++e) {
    std::vector<double> values;
    for (const std::vector<double>& array : arrays) values.push_back(array[e]);
    const double expected = formula.evaluate(values);
    EXPECT_NEAR(result.data[e], expected, 1e-14 * (1 + std::abs(expected))) << text << " at " << values[0];
  }
  return program.loop_count();
}

TEST(RowProgram, ExpressionsThatOftenComeTogetherAreOneLoop) {
  EXPECT_EQ(loops_of("hardswish(p)"), 1U);
  EXPECT_EQ(loops_of("relu(p)"), 1U);
  EXPECT_EQ(loops_of("silu((p - q) * r + s)"), 1U);
  EXPECT_EQ(loops_of("tanh((p - q) * r + s)"), 1U);
  EXPECT_EQ(loops_of("select(p <= -3, 0, select(p >= 3, q, q * ((p + 3 + p) / 6)))"), 1U);
  EXPECT_EQ(loops_of("select(p <= -3, 0, select(p >= 3, q, (p + (3 + p)) / 6 * q))"), 1U)
      << "operands turned";
  EXPECT_GT(loops_of("select(p <= -3, 0, select(p >= 3, q, q * ((p + 3 + p) / 5)))"), 1U) << "another number";
  EXPECT_GT(loops_of("select(p <= -3, 0, select(p >= 3, q, q * ((p + 3 + q) / 6)))"), 1U)
      << "another operand";
}

TEST(RowProgram, WhatIsTakenTwiceCostsNoLoopOfItsOwn) {
  // The comparison is in both, and hardswish in the gradient behind it.
  EXPECT_EQ(loops_of("select(p <= 0, 0, q) * select(p <= 0, r, p)"), 3U);
  EXPECT_EQ(loops_of("select(p <= -3, 0, select(p >= 3, hardswish(p), hardswish(p) * ((p + 3 + p) / 6)))"),
            2U);
}

TEST(RowProgram, WhatNothingTakesIsNotComputed) {
  const Formula formula = read("exp(p) + tanh(q)");
  // Only exp(p), the second step, is wanted.
  const RowProgram<float> program(formula.steps(), {true, true}, {1});
  EXPECT_EQ(formula.steps()[1].primitive, Primitive::kExp);
  EXPECT_EQ(program.loop_count(), 1U);
}

TEST(RowProgram, RepeatableStepsAreComputedOneByOne) {
  const Formula formula = read("hardswish(p)");
  const int result = static_cast<int>(formula.steps().size()) - 1;
  const RowProgram<float> program(formula.steps(), {true}, {result}, {result});
  EXPECT_GT(program.loop_count(), 3U);
}

}  // namespace
}  // namespace fuseblock::cpu
