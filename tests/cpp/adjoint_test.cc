// Gradients of the reference engine in f64 against central differences, for the whole list of cases, element by element for
// every operation, and once more for the gradients themselves.
//
// With L = sum(d_y * y) over all outputs, the gradient G of an argument a must give <G, v> = (L(a + h v) - L(a - h v)) / 2h
// for any direction v. A step may cross a kink, so several are tried: a wrong gradient disagrees with all of them.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "cases.h"
#include "refusal.h"

namespace fuseblock {
namespace {

using cases::Case;
using cases::TensorMap;
using Numbers = std::vector<double>;

const std::vector<Case>& all_cases() {
  static const std::vector<Case> kCases = cases::read_cases(cases::case_files());
  return kCases;
}

Numbers plus(const Numbers& a, double factor, const Numbers& b) {
  Numbers sum = a;
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * b[i];
  return sum;
}

double dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void fill(Tensor& tensor, const Numbers& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) tensor.set(static_cast<std::int64_t>(i), numbers[i]);
}

// A block in f64 with random arguments and output gradients.
class GradientCheck {
 public:
  explicit GradientCheck(const TypedBlock& block)
      : block_(block),
        plan_(Plan::make(block, Device::reference())),
        tensors_(cases::random_arguments(block, 11)),
        output_gradients_(cases::random_output_gradients(block, 12)) {
    const Plan backward = plan_.backward();
    TensorMap all = cases::random_arguments(block, 11);
    for (auto& [name, gradient] : cases::random_output_gradients(block, 12))
      all[free_name(name)] = std::move(gradient);
    TensorMap results = cases::run(backward, all);
    const std::vector<std::string> wanted = block.differentiable();
    for (std::size_t i = 0; i < wanted.size(); ++i)
      gradients_[wanted[i]] = std::move(results.at(backward.outputs()[i].name));
  }

  // Along one random direction for each argument.
  void along_random_directions() {
    std::mt19937 random(13);
    std::normal_distribution<double> normal;
    for (const std::string& name : block_.differentiable()) {
      Numbers direction(static_cast<std::size_t>(tensors_.at(name).type().element_count()));
      for (double& number : direction) number = normal(random);
      check(name, direction);
    }
  }

  // Along each element of each argument.
  void element_by_element() {
    for (const std::string& name : block_.differentiable()) {
      const auto count = static_cast<std::size_t>(tensors_.at(name).type().element_count());
      for (std::size_t i = 0; i < count; ++i) {
        Numbers direction(count, 0.0);
        direction[i] = 1;
        check(name, direction);
      }
    }
  }

 private:
  // The name a gradient has in the backward block: with a number where the block has a value of that name.
  std::string free_name(const std::string& name) const {
    std::string result = name;
    for (int number = 2; block_.block().find(result); ++number) result = name + std::to_string(number);
    return result;
  }

  // L at the arguments as they are.
  double loss() {
    double sum = 0;
    for (const auto& [name, output] : cases::run(plan_, tensors_))
      sum += dot(output.to_doubles(), output_gradients_.at("d_" + name).to_doubles());
    return sum;
  }

  void check(const std::string& name, const Numbers& direction) {
    const double slope = dot(gradients_.at(name).to_doubles(), direction);
    Tensor& argument = tensors_.at(name);
    const Numbers start = argument.to_doubles();
    std::string tried;
    for (double step : {1e-5, 1e-6, 1e-4, 1e-7}) {
      fill(argument, plus(start, step, direction));
      const double above = loss();
      fill(argument, plus(start, -step, direction));
      const double below = loss();
      fill(argument, start);
      const double difference = (above - below) / (2 * step);
      const double rounding = 1e-14 * (1 + std::fabs(above)) / step;
      if (std::fabs(difference - slope) <= 1e-6 * (1 + std::fabs(slope)) + rounding) return;
      tried += " " + std::to_string(difference);
    }
    ADD_FAILURE() << "d_" << name << ": " << slope << ", but differences give" << tried << "\n  "
                  << block_.block().to_string();
  }

