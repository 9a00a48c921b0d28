// The reference engine on cases small enough to be computed by hand. Everything is compared exactly; NaN equals NaN.
#include "reference/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fuseblock/error.h"
#include "fuseblock/plan.h"

namespace fuseblock {
namespace {

using Numbers = std::vector<double>;
using Inputs = std::map<std::string, Numbers>;
using Types = std::map<std::string, std::string>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void expect_equal(const Numbers& got, const Numbers& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool equal = std::isnan(expected[i]) ? std::isnan(got[i]) : got[i] == expected[i];
    EXPECT_TRUE(equal) << "element " << i << ": " << got[i] << ", expected " << expected[i];
  }
}

Tensor tensor(const TensorType& type, const Numbers& numbers) {
  Tensor result(type);
  EXPECT_EQ(static_cast<std::int64_t>(numbers.size()), type.element_count()) << to_string(type);
  for (std::size_t i = 0; i < numbers.size(); ++i) result.set(static_cast<std::int64_t>(i), numbers[i]);
  return result;
}

// Runs a plan in a workspace whose bytes all have the value `poison`, and gives its outputs.
std::vector<Numbers> run_poisoned(const Plan& plan, const Inputs& inputs, unsigned char poison) {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, ConstTensorView, std::less<>> input_views;
  std::map<std::string, TensorView, std::less<>> output_views;
  for (const NamedType& input : plan.inputs()) {
    Tensor& owner = tensors["input " + input.name] = tensor(input.type, inputs.at(input.name));
    input_views[input.name] = owner.view();
  }
  for (const NamedType& output : plan.outputs()) {
    Tensor& owner = tensors["output " + output.name] = Tensor(output.type);
    output_views[output.name] = owner.view();
  }
  constexpr std::size_t kGuard = 64;
  std::vector<std::byte> memory(plan.workspace_bytes() + 2 * kGuard, std::byte{poison});
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
  const std::size_t start = 64 - misaligned;
  plan.run(plan.bind(input_views, output_views), std::span(memory).subspan(start, plan.workspace_bytes()));
  for (std::size_t i = start + plan.workspace_bytes(); i < memory.size(); ++i)
    EXPECT_EQ(memory[i], std::byte{poison}) << "written behind the workspace";

  std::vector<Numbers> results;
  for (const NamedType& output : plan.outputs())
    results.push_back(tensors["output " + output.name].to_doubles());
  return results;
}

std::vector<Numbers> run(const Plan& plan, const Inputs& inputs) {
  std::vector<Numbers> results = run_poisoned(plan, inputs, 0xFF);
  const std::vector<Numbers> again = run_poisoned(plan, inputs, 0x3F);
  EXPECT_EQ(results.size(), again.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].size(), again[i].size());
    if (results[i].empty()) continue;
    EXPECT_EQ(std::memcmp(results[i].data(), again[i].data(), results[i].size() * sizeof(double)), 0)
        << "output " << i << " depends on what the workspace held";
  }
  return results;
}

Plan plan(std::string_view block, std::string_view x, const Types& types = {}) {
  TypeMap others;
  for (const auto& [name, text] : types) others[name] = TensorType::parse(text);
  return Plan::make(Block::parse(block), x, others, Device::reference());
}

// The outputs of a block, f64 unless the types say otherwise.
std::vector<Numbers> run(std::string_view block, std::string_view x, const Inputs& inputs,
                         const Types& types = {}) {
  return run(plan(block, x, types), inputs);
}

// The only output of a block.
Numbers run_one(std::string_view block, std::string_view x, const Inputs& inputs, const Types& types = {}) {
  std::vector<Numbers> results = run(block, x, inputs, types);
  EXPECT_EQ(results.size(), 1U);
  return results.front();
}

TEST(ReferenceConvolution, OneAxis) {
  expect_equal(run_one("conv1d(1, k=2)", "f64[1,1,4]",
                       {{"x", {1, 2, 3, 4}}, {"conv1d.weight", {1, 10}}, {"conv1d.bias", {100}}}),
               {121, 132, 143});
  expect_equal(run_one("conv1d(1, k=3, stride=2, pad=1, dilation=2, bias=false)", "f64[1,1,5]",
                       {{"x", {1, 2, 3, 4, 5}}, {"conv1d.weight", {1, 10, 100}}}),
               {420, 42});
}

