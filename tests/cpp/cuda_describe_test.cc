// Launches as JSON, for programs that make them by themselves.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "fuseblock/fuseblock.h"

namespace fuseblock {
namespace {

using Json = nlohmann::json;

Plan plan_of(const std::string& block, const std::string& input, const Device& device) {
  return Plan::make(Block::parse(block), TensorType::parse(input), {}, device);
}
Plan plan_of(const std::string& block, const std::string& input) {
  return plan_of(block, input, Device::by_name("h200"));
}

// The members of the struct Arguments in a kernel's text.
int members(const std::string& text) {
  const std::size_t begin = text.find("struct Arguments {");
  const std::size_t end = text.find("};", begin);
  int count = 0;
  for (std::size_t i = begin; i < end; ++i) count += text[i] == ';' ? 1 : 0;
  return count;
}

void expect_complete(const Plan& plan) {
  const Json document = Json::parse(plan.launches_json());
  EXPECT_EQ(document["inputs"].size(), plan.inputs().size());
  EXPECT_EQ(document["outputs"].size(), plan.outputs().size());
  EXPECT_EQ(document["architecture"], "sm_90a");
  ASSERT_FALSE(document["launches"].empty());
  for (const Json& launch : document["launches"]) {
    std::string text;
    bool has_file = false;
    for (const Json& piece : launch["pieces"]) {
      text += piece["text"];
      has_file = has_file || !piece["file"].get<std::string>().empty();
    }
    EXPECT_TRUE(has_file);
    EXPECT_NE(text.find("__global__"), std::string::npos);
    EXPECT_EQ(members(text), static_cast<int>(launch["tensors"].size() + launch["scalars"].size()));
    for (const Json& slot : launch["tensors"]) EXPECT_LT(slot.get<std::size_t>(), document["slots"].size());
    // What is no expression is the address of memory, or of none.
    std::set<std::string> memory = {"finished"};
    for (const char* kind : {"counters", "scratch"})
      for (const Json& place : launch[kind]) {
        memory.insert(place["name"]);
        EXPECT_NE(place["text"], "");
      }
    for (const Json& scalar : launch["scalars"])
      EXPECT_TRUE(!scalar["text"].get<std::string>().empty() || memory.contains(scalar["name"])) << scalar;
    EXPECT_NE(launch["blocks"], "");
    for (const Json& value : launch["values"]) EXPECT_NE(value["text"], "") << value;
  }
}

TEST(CudaDescribe, LaunchesOfTheMainBlocks) {
  const std::vector<std::pair<std::string, std::string>> blocks = {
      {"group_norm(32) | silu", "bf16[2,320,64,64]"},
      {"hardswish | group_norm(4) | mean(d,h,w)", "f32[64,16,13,29,29]"},
      {"l2_normalize(c) | silu", "bf16[2,96,64,64]"},
      {"group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim)", "f32[2,64,30,30]"},
      {"max_pool(2)", "f32[2,8,16,16]"},
      {"mean(w)", "f32[2,8,16,16]"},
  };
  for (const auto& [block, input] : blocks) {
    SCOPED_TRACE(block);
    const TrainingPlans plans = plan_of(block, input).for_training();
    expect_complete(plans.forward);
    expect_complete(plans.backward);
  }
}

// Kernels with a short text take addresses alone, and say for which extents they are.
TEST(CudaDescribe, PlainKernels) {
  const Device device = Device::by_name("h200");
  PlanOptions options;
  options.kernels.plain = PlainKernels::kAlways;
  const std::vector<std::pair<std::string, std::string>> blocks = {
      {"hardswish | group_norm(4) | mean(d,h,w)", "f32[64,16,13,29,29]"},
      {"group_norm(8) | mean(c,d,h,w)", "f32[8,24,22,30,30]"},
      {"relu | group_norm(8)", "f32[16,128,34,34,34]"},
      {"group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim)", "f32[16,64,30,30]"},
  };
  for (const auto& [block, input] : blocks) {
    SCOPED_TRACE(block);
    const TrainingPlans plans =
        Plan::make(Block::parse(block), TensorType::parse(input), {}, device, options).for_training();
    for (const Plan& plan : {plans.forward, plans.backward}) {
      expect_complete(plan);
      const Json document = Json::parse(plan.launches_json());
      for (const Json& launch : document["launches"]) {
        EXPECT_TRUE(launch["name"].get<std::string>().starts_with("plain")) << launch["name"];
        EXPECT_TRUE(launch["addresses"]);
        EXPECT_EQ(launch["cooperative"] == "True", launch["shared_bytes"] > 0);
      }
    }
  }
  // Sums over the batch that are nothing else are left to whoever launches: lists for samples, channels and their parts.
  const Plan norm = Plan::make(Block::parse("relu | group_norm(8)"),
                               TensorType::parse("f32[16,128,34,34,34]"), {}, device, options);
  const Json sums = Json::parse(norm.for_training().backward.launches_json())["launches"][0]["batch_sums"];
  ASSERT_EQ(sums.size(), 2);
  for (const Json& sum : sums) {
    EXPECT_EQ(sum["channels"], 128);
    EXPECT_EQ(sum["parts"], 4);
  }
  // What they cannot do has the planner's kernels.
  const Plan other =
      Plan::make(Block::parse("layer_norm(c)"), TensorType::parse("f32[2,64,16,16]"), {}, device, options);
  EXPECT_EQ(Json::parse(other.launches_json())["launches"][0]["name"], "columns");
  const Plan half =
      Plan::make(Block::parse("group_norm(4)"), TensorType::parse("bf16[2,64,16,16]"), {}, device, options);
  EXPECT_EQ(Json::parse(half.launches_json())["launches"][0]["name"], "rows");
}

TEST(CudaDescribe, StridesAreThoseOfTheLayout) {
  const Json document = Json::parse(plan_of("layer_norm(c) | silu", "f32[2,8,5,6]:cl").launches_json());
  EXPECT_EQ(document["slots"][0]["strides"], Json::array({240, 1, 0, 48, 8}));
  EXPECT_EQ(document["slots"][0]["extents"], Json::array({2, 8, 1, 5, 6}));
}

TEST(CudaDescribe, RefusesWhatHasNoKernels) {
  EXPECT_THROW(plan_of("conv2d(8, k=3) | relu", "f32[2,8,5,6]").launches_json(), NotSupportedError);
  EXPECT_THROW(plan_of("group_norm(4)", "f32[2,8,5,6]:cl").launches_json(), NotSupportedError);
  EXPECT_THROW(plan_of("group_norm(4)", "f32[2,8,5,6]", Device::reference()).launches_json(),
               NotSupportedError);
  EXPECT_THROW(plan_of("group_norm(4)", "f32[2,8,5,6]", Device::by_name("cpu")).launches_json(),
               NotSupportedError);
}

}  // namespace
}  // namespace fuseblock