  TypedBlock block_;
  Plan plan_;
  TensorMap tensors_;
  TensorMap output_gradients_;
  TensorMap gradients_;  // by argument
};

TEST(Gradients, OfEveryCaseAlongRandomDirections) {
  for (const Case& each : all_cases()) {
    SCOPED_TRACE(each.name + ": " + each.command("reference"));
    GradientCheck(each.typed(DType::kF64)).along_random_directions();
  }
}

std::int64_t size_of(const TypedBlock& block) {
  std::int64_t elements = 0;
  for (const NamedType& argument : block.arguments()) elements += argument.type.element_count();
  return elements;
}

// For each operation of the catalogue the case that uses it with the fewest elements, without those of no elements.
std::map<std::string, TypedBlock> smallest_cases() {
  std::map<std::string, TypedBlock> smallest;
  for (const Case& each : all_cases()) {
    const TypedBlock block = each.typed(DType::kF64);
    if (block.type(Value{0}).element_count() == 0) continue;
    for (const Node& node : block.block().nodes()) {
      const auto [place, is_new] = smallest.try_emplace(node.operation->name, block);
      if (!is_new && size_of(block) < size_of(place->second)) place->second = block;
    }
  }
  return smallest;
}

TEST(Gradients, OfEveryOperationElementByElement) {
  const auto smallest = smallest_cases();
  for (const Operation* operation : operations())
    ASSERT_TRUE(smallest.contains(operation->name)) << operation->name;
  for (const auto& [operation, block] : smallest) {
    SCOPED_TRACE(operation);
    GradientCheck(block).element_by_element();
  }
}

// The backward block of the backward block.
TEST(Gradients, OfGradients) {
  for (const Case& each : all_cases()) {
    SCOPED_TRACE("backward of backward, " + each.name + ": " + each.block);
    GradientCheck(each.typed(DType::kF64).backward()).along_random_directions();
  }
}

TypedBlock infer(const std::string& block, const std::string& x,
                 const std::map<std::string, std::string>& others = {}) {
  TypeMap types;
  for (const auto& [name, text] : others) types[name] = TensorType::parse(text);
  return TypedBlock::infer(Block::parse(block), TensorType::parse(x), types);
}

TEST(Backward, OutputsAreNamedAfterTheArguments) {
  for (const Case& each : all_cases()) {
    const TypedBlock block = each.typed();
    const std::vector<std::string> wanted = block.differentiable();
    const std::vector<NamedType> gradients = block.backward().outputs();
    ASSERT_EQ(gradients.size(), wanted.size()) << each.name;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(gradients[i].name, "d_" + wanted[i]) << each.name;
      const TensorType type = block.type(*block.block().find(wanted[i]));
      EXPECT_EQ(gradients[i].type.extents, type.extents) << each.name << ": " << wanted[i];
      EXPECT_EQ(gradients[i].type.axes, type.axes) << each.name << ": " << wanted[i];
      EXPECT_EQ(gradients[i].type.dtype, type.dtype) << each.name << ": " << wanted[i];
    }
  }
}

// One gradient alone is, bit for bit, the same as among all of them.
TEST(Backward, OfASubsetIsThatOfAll) {
  for (const Case& each : all_cases()) {
    const TypedBlock block = each.typed();
    TensorMap arguments = cases::random_arguments(block, 1);
    arguments.merge(cases::random_output_gradients(block, 2));
    const TensorMap all = cases::run(Plan::make(block.backward(), Device::reference()), arguments);
    for (const std::string& name : block.differentiable()) {
      const TensorMap alone = cases::run(Plan::make(block.backward({name}), Device::reference()), arguments);
      ASSERT_EQ(alone.size(), 1U);
      EXPECT_EQ(alone.at("d_" + name).to_doubles(), all.at("d_" + name).to_doubles())
          << each.name << ": " << name;
    }
  }
}