TEST(ReferenceConvolution, PaddingModes) {
  const Inputs inputs = {{"x", {1, 2, 3}}, {"conv1d.weight", {1, 10, 100}}};
  const std::string block = "conv1d(1, k=3, pad=1, bias=false, pad_mode=";
  expect_equal(run_one(block + "zeros)", "f64[1,1,3]", inputs), {210, 321, 32});
  expect_equal(run_one(block + "reflect)", "f64[1,1,3]", inputs), {212, 321, 232});
  expect_equal(run_one(block + "replicate)", "f64[1,1,3]", inputs), {211, 321, 332});
  expect_equal(run_one(block + "circular)", "f64[1,1,3]", inputs), {213, 321, 132});
}

TEST(ReferenceConvolution, SamePaddingOfAnEvenFilterLiesBehind) {
  expect_equal(run_one("conv1d(1, k=2, pad=same, bias=false)", "f64[1,1,3]",
                       {{"x", {1, 2, 3}}, {"conv1d.weight", {1, 10}}}),
               {21, 32, 3});
}

TEST(ReferenceConvolution, Groups) {
  expect_equal(run_one("conv1d(4, k=1, groups=2, bias=false)", "f64[1,2,2]",
                       {{"x", {1, 2, 10, 20}}, {"conv1d.weight", {1, 2, 3, 4}}}),
               {1, 2, 2, 4, 30, 60, 40, 80});
  expect_equal(run_one("conv1d(2, k=1, groups=2, bias=false)", "f64[1,4,1]",
                       {{"x", {1, 10, 100, 1000}}, {"conv1d.weight", {1, 2, 3, 4}}}),
               {21, 4300});
}

TEST(ReferenceConvolution, TwoAndThreeAxes) {
  expect_equal(run_one("conv2d(1, k=2, bias=false)", "f64[1,1,3,3]",
                       {{"x", {1, 2, 3, 4, 5, 6, 7, 8, 9}}, {"conv2d.weight", {1, 10, 100, 1000}}}),
               {5421, 6532, 8754, 9865});
  expect_equal(run_one("conv2d(1, k=(1,2), stride=(2,1), pad=(1,0), bias=false)", "f64[1,1,3,2]",
                       {{"x", {1, 2, 3, 4, 5, 6}}, {"conv2d.weight", {1, 10}}}),
               {0, 43, 0});
  expect_equal(run_one("conv3d(2, k=2)", "f64[2,1,2,2,2]",
                       {{"x", {1, 2, 3, 4, 5, 6, 7, 8, 10, 20, 30, 40, 50, 60, 70, 80}},
                        {"conv3d.weight", {1, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 3, 0, 0}},
                        {"conv3d.bias", {1000, 2000}}}),
               {1017, 2020, 1170, 2200});
}

TEST(ReferenceConvolution, Gradients) {
  const Types types = {{"dy", "f64[n=1,c=1,w=3]"}, {"filter", "f64[n=1,c=1,w=3]"}};
  const Inputs inputs = {{"x", {1, 2, 3}}, {"dy", {1, 10, 100}}, {"filter", {1, 10, 100}}};
  expect_equal(run_one("g = conv1d_grad_input(dy, filter, x, 1, k=3, pad=1, bias=false); return g",
                       "f64[1,1,3]", inputs, types),
               {20, 300, 2000});
  expect_equal(
      run_one("g = conv1d_grad_input(dy, filter, x, 1, k=3, pad=1, bias=false, pad_mode=reflect); return g",
              "f64[1,1,3]", inputs, types),
      {20, 10301, 2000});
  expect_equal(
      run_one("g = conv1d_grad_weight(dy, x, filter, 1, k=3, pad=1, bias=false, pad_mode=reflect); return g",
              "f64[1,1,3]", inputs, types),
      {212, 321, 232});
}

