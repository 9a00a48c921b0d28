// Random blocks on the CPU engine against the reference engine. A failing block is reduced to the smallest
// one that still fails and printed on one line with the commands that repeat it.
//
// 600 blocks, and 2,000 with FUSEBLOCK_LONG=1. FUSEBLOCK_RANDOM_SEED=n takes the block of that seed alone,
// FUSEBLOCK_RANDOM_COUNT=n as many blocks.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "engine_agreement.h"

namespace fuseblock::random_blocks {
namespace {

std::uint64_t environment_number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::uint64_t block_count() {
  return environment_number("FUSEBLOCK_RANDOM_COUNT", std::getenv("FUSEBLOCK_LONG") != nullptr ? 2000 : 600);
}

bool differs(const RandomBlock& block, const Tamper& tamper = {}) {
  return compare_engines(block, tamper).verdict == Verdict::kDiffers;
}

std::string report(const RandomBlock& block, const Tamper& tamper = {}) {
  const RandomBlock least = shrink(block, [&](const RandomBlock& less) { return differs(less, tamper); });
  return compare_engines(least, tamper).difference + ": " + least.repeat_line();
}

bool has_operation(const RandomBlock& block, std::string_view name) {
  const Block parsed = Block::parse(block.text());
  for (const Node& node : parsed.nodes())
    if (node.operation->name == name) return true;
  return false;
}

TEST(RandomBlocks, AgreeWithTheReference) {
  constexpr int kMostFailures = 10;
  const std::uint64_t only = environment_number("FUSEBLOCK_RANDOM_SEED", 0);
  const std::uint64_t first = only > 0 ? only : 1;
  const std::uint64_t count = only > 0 ? 1 : block_count();
  std::uint64_t ill_conditioned = 0;
  int failures = 0;
  for (std::uint64_t seed = first; seed < first + count && failures < kMostFailures; ++seed) {
    const RandomBlock block = generate(seed);
    const Agreement agreement = compare_engines(block);
    ill_conditioned += agreement.verdict == Verdict::kIllConditioned ? 1 : 0;
    if (agreement.verdict != Verdict::kDiffers) continue;
    ++failures;
    ADD_FAILURE() << report(block);
  }
  if (only == 0) {
    EXPECT_LT(ill_conditioned, count / 20 + 1)
        << "of " << count << " blocks so many say nothing about the engine";
  }
}

// A largest or smallest element is found again when its gradient is taken, in another program than the one
// that reduced it.
TEST(RandomBlocks, ExtremaAreFoundAgain) {
  constexpr int kMostFailures = 5;
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= block_count() / 2 && failures < kMostFailures; ++seed) {
    RandomBlock block = generate(seed);
    block.x.dtype = DType::kF64;
    block.stages.push_back({"top", seed % 2 == 0 ? "max" : "min", {block.outputs[0]}, {}, ""});
    block.outputs = {"top"};
    if (!differs(block)) continue;
    ++failures;
    ADD_FAILURE() << report(block);
  }
}

TEST(RandomBlocks, CoverTheCatalogue) {
  std::set<std::string> wanted;
  for (const Operation* operation : operations())
    if (!operation->adjoint && operation->code != OpCode::kFormula) wanted.insert(operation->name);
  std::set<std::string> missing = wanted;
  std::set<std::string> keys;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    const RandomBlock block = generate(seed);
    const Block parsed = Block::parse(block.text());
    for (const Node& node : parsed.nodes()) missing.erase(node.operation->name);
    EXPECT_EQ(Block::parse(parsed.to_string()), parsed) << block.text();
    for (const Stage& stage : block.stages)
      for (const auto& [key, value] : stage.arguments) keys.insert(key);
  }
  EXPECT_TRUE(missing.empty()) << "never drawn: " << *missing.begin();
  for (const char* key :
       {"groups", "stride", "dilation", "pad", "pad_mode", "output_pad", "bias", "affine", "eps", "keepdim",
        "ceil_mode", "count_include_pad", "divisor_override", "alpha", "approximate"})
    EXPECT_TRUE(keys.contains(key)) << key;
}

// Results that are wrong wherever a block has a group norm lead to that group norm, on very little data.
TEST(RandomBlocks, ShrinkToTheStageThatIsWrong) {
  const Tamper tamper = [](const RandomBlock& block, cases::TensorMap& results) {
    if (!has_operation(block, "group_norm")) return;
    for (auto& [name, tensor] : results)
      if (tensor.type().element_count() > 0) tensor.set(0, tensor.get(0) + 1);
  };
  int tried = 0;
  for (std::uint64_t seed = 1; tried < 5; ++seed) {
    const RandomBlock block = generate(seed);
    if (block.stage_count() < 4 || !has_operation(block, "group_norm")) continue;
    if (compare_engines(block).verdict != Verdict::kAgrees) continue;
    ++tried;
    ASSERT_TRUE(differs(block, tamper)) << block.repeat_line();
    const RandomBlock least = shrink(block, [&](const RandomBlock& less) { return differs(less, tamper); });
    EXPECT_EQ(least.stage_count(), 1) << least.repeat_line();
    EXPECT_EQ(least.outputs.size(), 1U) << least.repeat_line();
    EXPECT_EQ(least.oddities, 0U) << least.repeat_line();
    EXPECT_EQ(least.x.element_count(), 1) << least.repeat_line();
    EXPECT_NE(report(block, tamper).find("fuseblock check 'group_norm("), std::string::npos)
        << report(block, tamper);
  }
}

// A fault that needs two stages and an extent keeps both.
TEST(RandomBlocks, ShrinkKeepsWhatTheFaultNeeds) {
  RandomBlock block;
  block.seed = 1;
  block.x = TensorType::make(DType::kF64, {2, 4, 9, 7});
  block.stages = {{"v1", "conv2d", {"x"}, {{"channels", "6"}, {"k", "(3,2)"}, {"pad", "1"}}, ""},
                  {"v2", "relu", {"v1"}, {}, ""},
                  {"v3", "max_pool", {"v2"}, {{"k", "2"}}, ""},
                  {"v4", "tanh", {"v3"}, {}, ""}};
  block.outputs = {"v4", "v2"};
  const RandomBlock least = shrink(block, [](const RandomBlock& less) {
    return has_operation(less, "relu") && has_operation(less, "max_pool") && less.x.extents[2] >= 5;
  });
  EXPECT_EQ(least.text(), "v2 = relu(x); v3 = max_pool(v2, k=1); return v3");
  EXPECT_EQ(least.x.extents, (std::vector<std::int64_t>{1, 1, 5, 1}));
}

}  // namespace
}  // namespace fuseblock::random_blocks
