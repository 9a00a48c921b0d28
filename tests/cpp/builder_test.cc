// Blocks made in C++: the same as those read from text, with the same refusals.
#include <gtest/gtest.h>

#include <cmath>

#include "fuseblock/block.h"
#include "fuseblock/typed_block.h"
#include "refusal.h"

namespace fuseblock {
namespace {

using Integers = std::vector<std::int64_t>;

std::int64_t whole(std::int64_t number) { return number; }

TEST(Builder, MakesTheBlockOfTheText) {
  Builder build;
  const Value y = build.apply("conv2d", {build.x()}, {{"channels", whole(64)}, {"k", whole(3)}}, "y");
  const Value z = build.apply("group_norm", {y}, {{"groups", whole(16)}});
  const Block block = build.finish({build.apply("add", {z, y})});
  EXPECT_EQ(block, Block::parse("conv2d(64, k=3) as y | group_norm(16) | add(y)"));
}

TEST(Builder, TakesEveryKindOfArgument) {
  Builder build;
  Value value = build.x();
  value = build.apply("conv2d", {value},
                      {{"out_channels", whole(8)},
                       {"kernel_size", Integers{3, 5}},
                       {"pad", std::string("same")},
                       {"bias", false}});
  value = build.apply("leaky_relu", {value}, {{"negative_slope", whole(1)}});
  value = build.apply("gelu", {value}, {{"approximate", std::string("tanh")}});
  value = build.apply("max_pool", {value}, {{"k", Integers{2}}, {"stride", ArgumentValue()}});
  value = build.apply("mean", {value}, {{"axes", AxisSet{Axis::kH, Axis::kC}}, {"keepdim", true}});
  value = build.apply("mul", {value, -2.5});
  EXPECT_EQ(
      build.finish({value}),
      Block::parse("conv2d(8, k=(3,5), pad=same, bias=false) | leaky_relu(1) | gelu(tanh) | max_pool(2) | "
                   "mean(c,h, keepdim) | mul(-2.5)"));
}

TEST(Builder, ExtraInputsAndParametersByName) {
  Builder build;
  const Value skip = build.value("skip");
  EXPECT_EQ(build.value("skip"), skip);
  const Value first = build.apply("linear", {build.x()}, {{"channels", whole(4)}}, "first");
  const Value second =
      build.apply("linear", {first}, {{"channels", whole(4)}}, "second",
                  {{"weight", build.value("first.weight")}, {"bias", build.value("other.bias")}});
  const Block block = build.finish({build.apply("add", {second, skip})});
  EXPECT_EQ(
      block,
      Block::parse(
          "linear(4) as first | linear(4, weight=first.weight, bias=other.bias) as second | add(skip)"));
  EXPECT_EQ(block.value(*block.find("first.weight")).node, 0);
  EXPECT_EQ(block.value(*block.find("other.bias")).node, -1);
}

TEST(Builder, Formulas) {
  Builder text;
  const Block from_text = text.finish({text.formula("x * sigmoid(1.702 * x) + skip", "y")});
  Builder steps;
  const Formula x = Formula::input(0);
  const Formula scaled = Formula::apply(Primitive::kMul, {Formula::constant(1.702), x});
  const Formula gated = Formula::apply(Primitive::kMul, {x, Formula::apply(Primitive::kSigmoid, {scaled})});
  const Formula sum = Formula::apply(Primitive::kAdd, {gated, Formula::input(1)});
  const Block from_steps = steps.finish({steps.apply(sum, {steps.x(), steps.value("skip")}, "y")});
  EXPECT_EQ(from_text, from_steps);
  EXPECT_EQ(from_text, Block::parse("y = x * sigmoid(1.702 * x) + skip; return y"));
  // An operand given twice is one; one that is not used is none.
  Builder twice;
  const Formula product = Formula::apply(Primitive::kMul, {Formula::input(0), Formula::input(2)});
  const Block square =
      twice.finish({twice.apply(product, {twice.x(), twice.value("unused"), twice.x()}, "y")});
  EXPECT_EQ(square, Block::parse("y = x * x; return y"));
}

TEST(Builder, NamesValues) {
  Builder build;
  const Value first = build.apply("relu", {build.x()});
  const Value second = build.apply("relu", {first});
  EXPECT_EQ(build.name(build.x()), "x");
  EXPECT_EQ(build.name(first), "relu");
  EXPECT_EQ(build.name(second), "relu2");
  EXPECT_EQ(build.free_name("relu"), "relu3");
  EXPECT_EQ(build.free_name("tanh"), "tanh");
  EXPECT_EQ(build.name(build.formula("x + 1")), "value");
  EXPECT_TRUE(build.is_result(first));
  EXPECT_FALSE(build.is_result(build.value("skip")));
  EXPECT_EQ(build.value_count(), 5);
}

TEST(Builder, Renames) {
  Builder build;
  const Value y = build.apply("linear", {build.x()}, {{"channels", whole(4)}}, "y");
  build.rename(y, "z");
  build.rename(y, "z");
  EXPECT_EQ(build.name(y), "z");
  EXPECT_EQ(build.value("z"), y);
  const Block block = build.finish({y});
  // The parameters keep their names, so the stage has to say them.
  EXPECT_EQ(block.to_string(), "linear(4, weight=y.weight, bias=y.bias) as z");
  EXPECT_EQ(Block::parse(block.to_string()), block);
  EXPECT_EQ(refusal([&] { build.rename(y, "x"); }).message, "`z` cannot be renamed to `x`");
  EXPECT_EQ(refusal([&] { build.rename(y, "c"); }).message, "`z` cannot be renamed to `c`");
  EXPECT_EQ(refusal([&] { build.rename(y, "a b"); }).message, "`z` cannot be renamed to `a b`");
  EXPECT_EQ(refusal([&] { build.rename(build.x(), "w2"); }).message, "`x` cannot be renamed to `w2`");
}

TEST(Builder, LeavesOutWhatNoOutputNeeds) {
  Builder build;
  const Value y = build.apply("relu", {build.x()}, {}, "y");
  const Value unused = build.apply("linear", {y}, {{"channels", whole(4)}}, "unused");
  build.apply("tanh", {unused});
  const Value z = build.apply("silu", {y}, {}, "z");
  EXPECT_EQ(build.finish({z}), Block::parse("relu as y | silu as z"));
  EXPECT_EQ(build.finish({z, y}), Block::parse("y = relu(x); z = silu(y); return z, y"));
  EXPECT_TRUE(build.finish({unused}).find("unused.weight"));
}

TEST(Builder, RefusesWhatTheNotationRefuses) {
  Builder build;
  const Value y = build.apply("relu", {build.x()}, {}, "y");
  const auto apply = [&](const std::string& operation, const std::vector<Operand>& operands,
                         const Builder::NamedArguments& arguments = {}, const std::string& name = "",
                         const Builder::NamedOperands& parameters = {}) {
    return refusal([&] { build.apply(operation, operands, arguments, name, parameters); }).message;
  };
  EXPECT_EQ(apply("rleu", {y}), "no operation `rleu`; did you mean relu?");
  EXPECT_EQ(apply("relu", {}), "relu: expected 1 operand, got 0; it is relu(x)");
  EXPECT_EQ(apply("add", {y}), "add: expected 2 operands, got 1; it is add(x, other, alpha=1)");
  EXPECT_EQ(apply("relu", {2.0}), "relu: operand `x` is a value, got the number 2");
  EXPECT_EQ(apply("linear", {y}),
            "linear: argument `channels` is missing (output channels); it is linear(x, channels, bias=true)");
  EXPECT_EQ(apply("linear", {y}, {{"channels", whole(0)}}),
            "linear: channels=0: expected a whole number from 1");
  EXPECT_EQ(apply("linear", {y}, {{"channels", 4.0}}), "linear: channels=4: expected a whole number from 1");
  EXPECT_EQ(apply("linear", {y}, {{"width", whole(4)}}),
            "linear: there is no argument `width`; it is linear(x, channels, bias=true)");
  EXPECT_EQ(apply("linear", {y}, {{"channels", whole(4)}, {"out_features", whole(4)}}),
            "linear: argument `out_features` is given twice");
  EXPECT_EQ(apply("relu", {y}, {}, "y"), "the name `y` is taken already");
  EXPECT_EQ(apply("relu", {y}, {}, "h"), "`h` is a word of the notation and cannot name a value");
  EXPECT_EQ(apply("relu", {y}, {}, "1y"), "`1y` is not a name");
  EXPECT_EQ(apply("relu", {y}, {}, std::string("a\0b", 3)), "`a\\x00b` is not a name");
  EXPECT_EQ(apply("linear", {y}, {{"channels", whole(4)}}, "", {{"gamma", y}}),
            "linear: there is no parameter `gamma`");
  EXPECT_EQ(apply("linear", {y}, {{"channels", whole(4)}}, "", {{"x", y}}),
            "linear: there is no parameter `x`");
  EXPECT_EQ(apply("linear", {y}, {{"channels", whole(4)}, {"bias", false}}, "", {{"bias", y}}),
            "linear: parameter `bias` is given, but its flag is off");
  EXPECT_EQ(apply("relu", {Value{99}}), "the builder has no value number 99");
  EXPECT_EQ(refusal([&] { build.value("a b"); }).message, "`a b` is not a name");
  EXPECT_EQ(refusal([&] { build.value("true"); }).message,
            "`true` is a word of the notation and cannot name a value");
  EXPECT_EQ(refusal([&] { build.finish({}); }).message, "a block needs at least one output");
  EXPECT_EQ(refusal([&] { build.finish({build.x()}); }).message,
            "output `x` is an input; outputs are results");
  EXPECT_EQ(refusal([&] { build.finish({y, y}); }).message, "output `y` is named twice");
  EXPECT_EQ(refusal([&] { build.finish({Value{99}}); }).message, "the builder has no value number 99");
  EXPECT_EQ(refusal([&] { build.apply(Formula::input(1), {y}); }).message,
            "the formula has more inputs than there are operands");
  EXPECT_EQ(refusal([&] { build.apply(Formula::constant(1), {y}); }).message,
            "a formula needs at least one value");
  EXPECT_EQ(refusal([&] { build.formula("y +"); }).column, 4);
  // After all that the builder still works, and nothing of what was refused is left.
  EXPECT_EQ(build.finish({build.apply("tanh", {y})}), Block::parse("relu as y | tanh"));
}

// A mistake found later, when types are met, names the stage; there is no text to point into.
TEST(Builder, MistakesWithoutText) {
  Builder build;
  const Block block = build.finish({build.apply("group_norm", {build.x()}, {{"groups", whole(7)}})});
  const Refusal got = refusal([&] { TypedBlock::infer(block, TensorType::parse("f32[2,24,5]")); });
  EXPECT_EQ(got.message, "group_norm(7): 24 channels do not divide into 7 groups");
  EXPECT_EQ(got.line, 0);
  EXPECT_TRUE(got.excerpt.empty());
}

TEST(Builder, EveryNanIsTheSame) {
  Builder build;
  const Block block = build.finish({build.apply("mul", {build.x(), -std::nan("0x123")})});
  EXPECT_EQ(block, Block::parse("mul(nan)"));
  EXPECT_EQ(Block::parse(block.to_string()), block);
}

TEST(Builder, MayBeMoved) {
  Builder first;
  const Value y = first.apply("relu", {first.x()});
  Builder second = std::move(first);
  EXPECT_EQ(second.finish({second.apply("tanh", {y})}), Block::parse("relu | tanh"));
}

}  // namespace
}  // namespace fuseblock