TEST(ReferenceConvolution, Transposed) {
  const std::string arguments = "1, k=3, stride=2, pad=1, output_pad=1, bias=";
  expect_equal(
      run_one("conv_transpose1d(" + arguments + "true)", "f64[1,1,2]",
              {{"x", {1, 2}}, {"conv_transpose1d.weight", {1, 10, 100}}, {"conv_transpose1d.bias", {1000}}}),
      {1010, 1102, 1020, 1200});
  const Types types = {{"dy", "f64[n=1,c=1,w=4]"}, {"filter", "f64[n=1,c=1,w=3]"}};
  const Inputs inputs = {{"x", {1, 2}}, {"dy", {1, 2, 3, 4}}, {"filter", {1, 10, 100}}};
  expect_equal(run_one("g = conv_transpose1d_grad_input(dy, filter, x, " + arguments + "false); return g",
                       "f64[1,1,2]", inputs, types),
               {210, 432});
  expect_equal(run_one("g = conv_transpose1d_grad_weight(dy, x, filter, " + arguments + "false); return g",
                       "f64[1,1,2]", inputs, types),
               {4, 7, 10});
}

TEST(ReferenceConvolution, TransposedGroups) {
  expect_equal(run_one("conv_transpose1d(4, k=1, groups=2, bias=false)", "f64[1,2,2]",
                       {{"x", {1, 2, 10, 20}}, {"conv_transpose1d.weight", {1, 2, 3, 4}}}),
               {1, 2, 2, 4, 30, 60, 40, 80});
  expect_equal(run_one("conv_transpose2d(1, k=2, bias=false)", "f64[1,2,1,2]",
                       {{"x", {1, 2, 3, 4}}, {"conv_transpose2d.weight", {1, 10, 100, 1000, 1, 0, 0, 0}}}),
               {4, 16, 20, 100, 1200, 2000});
}

TEST(ReferenceConvolution, Linear) {
  expect_equal(
      run_one(
          "linear(2)", "f64[2,3]",
          {{"x", {1, 2, 3, 4, 5, 6}}, {"linear.weight", {1, 10, 100, 1, 1, 1}}, {"linear.bias", {0, 1000}}}),
      {321, 1006, 654, 1015});
}

TEST(ReferenceNorms, GroupNorm) {
  const Numbers x = {1, 3, 1, 3, 0, 8, 0, 8};
  expect_equal(
      run_one("group_norm(2, eps=0)", "f64[1,4,2]",
              {{"x", x}, {"group_norm.weight", {1, 2, 3, 4}}, {"group_norm.bias", {10, 20, 30, 40}}}),
      {9, 11, 18, 22, 27, 33, 36, 44});
  expect_equal(run_one("group_norm(2, eps=0, affine=false)", "f64[1,4,2]", {{"x", x}}),
               {-1, 1, -1, 1, -1, 1, -1, 1});
}

TEST(ReferenceNorms, ZeroVarianceGivesTheBias) {
  expect_equal(run_one("group_norm(1)", "f64[1,1,3]",
                       {{"x", {0.1, 0.1, 0.1}}, {"group_norm.weight", {1e10}}, {"group_norm.bias", {7}}}),
               {7, 7, 7});
}

TEST(ReferenceNorms, NanStaysInItsSet) {
  expect_equal(run_one("instance_norm(eps=0)", "f64[1,2,2]", {{"x", {kNan, 1, 2, 4}}}), {kNan, kNan, -1, 1});
}

TEST(ReferenceNorms, InstanceNormAndLayerNorm) {
  expect_equal(
      run_one("instance_norm(eps=0, affine=true)", "f64[1,2,2]",
              {{"x", {1, 3, 0, 8}}, {"instance_norm.weight", {1, 2}}, {"instance_norm.bias", {0, 5}}}),
      {-1, 1, 3, 7});
  expect_equal(run_one("layer_norm(c, eps=0)", "f64[1,2,2]",
                       {{"x", {1, 0, 3, 8}}, {"layer_norm.weight", {1, 2}}, {"layer_norm.bias", {0, 5}}}),
               {-1, -1, 7, 7});
  expect_equal(run_one("layer_norm(c, w, eps=0, bias=false)", "f64[1,2,2]",
                       {{"x", {1, 3, 3, 1}}, {"layer_norm.weight", {1, 2, 3, 4}}}),
               {-1, 2, 3, -4});
}