TEST(Backward, ComputesOnlyWhatIsWanted) {
  const TypedBlock block = infer("conv2d(4, k=3) as first | relu | conv2d(4, k=3) as second", "f32[2,3,9,9]");
  auto uses = [&](const std::vector<std::string>& wanted, const std::string& operation) {
    std::size_t count = 0;
    const TypedBlock backward = block.backward(wanted);
    for (const Node& node : backward.block().nodes()) count += node.operation->name == operation ? 1 : 0;
    return count;
  };
  EXPECT_EQ(uses({"second.bias"}, "conv2d"), 0U);
  EXPECT_EQ(uses({"second.weight"}, "conv2d_grad_input"), 0U);
  EXPECT_EQ(uses({"first.weight"}, "conv2d_grad_input"), 1U);
  EXPECT_EQ(uses({"x"}, "conv2d_grad_input"), 2U);
  EXPECT_EQ(uses({"x"}, "conv2d_grad_weight"), 0U);
  const std::vector<NamedType> reversed = block.backward({"second.bias", "x"}).outputs();
  EXPECT_EQ(reversed[0].name, "d_second.bias");
  EXPECT_EQ(reversed[1].name, "d_x");
}

TEST(Backward, RefusesWhatHasNoGradient) {
  const TypedBlock block = infer("batch_norm | relu as y", "f32[2,3]");
  EXPECT_EQ(refusal([&] { block.backward({"z"}); }).message,
            "backward: `z` is not an input or parameter of the block; those with a gradient are x, "
            "batch_norm.weight, batch_norm.bias");
  EXPECT_TRUE(refusal([&] { block.backward({"y"}); }).says("`y` is not an input or parameter"));
  EXPECT_EQ(refusal([&] { block.backward({"batch_norm.running_var"}); }).message,
            "backward: `batch_norm.running_var` holds running statistics, which have no gradient");
  EXPECT_EQ(refusal([&] { block.backward({"x", "x"}); }).message, "backward: `x` is wanted twice");
}

// Running statistics are constants: a block that computes them is refused rather than given half a gradient.
TEST(Backward, RefusesToGoThroughRunningStatistics) {
  const std::string text = "m = mean(x, n); y = batch_norm(x, running_mean=m, affine=false); return y";
  const TypedBlock block = infer(text, "f32[2,3]");
  try {
    block.backward();
    FAIL();
  } catch (const NotSupportedError& error) {
    EXPECT_STREQ(error.what(),
                 "batch_norm(affine=false, running_mean=m): a gradient through running statistics is wanted; "
                 "they count as constants");
    EXPECT_EQ(error.position().column, 21);
  }
  const TypedBlock constant =
      infer("m = mean(s, n); y = batch_norm(x, running_mean=m, affine=false); return y", "f32[2,3]");
  EXPECT_EQ(constant.backward({"x"}).outputs().size(), 1U);
}

TEST(Backward, ADerivativeTooLongToWriteNamesItsStage) {
  std::string text = "x";
  for (int i = 0; i < 14; ++i) text = "square(" + text + ")";
  const Refusal got = refusal([&] { infer("y = " + text + "; return y", "f32[2,3]").backward(); });
  EXPECT_TRUE(got.says("its gradient: the formula is too long to be written down")) << got;
  EXPECT_EQ(got.column, 1);
}

// The gradients with the given output gradients, on small tensors.
TensorMap gradients(const TypedBlock& block, const std::map<std::string, Numbers>& numbers) {
  const TypedBlock backward = block.backward();
  TensorMap arguments;
  for (const NamedType& argument : backward.arguments())
    fill(arguments[argument.name] = Tensor(argument.type), numbers.at(argument.name));
  return cases::run(Plan::make(backward, Device::reference()), arguments);
}

TEST(Backward, AnArgumentUsedTwiceGetsBothParts) {
  const TensorMap result =
      gradients(infer("mul(x) | add(x)", "f64[1,2]"), {{"x", {3, -1}}, {"d_add", {1, 10}}});
  EXPECT_EQ(result.at("d_x").to_doubles(), (Numbers{7, -10}));
  const TypedBlock shared = infer(
      "a = linear(x, 1, bias=false); b = linear(a, 1, bias=false, weight=a.weight); return b", "f64[1,1]");
  const TensorMap of_shared = gradients(shared, {{"x", {2}}, {"a.weight", {5}}, {"d_b", {1}}});
  EXPECT_EQ(of_shared.at("d_a.weight").to_doubles(), Numbers{20});  // d (w w x) / dw = 2 w x
}

