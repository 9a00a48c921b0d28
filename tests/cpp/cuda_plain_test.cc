// Which plans have kernels with a short text, `plain` and `plain_channels`, and how many launches they take.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fuseblock/fuseblock.h"

namespace fuseblock {
namespace {

using Json = nlohmann::json;

constexpr const char* kLogsumexpTail = "group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim)";

std::string names(const Plan& plan) {
  const Json document = Json::parse(plan.explain_json());
  std::string result;
  for (const Json& kernel : document["kernels"])
    result += (result.empty() ? "" : " ") + kernel["name"].get<std::string>();
  return result;
}

// The kernels of forward and of backward: `plain | plain`.
std::string trained(const std::string& block, const std::string& input,
                    PlainKernels plain = PlainKernels::kByCost) {
  PlanOptions options;
  options.kernels.plain = plain;
  const auto [forward, backward] =
      Plan::make(Block::parse(block), TensorType::parse(input), {}, Device::by_name("h200"), options)
          .for_training();
  return names(forward) + " | " + names(backward);
}

TEST(CudaPlain, TailsOfTheReferenceBlocks) {
  EXPECT_EQ(trained("group_norm(8) | mean(c,d,h,w)", "f32[128,24,22,30,30]"), "plain | plain");
  EXPECT_EQ(trained("hardswish | group_norm(4) | mean(d,h,w)", "f32[1024,16,13,29,29]"), "plain | plain");
  EXPECT_EQ(trained(kLogsumexpTail, "f32[128,64,126,126]"), "plain plain_channels | plain");
  // Two sweeps, with nothing that the channels have in common.
  EXPECT_EQ(trained("relu | group_norm(8)", "f32[16,128,34,34,34]"), "rows | rows");
}

TEST(CudaPlain, ChoicesOfTheCaller) {
  EXPECT_EQ(trained(kLogsumexpTail, "f32[128,64,126,126]", PlainKernels::kNever), "rows columns | rows");
  EXPECT_EQ(trained("relu | group_norm(8)", "f32[16,128,34,34,34]", PlainKernels::kAlways), "plain | plain");
}

TEST(CudaPlain, OthersWhereTheyAreFaster) {
  // Few positions of a channel, few units, few positions in all; 16 bits, another layout, a program alone.
  EXPECT_EQ(trained("group_norm(8) | mean(h,w)", "f32[2,64,8,8]"), "rows | rows");
  EXPECT_EQ(trained(kLogsumexpTail, "f32[2,64,30,30]"), "plain columns | rows");
  EXPECT_EQ(trained(kLogsumexpTail, "f32[4,64,126,126]"), "plain columns | plain");
  EXPECT_EQ(trained("group_norm(8) | mean(h,w)", "bf16[64,64,56,56]"), "rows | rows");
  EXPECT_EQ(trained("group_norm(8) | mean(h,w)", "f32[64,64,56,56]:cl"), "slices | slices");
  EXPECT_EQ(trained("gelu", "f32[64,64,56,56]"), "rows | rows");
}

TEST(CudaPlain, AUnitIsOneShareWhereThereAreMany) {
  const auto blocks = [](const std::string& input) {
    const Plan plan =
        Plan::make(Block::parse(kLogsumexpTail), TensorType::parse(input), {}, Device::by_name("h200"));
    return Json::parse(plan.explain_json())["kernels"][0]["blocks"].get<int>();
  };
  EXPECT_EQ(blocks("f32[128,64,126,126]"), 128 * 16);
  EXPECT_EQ(blocks("f32[64,64,126,126]"), 64 * 64);
}

TEST(CudaPlain, SayWhyTheyAreThere) {
  const Plan plan = Plan::make(Block::parse("group_norm(8) | mean(h,w)"),
                               TensorType::parse("f32[64,64,56,56]"), {}, Device::by_name("h200"));
  EXPECT_NE(plan.explain().find("in place of rows: of one sweep, so that no block waits for another"),
            std::string::npos)
      << plan.explain();
}

}  // namespace
}  // namespace fuseblock