TEST(ReferenceNorms, RmsNorm) {
  expect_equal(
      run_one("rms_norm(c, eps=0)", "f64[1,4]", {{"x", {2, -2, 2, 2}}, {"rms_norm.weight", {1, 2, 3, 4}}}),
      {1, -2, 3, 4});
  // The default eps of f32 is 2^-23.
  expect_equal(run_one("rms_norm(c, affine=false)", "f32[1,1]", {{"x", {1}}}), {1 - std::ldexp(1, -24)});
}

TEST(ReferenceNorms, BatchNorm) {
  expect_equal(run_one("batch_norm(eps=0)", "f64[1,2,2]",
                       {{"x", {3, 5, 6, 10}},
                        {"batch_norm.running_mean", {1, 2}},
                        {"batch_norm.running_var", {4, 16}},
                        {"batch_norm.weight", {2, 4}},
                        {"batch_norm.bias", {1, 0}}}),
               {3, 5, 4, 8});
}

TEST(ReferenceNorms, L2Normalize) {
  expect_equal(run_one("l2_normalize(c)", "f64[3,2]", {{"x", {3, 4, 0, 0, kNan, 1}}}),
               {0.6, 0.8, 0, 0, kNan, kNan});
  expect_equal(run_one("l2_normalize(c, eps=2)", "f64[1,2]", {{"x", {1, 0}}}), {0.5, 0});
}

TEST(ReferenceNorms, Softmax) {
  expect_equal(
      run_one("softmax(c)", "f64[5,2]", {{"x", {1000, 1000, -kInf, 0, kNan, 1, -kInf, -kInf, kInf, 1}}}),
      {0.5, 0.5, 0, 1, kNan, kNan, kNan, kNan, kNan, kNan});
  expect_equal(run_one("softmax(c, w)", "f64[1,2,2]", {{"x", {5, 5, 5, 5}}}), {0.25, 0.25, 0.25, 0.25});
}

TEST(ReferenceNorms, Rstd) {
  expect_equal(run_one("rstd(c, w, eps=0)", "f64[1,2,2]", {{"x", {0, 8, 8, 0}}}), {0.25});
  expect_equal(run_one("rstd(c, w, eps=0, groups=2)", "f64[1,4,1]", {{"x", {0, 8, 1, 3}}}),
               {0.25, 0.25, 1, 1});
}

TEST(ReferenceReductions, SumMeanMaxMin) {
  const Inputs inputs = {{"x", {1, 2, 3, 4, 5, 6, 7, 8}}};
  const std::string_view type = "f64[2,2,2]";
  expect_equal(run_one("sum(c)", type, inputs), {4, 6, 12, 14});
  expect_equal(run_one("sum(n, w)", type, inputs), {14, 22});
  expect_equal(run_one("sum", type, inputs), {36});
  expect_equal(run_one("mean(c, w, keepdim=true)", type, inputs), {2.5, 6.5});
  expect_equal(run_one("max(n)", type, inputs), {5, 6, 7, 8});
  expect_equal(run_one("min(c, w)", type, inputs), {1, 5});
}

TEST(ReferenceReductions, MeanOfGroups) {
  expect_equal(run_one("mean(c, w, keepdim=true, groups=2)", "f64[1,4,2]", {{"x", {1, 2, 3, 4, 5, 6, 7, 8}}}),
               {2.5, 2.5, 6.5, 6.5});
}