TEST(Backward, AnArgumentThatDoesNotMatterGetsZeros) {
  const TensorMap step = gradients(infer("y = x * (other < 0.5); return y", "f64[1,2]"),
                                   {{"x", {3, 4}}, {"other", {0, 1}}, {"d_y", {1, 1}}});
  EXPECT_EQ(step.at("d_other").to_doubles(), (Numbers{0, 0}));
  EXPECT_EQ(step.at("d_x").to_doubles(), (Numbers{1, 0}));
  const TensorMap unused = gradients(infer("y = tanh(other); return y", "f64[1,2]", {{"other", "f64[1,1]"}}),
                                     {{"x", {3, 4}}, {"other", {0}}, {"d_y", {5}}});
  EXPECT_EQ(unused.at("d_x").to_doubles(), (Numbers{0, 0}));
  EXPECT_EQ(unused.at("d_other").to_doubles(), Numbers{5});
}

TEST(Backward, BroadcastInputsGetTheSum) {
  const TypedBlock block =
      infer("y = x * scale + shift; return y", "f64[2,2,2]", {{"scale", "f64[2,1]"}, {"shift", "f64[n=2]"}});
  const TensorMap result = gradients(block, {{"x", {1, 2, 3, 4, 5, 6, 7, 8}},
                                             {"scale", {10, 100}},
                                             {"shift", {0, 0}},
                                             {"d_y", {1, 1, 1, 1, 1, 1, 1, 2}}});
  EXPECT_EQ(result.at("d_scale").to_doubles(), (Numbers{14, 30}));
  EXPECT_EQ(result.at("d_shift").to_doubles(), (Numbers{4, 5}));
  EXPECT_EQ(result.at("d_x").to_doubles(), (Numbers{10, 10, 100, 100, 10, 10, 100, 200}));
  // The other way round: x itself is the shorter one.
  const TensorMap expanded = gradients(infer("add(skip)", "f64[1,1]", {{"skip", "f64[1,3]"}}),
                                       {{"x", {0}}, {"skip", {0, 0, 0}}, {"d_add", {1, 2, 4}}});
  EXPECT_EQ(expanded.at("d_x").to_doubles(), Numbers{7});
}

TEST(Backward, SeveralOutputsAddUp) {
  const TypedBlock block = infer("a = x * x; b = a * 3; return a, b", "f64[1,1]");
  EXPECT_EQ(gradients(block, {{"x", {5}}, {"d_a", {1}}, {"d_b", {10}}}).at("d_x").to_doubles(), Numbers{310});
}

// A gradient has the dtype of its argument and is the f64 gradient, rounded once.
TEST(Backward, DtypesOfMixedBlocks) {
  const std::string text = "conv2d(4, k=3) | group_norm(2) | add(skip) | silu";
  const std::map<std::string, std::string> others = {{"conv2d.weight", "f32[4,3,3,3]"},
                                                     {"conv2d.bias", "f16[4]"},
                                                     {"group_norm.weight", "f64[4]"},
                                                     {"skip", "f32[4,1,1]"}};
  const TypedBlock mixed = infer(text, "bf16[2,3,5,5]", others);
  const TypedBlock precise = infer(text, "f64[2,3,5,5]", {{"skip", "f64[4,1,1]"}});
  TensorMap arguments = cases::random_arguments(mixed, 5);
  arguments.merge(cases::random_output_gradients(mixed, 6));
  TensorMap widened;
  for (const auto& [name, tensor] : arguments) {
    TensorType type = tensor.type();
    type.dtype = DType::kF64;
    fill(widened[name] = Tensor(type), tensor.to_doubles());
  }
  const TensorMap got = cases::run(Plan::make(mixed.backward(), Device::reference()), arguments);
  const TensorMap expected = cases::run(Plan::make(precise.backward(), Device::reference()), widened);
  for (const auto& [name, gradient] : got) {
    EXPECT_EQ(gradient.type().dtype, arguments.at(name.substr(2)).type().dtype) << name;
    Tensor rounded(gradient.type());
    fill(rounded, expected.at(name).to_doubles());
    EXPECT_EQ(gradient.to_doubles(), rounded.to_doubles()) << name;
  }
}

}  // namespace
}  // namespace fuseblock
