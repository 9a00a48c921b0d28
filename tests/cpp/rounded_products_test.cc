// Which products of programs are rounded on their own (src/cuda/emit/rounded_products.h).
#include "cuda/emit/rounded_products.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/arrange.h"
#include "cuda/emit/formula_text.h"

namespace fuseblock::cuda {
namespace {

// How many of each sweep's products are rounded: `1 1`.
std::string counts(const std::string& block, const std::string& input, bool backward = false) {
  TypedBlock typed = TypedBlock::infer(Block::parse(block), TensorType::parse(input));
  if (backward) typed = typed.backward();
  const Schedule schedule = arranged(make_schedule(typed, Device::by_name("h200").description()));
  std::string text;
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind != StepKind::kSweep) continue;
    const std::vector<bool> rounded = rounded_products(schedule, step.sweep);
    text += (text.empty() ? "" : " ") + std::to_string(std::count(rounded.begin(), rounded.end(), true));
  }
  return text;
}

TEST(RoundedProducts, NormsOfWhatIsReadHaveNone) {
  for (const char* block : {"group_norm(4) | silu", "layer_norm(c) | gelu", "instance_norm | leaky_relu"})
    for (const char* input : {"f32[2,8,12,12]", "f32[2,8,12,12]:cl"}) {
      SCOPED_TRACE(std::string(block) + " " + input);
      EXPECT_EQ(counts(block, input), "0 0");
      EXPECT_EQ(counts(block, input, true).find('1'), std::string::npos);
    }
}

TEST(RoundedProducts, ANormOfAProduct) {
  for (const char* block : {"silu | group_norm(4)", "mul(0.3) | layer_norm(c)", "square | instance_norm",
                            "mul(0.3) | softmax(c)", "mul(0.3) | softmax(h,w)"})
    for (const char* input : {"f32[2,8,12,12]", "f32[2,8,12,12]:cl"}) {
      SCOPED_TRACE(std::string(block) + " " + input);
      EXPECT_EQ(counts(block, input), "1 1");
    }
  // Exact products need no rounding.
  EXPECT_EQ(counts("mul(0.5) | group_norm(4)", "f32[2,8,12,12]"), "0 0");
}

// exp(x * y - logsumexp) takes the product that the sum of exponentials was taken of.
TEST(RoundedProducts, ALogsumexpOfAProduct) {
  EXPECT_EQ(counts("mul(100) | logsumexp(c)", "f32[2,12,8,8]"), "1");
  EXPECT_EQ(counts("mul(100) | logsumexp(c)", "f32[2,12,8,8]", true), "1 1");
}

TEST(RoundedProducts, GroupsOfOneElement) {
  EXPECT_EQ(counts("group_norm(8)", "f32[2,8,12,12]", true), "0 0 0");
  const std::string alone = counts("group_norm(8)", "f32[2,8]", true);
  EXPECT_EQ(alone.back(), '1') << alone;
}

TEST(RoundedProducts, AreWrittenAsSuch) {
  std::vector<Formula::Step> steps(3);
  steps[0].primitive = steps[1].primitive = Primitive::kInput;
  steps[0].input = 0;
  steps[1].input = 1;
  steps[2] = {Primitive::kMul, 0, 1, -1, -1, 0};
  const auto written = [&](bool single, const std::vector<bool>& rounded) {
    Text text;
    write_statements(text, steps, [](int input) { return "i" + std::to_string(input); }, "real", single,
                     {rounded, false});
    return text.str();
  };
  EXPECT_EQ(written(true, {}), "const real t2 = i0 * i1;\n");
  EXPECT_EQ(written(true, {false, false, true}), "const real t2 = __fmul_rn(i0, i1);\n");
  EXPECT_EQ(written(false, {false, false, true}), "const real t2 = __dmul_rn(i0, i1);\n");
}

// gelu: 1 + erf(t) of a rounded product and its rest.
TEST(ExactSums, AreWrittenWhereTheyAreAskedFor) {
  std::vector<Formula::Step> steps(6);
  steps[0].primitive = Primitive::kInput;
  steps[0].input = 0;
  steps[1].constant = 0.7071067811865476;
  steps[2] = {Primitive::kMul, 1, 0, -1, -1, 0};
  steps[3] = {Primitive::kErf, 2, -1, -1, -1, 0};
  steps[4].constant = 1;
  steps[5] = {Primitive::kAdd, 4, 3, -1, -1, 0};
  const auto written = [&](bool single, bool exact) {
    Text text;
    const std::vector<std::string> names =
        write_statements(text, steps, [](int) { return "x"; }, "real", single, {{}, exact});
    EXPECT_EQ(names.back(), "t5");
    return text.str();
  };
  EXPECT_EQ(written(true, true),
            "const real t2 = __fmul_rn(0.70710677f, x);\n"
            "const real t3 = error_function(t2);\n"
            "const real rest2 = fmaf(0.70710677f, x, -t2) + 1.21016175e-08f * x;\n"
            "const real t5 = one_plus_error_function(t2, rest2);\n");
  EXPECT_NE(written(true, false).find("const real t5 = 1.0f + t3;"), std::string::npos);
  EXPECT_NE(written(false, true).find("const real t5 = 1.0 + t3;"), std::string::npos);
}

}  // namespace
}  // namespace fuseblock::cuda