TEST(ReferenceReductions, NanAndInfinities) {
  const Inputs inputs = {{"x", {1, kNan, 3, kInf, 2, -kInf, -kInf, -kInf}}};
  const std::string_view type = "f64[4,2]";
  expect_equal(run_one("max(c)", type, inputs), {kNan, kInf, 2, -kInf});
  expect_equal(run_one("min(c)", type, inputs), {kNan, 3, -kInf, -kInf});
  expect_equal(run_one("mean(c)", type, inputs), {kNan, kInf, -kInf, -kInf});
  expect_equal(run_one("logsumexp(c)", type, inputs), {kNan, kInf, 2, -kInf});
}

TEST(ReferenceReductions, LogSumExpSubtractsTheLargest) {
  expect_equal(run_one("logsumexp(c)", "f64[2,2]", {{"x", {0, 0, 1000, 1000}}}),
               {std::log(2.0), 1000 + std::log(2.0)});
  expect_equal(run_one("logsumexp(c, w, keepdim=true)", "f64[1,2,2]", {{"x", {-1000, -1000, -1000, -1000}}}),
               {-1000 + std::log(4.0)});
}

TEST(ReferenceReductions, MeanOfManyEqualNumbersIsThatNumber) {
  expect_equal(run_one("mean(w)", "f64[1,1,1000]", {{"x", Numbers(1000, 0.1)}}), {0.1});
}

TEST(ReferenceReductions, SumOfManyNumbersIsAsExactAsOneOfFew) {
  EXPECT_EQ(run_one("sum(w)", "f64[1,1,100000]", {{"x", Numbers(100000, 0.1)}}), Numbers{10000});
  EXPECT_EQ(run_one("sum(w)", "f64[1,1,3]", {{"x", {1, 1e100, -1e100}}}), Numbers{1});
}

TEST(ReferencePools, MaxPool) {
  expect_equal(run_one("max_pool(2)", "f64[1,1,5]", {{"x", {1, 3, 2, 2, 9}}}), {3, 2});
  expect_equal(run_one("max_pool(2, ceil_mode=true)", "f64[1,1,5]", {{"x", {1, 3, 2, 2, 9}}}), {3, 2, 9});
  expect_equal(run_one("max_pool(3, stride=1, pad=1)", "f64[1,1,4]", {{"x", {-1, -2, -3, -4}}}),
               {-1, -1, -2, -3});
  expect_equal(run_one("max_pool(2, stride=1, dilation=2)", "f64[1,1,4]", {{"x", {1, 2, 3, 0}}}), {3, 2});
  expect_equal(run_one("max_pool(2)", "f64[1,1,2,4]", {{"x", {1, kNan, 3, 4, 5, 6, -kInf, 2}}}), {kNan, 4});
}

TEST(ReferencePools, MaxPoolAdjoints) {
  const Types types = {{"dy", "f64[n=1,c=1,w=4]"}};
  const std::string put = "g = max_pool_put(dy, x, 3, stride=1, pad=1); return g";
  const std::string take = "t = max_pool_take(v, x, 3, stride=1, pad=1); return t";
  // Equal elements: the first one wins.
  Inputs inputs = {{"x", {5, 5, 5, 5}}, {"dy", {1, 10, 100, 1000}}};
  expect_equal(run_one(put, "f64[1,1,4]", inputs, types), {11, 100, 1000, 0});
  // Several NaN: the last one wins.
  inputs["x"] = {kNan, 1, kNan, 2};
  expect_equal(run_one(put, "f64[1,1,4]", inputs, types), {1, 0, 1110, 0});
  inputs = {{"x", {1, 4, 2, 3}}, {"v", {10, 20, 30, 40}}};
  expect_equal(run_one(take, "f64[1,1,4]", inputs, {{"v", "f64[n=1,c=1,w=4]"}}), {20, 20, 20, 40});
}

TEST(ReferencePools, AvgPool) {
  const Inputs inputs = {{"x", {1, 2, 3, 4, 5, 6}}};
  const std::string_view type = "f64[1,1,6]";
  const std::string block = "avg_pool(3, stride=2, pad=1, ceil_mode=true";
  expect_equal(run_one(block + ")", type, inputs), {1, 3, 5, 3});
  expect_equal(run_one(block + ", count_include_pad=false)", type, inputs), {1.5, 3, 5, 6});
  expect_equal(run_one("avg_pool(2, divisor_override=4)", "f64[1,1,2,2]", {{"x", {1, 2, 3, 4}}}), {2.5});
  expect_equal(run_one("avg_pool((1,2), stride=1)", "f64[1,1,2,3]", inputs), {1.5, 2.5, 4.5, 5.5});
}

