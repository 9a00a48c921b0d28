// Large and strange blocks: thousands of stages, huge extents, empty tensors. Each is right or refused, in seconds.
#include <gtest/gtest.h>

#include <ctime>

#include "cases.h"
#include "fuseblock/plan.h"
#include "refusal.h"

namespace fuseblock {
namespace {

constexpr int kStages = 10000;

// Seconds of processor time since it was made.
class Clock {
 public:
  double seconds() const { return static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC; }

 private:
  std::clock_t start_ = std::clock();
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSeconds = 40;
#else
constexpr double kSeconds = 4;
#endif

// The stages one after the other, `kStages` in all.
std::string pipe_of(const std::vector<std::string>& stages) {
  std::string text;
  for (int i = 0; i < kStages; ++i)
    text += (i > 0 ? " | " : "") + stages[static_cast<std::size_t>(i) % stages.size()];
  return text;
}

void expect_within_seconds(const std::string& text, const std::string& type, std::size_t gradients) {
  const Clock clock;
  const Block block = Block::parse(text);
  EXPECT_EQ(Block::parse(block.to_string()), block);
  EXPECT_EQ(Block::from_json(block.to_json()), block);
  const TypedBlock typed = TypedBlock::infer(block, TensorType::parse(type));
  const TypedBlock backward = typed.backward();
  EXPECT_EQ(backward.outputs().size(), gradients);
  EXPECT_EQ(Block::parse(backward.block().to_string()), backward.block());
  EXPECT_LT(clock.seconds(), kSeconds) << text.substr(0, 60);
}

TEST(ManyStages, OfOneOperation) { expect_within_seconds(pipe_of({"relu"}), "f32[2,3]", 1); }

TEST(ManyStages, WithParameters) {
  expect_within_seconds(pipe_of({"linear(4)", "group_norm(2)", "silu"}), "f32[2,4]", 1 + 2 * 3334 + 2 * 3333);
}

TEST(ManyStages, WithRunningStatistics) {
  expect_within_seconds(pipe_of({"batch_norm"}), "f32[2,4]", 1 + 2 * 10000);
}

TEST(ManyStages, ThatAllUseTheInput) {
  expect_within_seconds(pipe_of({"add(x)", "tanh", "mul(x)"}), "f32[2,3]", 1);
}

TEST(ManyStages, OfFormulas) {
  std::string text = "v0 = x * 1.5 + skip; ";
  for (int i = 1; i < kStages; ++i)
    text += "v" + std::to_string(i) + " = v" + std::to_string(i - 1) + " * sigmoid(v" +
            std::to_string(i - 1) + ") + skip; ";
  expect_within_seconds(text + "return v" + std::to_string(kStages - 1), "f32[2,3]", 2);
}

TEST(ManyStages, AllOfThemOutputs) {
  std::string text;
  std::string outputs;
  for (int i = 0; i < kStages; ++i) {
    text += "v" + std::to_string(i) + " = add(x, " + std::to_string(i) + "); ";
    outputs += (i > 0 ? ", v" : "v") + std::to_string(i);
  }
  expect_within_seconds(text + "return " + outputs, "f32[2,3]", 1);
}

TEST(ManyStages, Run) {
  const Plan plan = Plan::make(Block::parse(pipe_of({"mul(0.999)", "add(x)", "tanh"})), "f64[1,2]", {},
                               Device::reference());
  const cases::TensorMap arguments = cases::random_arguments(plan.block(), 1);
  EXPECT_EQ(cases::run(plan, arguments).at(plan.outputs()[0].name).to_doubles().size(), 2U);
}

TEST(ManyStages, AMistakeInTheLastIsFoundAndPlaced) {
  const std::string text = pipe_of({"relu"}) + " | group_norm(7)";
  const Clock clock;
  const Refusal got = refusal([&] { TypedBlock::infer(Block::parse(text), TensorType::parse("f32[2,24]")); });
  EXPECT_EQ(got.message, "group_norm(7): 24 channels do not divide into 7 groups");
  EXPECT_EQ(got.column, 7 * kStages + 1);
  EXPECT_LT(clock.seconds(), kSeconds);
}

TEST(LongTexts, NamesCommentsAndLists) {
  const std::string name(100000, 'y');
  const Block block = Block::parse("relu as " + name + " | add(" + name + ") # " + std::string(100000, '#'));
  EXPECT_EQ(Block::parse(block.to_string()), block);
  const Refusal unknown = refusal([&] { Block::parse(name); });
  EXPECT_LT(unknown.message.size(), 100U);
  std::string list = "1";
  for (int i = 0; i < 100000; ++i) list += ",1";
  EXPECT_TRUE(refusal([&] {
                Block::parse("conv2d(4, k=(" + list + "))");
              }).says("expected a whole number from 1 or a list"));
}

TEST(DeepNesting, IsRefusedNotFollowed) {
  const std::string parentheses(200000, '(');
  EXPECT_TRUE(refusal([&] { Block::parse("y = " + parentheses); }).says("nested more than 200 deep"));
  EXPECT_TRUE(refusal([&] { Block::parse("conv2d(4, k=" + parentheses); }).says("expected a whole number"));
  EXPECT_TRUE(refusal([&] { Block::parse("relu(" + parentheses); }).says("one item too many"));
  const std::string brackets(200000, '[');
  EXPECT_TRUE(refusal([&] { Block::from_json(brackets); }).says("this is not JSON"));
  const std::string closed = brackets + std::string(200000, ']');
  EXPECT_EQ(refusal([&] { Block::from_json(closed); }).pointer, "/statements");
  EXPECT_EQ(refusal([&] { Block::from_json("{\"statements\": [" + closed + "]}"); }).pointer,
            "/statements/0");
}

TEST(HugeExtents, AreCountedOrRefused) {
  struct Case {
    std::string block;
    std::string x;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"conv3d(2147483647, k=2147483647, pad=1073741823)", "f32[1,1,1,1,1]",
       "conv3d.weight would be f32[2147483647,1,2147483647"},
      {"linear(2147483647)", "f32[4294967296,4]",
       "the result f32[4294967296,2147483647] has more than 2^63 bytes"},
      {"linear(4)", "f32[2,576460752303423488]",
       "linear.weight would be f32[4,576460752303423488], more than 2^63 bytes"},
      {"conv2d(4, k=2147483647, pad=2147483647, dilation=2147483647)", "f32[1,1,1,1]",
       "the filter reaches over 4611686011984936963"},
      {"conv2d(4, k=1, pad=2147483647)", "f32[1,1,1,1]",
       "the result f32[1,4,4294967295,4294967295] has more than 2^63 bytes"},
      {"conv_transpose1d(1, k=3, stride=2147483647)", "f32[1,1,4000000000]",
       "the output along w is too long to count"},
      {"conv_transpose1d(1, k=2147483647, dilation=2147483647)", "f32[1,1,4]", "has more than 2^63 bytes"},
      {"max_pool(2147483647, dilation=2147483647)", "f32[1,1,1000]",
       "the window reaches over 4611686011984936963 positions"},
      {"add(skip)", "f32[1,4294967296]", ""},
      {"group_norm(4294967296)", "f32[1,4294967296]", "expected at most 2147483647"},
      {"mean(c) | add(x)", "f64[1,1000000000000000000]", ""},
  };
  for (const Case& each : cases) {
    const Refusal got =
        refusal([&] { TypedBlock::infer(Block::parse(each.block), TensorType::parse(each.x)).backward(); });
    EXPECT_EQ(got.message.empty(), each.message.empty()) << each.block << ": " << got;
    EXPECT_TRUE(got.says(each.message)) << each.block << ": " << got;
  }
  // Two values of 2^62 bytes each broadcast to one of 2^93.
  TypeMap others;
  others["skip"] = TensorType::parse("f32[1073741824,1]");
  EXPECT_TRUE(refusal([&] {
                TypedBlock::infer(Block::parse("add(skip)"), TensorType::parse("f32[1,9223372036854775]"),
                                  others);
              }).says("has more than 2^63 bytes"));
}

// Nothing in, nothing or zeros out; forward and all gradients.
TEST(EmptyTensors, GiveTheRightEmptyResults) {
  struct Case {
    std::string block;
    std::string x;
    std::vector<std::int64_t> output;
  };
  const std::vector<Case> cases = {
      {"conv2d(4, k=3) | group_norm(2) | relu | mean(h,w)", "f32[0,3,5,5]", {0, 4}},
      {"linear(5) | softmax(c)", "bf16[0,3]", {0, 5}},
      {"conv_transpose1d(4, k=3) | instance_norm | max_pool(2)", "f32[0,3,5]", {0, 4, 3}},
      {"batch_norm | avg_pool(2) | l2_normalize(c)", "f16[0,3,4,4]:cl", {0, 3, 2, 2}},
      {"layer_norm(c) | add(skip) | logsumexp(c)", "f64[0,3]", {0}},
      {"tanh | mul(gate)", "f32[2,3,0,7]", {2, 3, 0, 7}},
      {"max(c,h,w)", "f32[0,3,5,5]", {0}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.block);
    const Plan plan = Plan::make(Block::parse(each.block), each.x, {}, Device::reference());
    cases::TensorMap arguments = cases::random_arguments(plan.block(), 3);
    EXPECT_EQ(plan.outputs()[0].type.extents, each.output);
    EXPECT_TRUE(cases::run(plan, arguments).at(plan.outputs()[0].name).to_doubles().empty());
    arguments.merge(cases::random_output_gradients(plan.block(), 4));
    for (const auto& [name, gradient] : cases::run(plan.backward(), arguments))
      for (double number : gradient.to_doubles()) EXPECT_EQ(number, 0) << name;
  }
  const Plan sum = Plan::make(Block::parse("sum"), "f32[0,3]", {}, Device::reference());
  EXPECT_EQ(cases::run(sum, cases::random_arguments(sum.block(), 1)).at("sum").to_doubles(),
            std::vector<double>{0});
}

}  // namespace
}  // namespace fuseblock