TEST(ReferencePools, AvgPoolGradient) {
  const std::string_view type = "f64[1,1,6]";
  const Types types = {{"dy", "f64[n=1,c=1,w=4]"}};
  const Inputs inputs = {{"x", {0, 0, 0, 0, 0, 0}}, {"dy", {6, 12, 18, 24}}};
  const std::string block = "g = avg_pool_grad(dy, x, 3, stride=2, pad=1, ceil_mode=true";
  expect_equal(run_one(block + "); return g", type, inputs, types), {2, 6, 4, 10, 6, 18});
  expect_equal(run_one(block + ", count_include_pad=false); return g", type, inputs, types),
               {3, 7, 4, 10, 6, 30});
}

TEST(ReferencePointwise, FormulasAndBroadcasting) {
  expect_equal(run_one("relu", "f64[1,4]", {{"x", {-1, 0, 2, kNan}}}), {0, 0, 2, kNan});
  expect_equal(run_one("hardswish", "f64[1,4]", {{"x", {-4, -3, 3, 5}}}), {0, 0, 3, 5});
  expect_equal(run_one("mul(scale) | add(shift, alpha=2)", "f64[2,2,2]",
                       {{"x", {1, 2, 3, 4, 5, 6, 7, 8}}, {"scale", {1, 10}}, {"shift", {100, 200, 300, 400}}},
                       {{"scale", "f64[c=2]"}, {"shift", "f64[n=2,w=2]"}}),
               {201, 402, 230, 440, 605, 806, 670, 880});
  // The other operand is the larger one.
  expect_equal(run_one("add(other)", "f64[1,2]", {{"x", {1, 2}}, {"other", {10, 20, 30, 40}}},
                       {{"other", "f64[2,2]"}}),
               {11, 22, 31, 42});
  expect_equal(run_one("maximum(y)", "f64[1,3]", {{"x", {1, kNan, 3}}, {"y", {2, 0, kNan}}}),
               {2, kNan, kNan});
  expect_equal(run_one("div(0)", "f64[1,3]", {{"x", {1, -1, 0}}}), {kInf, -kInf, kNan});
  expect_equal(run_one("square | sub(x)", "f64[1,2]", {{"x", {3, 5}}}), {6, 20});
}

TEST(ReferencePointwise, ExpandAndZeros) {
  const Types types = {{"row", "f64[c=2]"}};
  const Inputs inputs = {{"x", {0, 0, 0, 0}}, {"row", {2, 4}}};
  expect_equal(run_one("e = expand(row, x); return e", "f64[2,2]", inputs, types), {2, 4, 2, 4});
  expect_equal(run_one("e = expand(row, x, share=true); return e", "f64[2,2]", inputs, types), {1, 2, 1, 2});
  expect_equal(run_one("zeros", "f64[1,2]", {{"x", {kNan, 1}}}), {0, 0});
}

TEST(ReferenceBorders, RoundsOnlyWhatIsStored) {
  // 1 + 2^-12 is no bf16: it survives a cast inside the block and is rounded to nearest, ties to even, at the end.
  const double step = std::ldexp(1, -12);
  expect_equal(run_one("add(0.000244140625) | cast(bf16) | sub(1) | cast(f64)", "f64[1,1]", {{"x", {1}}}),
               {step});
  expect_equal(run_one("mul(257)", "bf16[1,2]", {{"x", {1, 2}}}), {256, 512});
  expect_equal(run_one("mul(65536)", "f16[1,2]", {{"x", {1, -0.5}}}), {kInf, -32768});
  expect_equal(run_one("cast(f32)", "f64[1,1]", {{"x", {0.1}}}), {static_cast<double>(0.1F)});
}

TEST(ReferenceBorders, SeveralOutputs) {
  const std::vector<Numbers> results =
      run("y = neg(x); z = square(y); s = sum(z); return z, y, s", "f64[1,2]", {{"x", {1, 2}}});
  ASSERT_EQ(results.size(), 3U);
  expect_equal(results[0], {1, 4});
  expect_equal(results[1], {-1, -2});
  expect_equal(results[2], {5});
}

TEST(ReferenceBorders, ChannelsLast) {
  expect_equal(run_one("sum(c)", "f64[1,2,2,2]:cl", {{"x", {1, 2, 3, 4, 10, 20, 30, 40}}}), {11, 22, 33, 44});
  expect_equal(run_one("mul(2)", "f32[1,2,1,2]:cl", {{"x", {1, 2, 3, 4}}}), {2, 4, 6, 8});
}

TEST(ReferenceBorders, AnyStrides) {
  const Plan doubled = plan("mul(2)", "f64[2,3]");
  std::vector<std::byte> memory(doubled.workspace_bytes() + 64);
  const std::size_t start = 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
  const auto workspace = std::span(memory).subspan(start, doubled.workspace_bytes());
  // The input is expanded along n and flipped along c, the output transposed with a gap after each element.
  const Numbers x = {1, 2, 3};
  Numbers y(12, -1);
  Arguments arguments;
  arguments.inputs = {{x.data() + 2, DType::kF64, {2, 3}, {0, -1}}};
  arguments.outputs = {{y.data(), DType::kF64, {2, 3}, {2, 4}}};
  doubled.run(arguments, workspace);
  expect_equal(y, {6, -1, 6, -1, 4, -1, 4, -1, 2, -1, 2, -1});
}

TEST(ReferenceEmpty, Batch) {
  const Inputs inputs = {{"x", {}}, {"conv1d.weight", {1, 2, 3, 4}}, {"conv1d.bias", {1, 2}}};
  expect_equal(run_one("conv1d(2, k=2)", "f64[0,1,3]", inputs), {});
  expect_equal(run_one("conv1d(2, k=2) | sum", "f64[0,1,3]", inputs), {0});
  expect_equal(run_one("conv1d(2, k=2) | mean(n, w)", "f64[0,1,3]", inputs), {kNan, kNan});
  expect_equal(run_one("conv1d(2, k=2) | logsumexp(n, w)", "f64[0,1,3]", inputs), {-kInf, -kInf});
  expect_equal(run_one("group_norm(1, affine=false) | softmax(c) | max(c) | relu", "f64[0,2,3]", {{"x", {}}}),
               {});
  expect_equal(run_one("max_pool(2) | avg_pool(1)", "f64[0,2,3]", {{"x", {}}}), {});
}

TEST(ReferenceEmpty, GradientsOfAnEmptyBatchAreZero) {
  const Plan backward = plan("conv1d(2, k=2)", "f64[0,1,3]").backward();
  Inputs inputs = {{"x", {}}, {"d_conv1d", {}}, {"conv1d.weight", {1, 2, 3, 4}}, {"conv1d.bias", {1, 2}}};
  const std::vector<Numbers> results = run(backward, inputs);
  ASSERT_EQ(results.size(), 3U);
  expect_equal(results[0], {});
  expect_equal(results[1], {0, 0, 0, 0});
  expect_equal(results[2], {0, 0});
}

TEST(ReferenceWorkspace, HoldsEveryValueInDouble) {
  // x and y take 3 doubles each, rounded up to 64 bytes.
  const TypedBlock block = TypedBlock::infer(Block::parse("relu"), TensorType::parse("f16[1,3]"));
  EXPECT_EQ(reference::workspace_bytes(block), 128U);
}

TEST(ReferenceWorkspace, RefusesWhatNoAddressReaches) {
  const TypedBlock block =
      TypedBlock::infer(Block::parse("relu"), TensorType::parse("f16[2305843009213693951,1]"));
  EXPECT_THROW(reference::workspace_bytes(block), NotSupportedError);
}

}  // namespace
}  // namespace fuseblock
