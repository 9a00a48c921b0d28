// What plans say of themselves: estimates, sweeps in words, and pictures that Graphviz can read.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cases.h"
#include "fuseblock/reference_blocks.h"
#include "plan/amounts.h"
#include "plan/estimate.h"
#include "refusal.h"

namespace fuseblock {
namespace {

using Json = nlohmann::json;

Plan reference_plan(const std::string& name, const std::string& device, Reuse reuse = Reuse::kByCost) {
  const ReferenceBlock* block = find_reference_block(name);
  return Plan::make(Block::parse(block->notation), block->input, {}, Device::by_name(device),
                    {.reuse = reuse});
}

Json explained(const Plan& plan) { return Json::parse(plan.explain_json()); }

TEST(Amounts, AreReadable) {
  EXPECT_EQ(amount(0), "0");
  EXPECT_EQ(amount(999), "999");
  EXPECT_EQ(amount(1000), "1.0 k");
  EXPECT_EQ(amount(12e9), "12 G");
  EXPECT_EQ(amount(12, "B"), "12 B");
  EXPECT_EQ(amount(4.23e12, "B/s"), "4.2 TB/s");
  EXPECT_EQ(time_text(0), "0.00 ns");
  EXPECT_EQ(time_text(1.234e-6), "1.23 us");
  EXPECT_EQ(time_text(99.99e-3), "100 ms");
  EXPECT_EQ(time_text(0.9999), "1.00 s");
  EXPECT_EQ(time_text(12345), "12345 s");
}

// Estimates

// 1e9 bytes/s, 1e9 operations/s of each kind, no cache, no start.
DeviceDescription unit_device() {
  DeviceDescription device;
  device.name = "unit";
  device.f32_rate = device.f64_rate = device.program_rate = device.special_rate = 1e9;
  device.memory_bandwidth = device.cache_bandwidth = 1e9;
  return device;
}

std::vector<StepEstimate> estimates(const std::string& block, const std::string& input,
                                    const DeviceDescription& device) {
  const TypedBlock typed = TypedBlock::infer(Block::parse(block), TensorType::parse(input));
  return estimate_steps(make_schedule(typed, device), CostModel(device, typed));
}

TEST(Estimates, OfASweepAreTheLongerOfMovingAndComputing) {
  const auto moving = estimates("relu", "f32[10,100]", unit_device());
  ASSERT_EQ(moving.size(), 1U);
  EXPECT_EQ(moving[0].read_bytes, 4000);
  EXPECT_EQ(moving[0].written_bytes, 4000);
  EXPECT_DOUBLE_EQ(moving[0].seconds, 8000 / 1e9);
  DeviceDescription slow = unit_device();
  slow.special_rate = 1e3;
  slow.sweep_start = 0.5;
  const auto computing = estimates("exp", "f32[10,100]", slow);
  EXPECT_EQ(computing[0].special, 1000);
  EXPECT_DOUBLE_EQ(computing[0].seconds, 0.5 + 1);
  EXPECT_DOUBLE_EQ(total(computing).seconds, computing[0].seconds);
}

TEST(Estimates, CountTheBytesOfTheTypes) {
  EXPECT_EQ(estimates("relu", "bf16[10,100]", unit_device())[0].read_bytes, 2000);
  EXPECT_EQ(estimates("relu", "f64[10,100]", unit_device())[0].written_bytes, 8000);
  // A value that is used twice in a sweep is read once.
  EXPECT_EQ(estimates("tanh as t | mul(x) | add(t)", "f32[10,100]", unit_device())[0].read_bytes, 4000);
}

TEST(Estimates, OfAConvolutionAreItsOperations) {
  DeviceDescription device = unit_device();
  device.f32_rate = 1e3;
  device.convolution_share = 0.5;
  const auto steps = estimates("conv2d(4, k=3, bias=false)", "f32[1,2,5,5]", device);
  EXPECT_EQ(steps[0].convolution_operations, 2.0 * 4 * 9 * 2 * 9);
  EXPECT_DOUBLE_EQ(steps[0].seconds, 2.0 * 4 * 9 * 2 * 9 / 500);
}

TEST(Estimates, ReadWhatFitsFromTheCache) {
  DeviceDescription device = unit_device();
  device.cache_bandwidth = 1e12;
  const auto from_memory = estimates("group_norm(2, affine=false) | relu", "f32[2,4,10,10]", device);
  device.cache_bytes = 1e6;
  const auto from_cache = estimates("group_norm(2, affine=false) | relu", "f32[2,4,10,10]", device);
  ASSERT_EQ(from_memory.size(), 3U);
  EXPECT_NEAR(from_cache[0].seconds, 3200 / 1e9, 3e-7);  // nothing is there yet
  EXPECT_LT(from_cache[2].seconds, from_memory[2].seconds);
}

// Words

TEST(Explain, SaysAlongWhichPositionsAStatisticIsTaken) {
  const TypedBlock block = TypedBlock::infer(Block::parse("softmax(w)"), TensorType::parse("f32[4,6,8,9]"));
  const std::string text = Plan::make(block, Device::by_name("cpu"), {}).explain();
  EXPECT_NE(text.find("-> max and sum of exp of x over w\n"), std::string::npos) << text;
  EXPECT_NE(text.find("softmax = exp(x - max(x)) / sum_exp(x)\n"), std::string::npos) << text;
}

TEST(Explain, DrawsEachSweep) {
  const std::string text = reference_plan("conv2d_gn_tanh_hardswish_residual_lse", "h200").explain();
  const std::vector<std::string> parts = {
      "plan for h200\n",
      "  1  sweep over [128,64,1,126,126], about ",
      "       conv2d(64, k=3) of x\n       -> moments of y for each n,c\n",
      "  2  finalise, about ",
      "       rstd(y) = 1 / sqrt(squares(y) / 63504 + 1e-05)\n",
      "  3  sweep over",
      "       -> group_norm = (y - mean(y)) * (rstd(y) * group_norm.weight) + group_norm.bias\n",
      "          tanh = tanh(group_norm)\n",
      "       -> max and sum of exp of add over c\n       -> logsumexp = ",
      "       -> output logsumexp\n",
      "never written to memory: y, group_norm, tanh, hardswish, add; writing and reading each once",
      " would move 5.2 GB\n",
      "choice for y: recompute, the smallest estimate\n    store, about ",
      " times as long: 520 MB written and read once at 4.2 TB/s\n  * recompute, about ",
      "in all about "};
  std::size_t place = 0;
  for (const std::string& part : parts) {
    const std::size_t found = text.find(part, place);
    ASSERT_NE(found, std::string::npos) << part << "\nis not behind byte " << place << " of\n" << text;
    place = found;
  }
}

TEST(Explain, SaysTheSameInJson) {
  const Json json = explained(reference_plan("conv2d_gn_tanh_hardswish_residual_lse", "h200"));
  ASSERT_EQ(json["sweeps"].size(), 3U);
  double milliseconds = 0;
  double read = 0;
  for (const Json& step : json["sweeps"]) {
    EXPECT_GT(step["milliseconds"], 0);
    milliseconds += step["milliseconds"].get<double>();
    read += step["read_bytes"].get<double>();
  }
  EXPECT_DOUBLE_EQ(json["estimated_ms"], milliseconds);
  EXPECT_DOUBLE_EQ(json["read_bytes"], read);
  EXPECT_EQ(json["never_written"], Json({"y", "group_norm", "tanh", "hardswish", "add"}));
  EXPECT_EQ(json["never_written_bytes"], 5 * 2 * 4.0 * 128 * 64 * 126 * 126);
  EXPECT_EQ(json["sweeps"][2]["epilogue_sinks"], "output logsumexp");
}

TEST(Explain, NamesTheKernelsOfAGpu) {
  const Plan plan =
      Plan::make(Block::parse("group_norm(32) | silu"), "bf16[2,320,64,64]:cl", {}, Device::by_name("h200"));
  const Json kernels = explained(plan)["kernels"];
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(kernels[0]["name"], "slices_cluster");
  const Json& clusters = kernels[0]["division"];
  EXPECT_EQ(clusters["units"], 2 * 320 / clusters["slice_channels"].get<int>());
  EXPECT_EQ(kernels[0]["blocks"], clusters["cluster"].get<int>() * clusters["units"].get<int>());
  EXPECT_EQ(kernels[0]["residency"], "registers");
  EXPECT_EQ(kernels[0]["again_bytes"], 0);
  EXPECT_NE(plan.explain().find(clusters["units"].dump() + " in all, each by a cluster of " +
                                clusters["cluster"].dump() + " blocks\n"),
            std::string::npos)
      << plan.explain();
}

// Kernels that have a unit once: in registers of a block or a cluster, and whole samples.
TEST(Explain, NamesWhatIsOnChipOnce) {
  const auto text = [](const char* input) {
    return Plan::make(Block::parse("group_norm(32) | silu"), input, {}, Device::by_name("h200")).explain();
  };
  const std::string blocks = text("bf16[128,512,28,28]"), clusters = text("bf16[2,320,64,64]");
  EXPECT_NE(blocks.find("  1  rows_registers: 2 sweeps"), std::string::npos) << blocks;
  EXPECT_NE(blocks.find(" 4096 in all, each by a block\n"), std::string::npos) << blocks;
  EXPECT_NE(clusters.find(" 64 in all, each by a cluster of 2 blocks\n"), std::string::npos) << clusters;
  EXPECT_NE(clusters.find(" vectors of a thread stay in its registers for the last sweep\n"),
            std::string::npos);
  const std::string whole = text("bf16[2,320,128,128]:cl");
  EXPECT_NE(whole.find("  1  slices_whole: 2 sweeps"), std::string::npos) << whole;
  EXPECT_NE(whole.find("whole samples, 2 in all, each by a team of "), std::string::npos) << whole;
  EXPECT_NE(whole.find(" vectors of a thread stay on chip for later sweeps, "), std::string::npos) << whole;
}

TEST(Explain, NamesTheTeamsOfAGpu) {
  const Plan plan = Plan::make(Block::parse("group_norm(32) | silu"), "bf16[2,320,256,256]:cl", {},
                               Device::by_name("h200"));
  const Json kernels = explained(plan)["kernels"];
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(kernels[0]["name"], "slices");
  const Json& division = kernels[0]["division"];
  EXPECT_EQ(division["units"], 2 * 320 / division["slice_channels"].get<int>());
  EXPECT_EQ(kernels[0]["blocks"], division["team"].get<int>() * division["teams"].get<int>());
  EXPECT_LE(division["kept_steps"], division["steps"]);
  EXPECT_EQ(kernels[0]["again_bytes"] == 0, division["kept_steps"] == division["steps"]);
  EXPECT_EQ(kernels[0]["residency"], "shared");
  EXPECT_EQ(kernels[0]["read_bytes"], 2.0 * (2 * 320 * 256 * 256 + 2 * 320));
  EXPECT_EQ(kernels[0]["written_bytes"], 2.0 * 2 * 320 * 256 * 256);
  const std::string slices = "slices of " + division["slice_channels"].dump() + " channels of a sample, " +
                             division["units"].dump() + " in all; teams of " + division["team"].dump() +
                             " blocks, " + division["teams"].dump() + " of them at work";
  EXPECT_NE(plan.explain().find("\n1 kernel, each launched once\n  1  slices: 2 sweeps"), std::string::npos)
      << plan.explain();
  EXPECT_NE(plan.explain().find(slices), std::string::npos) << plan.explain();
  const std::string wide = reference_plan("conv_transpose3d_relu_gn", "h200").explain();
  EXPECT_NE(wide.find("\n3 kernels, each launched once\n  1  conv_weights: "), std::string::npos) << wide;
  EXPECT_NE(wide.find("\n  2  conv_deep: 1 sweep, 1 finalise step; "), std::string::npos) << wide;
  // By what the division was chosen depends on the table of tuned ones.
  const Json chosen = explained(reference_plan("conv_transpose3d_relu_gn", "h200"))["kernels"][1]["chosen"];
  EXPECT_TRUE(chosen == "tuned" || chosen == "by the cost model") << chosen;
  EXPECT_NE(wide.find("products in strict; " + chosen.get<std::string>() + "\n  3  rows: 1 sweep; "),
            std::string::npos)
      << wide;
}

TEST(Explain, CountsWhatIsStoredAsWritten) {
  const Json stored = explained(reference_plan("conv_transpose3d_relu_gn", "h200", Reuse::kStore));
  const Json computed = explained(reference_plan("conv_transpose3d_relu_gn", "h200", Reuse::kRecompute));
  EXPECT_EQ(stored["never_written"], Json({"relu"}));
  EXPECT_EQ(computed["never_written"], Json({"conv_transpose3d", "relu"}));
  const double bytes = 4.0 * 16 * 128 * 34 * 34 * 34;
  EXPECT_EQ(stored["stored_bytes"], bytes);
  EXPECT_DOUBLE_EQ(stored["written_bytes"].get<double>() - computed["written_bytes"].get<double>(), bytes);
  EXPECT_LT(stored["estimated_ms"], computed["estimated_ms"]);
}

// Pictures

// Reads as much of the language of Graphviz as pictures use: statements of quoted identifiers, attributes in brackets,
// edges, one level of subgraphs. Throws where something else comes.
class DotReader {
 public:
  explicit DotReader(const std::string& text) : text_(text) {
    expect("digraph");
    string();
    body();
    skip_blanks();
    if (place_ != text_.size()) fail("the end");
  }

  std::map<std::string, std::string> nodes;  // label by identifier
  std::vector<std::pair<std::string, std::string>> edges;
  int frames = 0;

 private:
  void body() {
    expect("{");
    while (!accept("}")) statement();
  }

  void statement() {
    if (accept("subgraph")) {
      ++frames;
      string();
      body();
    } else if (accept("label=") || accept("labelloc=")) {
      string();
      expect(";");
    } else if (accept("node") || accept("edge") || accept("graph")) {
      attributes();
      expect(";");
    } else {
      const std::string first = string();
      if (accept("->"))
        edges.emplace_back(first, string());
      else
        nodes[first] = attributes();
      expect(";");
    }
  }

  std::string attributes() {
    std::string label;
    expect("[");
    do {
      skip_blanks();
      std::string key;
      while (place_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[place_])) != 0)
        key += text_[place_++];
      expect("=");
      const std::string value = string();
      if (key == "label") label = value;
    } while (accept(","));
    expect("]");
    return label;
  }

  std::string string() {
    expect("\"");
    std::string result;
    while (place_ < text_.size() && text_[place_] != '"') {
      if (text_[place_] == '\n') fail("a quote before the end of the line");
      if (text_[place_] == '\\') result += text_[place_++];
      result += text_[place_++];
    }
    if (place_ >= text_.size()) fail("a quote");
    ++place_;
    return result;
  }

  void skip_blanks() {
    while (place_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[place_])) != 0) ++place_;
  }
  bool accept(const std::string& word) {
    skip_blanks();
    if (text_.compare(place_, word.size(), word) != 0) return false;
    place_ += word.size();
    return true;
  }
  void expect(const std::string& word) {
    if (!accept(word)) fail(word);
  }
  void fail(const std::string& wanted) const {
    throw UserError("byte " + std::to_string(place_) + ": expected " + wanted + " in\n" + text_);
  }

  std::string text_;
  std::size_t place_ = 0;
};

bool reaches(const DotReader& picture, const std::string& from, const std::string& to) {
  std::set<std::string> seen = {from};
  for (bool more = true; more;) {
    more = false;
    for (const auto& [first, second] : picture.edges)
      if (seen.contains(first) && seen.insert(second).second) more = true;
  }
  return seen.contains(to);
}

std::string node_of(const DotReader& picture, const std::string& start) {
  for (const auto& [id, label] : picture.nodes)
    if (label.starts_with(start)) return id;
  return "";
}

TEST(Pictures, OfAllCasesRead) {
  for (const cases::Case& each : cases::read_cases(cases::case_files()))
    for (const char* device : {"cpu", "h200", "reference"}) {
      const Plan forward = Plan::make(each.typed(), Device::by_name(device));
      for (const Plan& plan : {forward, forward.backward()}) {
        SCOPED_TRACE(each.name + " on " + device);
        const DotReader picture(plan.explain_dot());
        EXPECT_GE(picture.nodes.size(), plan.outputs().size());
        for (const auto& [from, to] : picture.edges) {
          EXPECT_TRUE(picture.nodes.contains(from)) << from;
          EXPECT_TRUE(picture.nodes.contains(to)) << to;
        }
        const auto sources = std::count_if(picture.nodes.begin(), picture.nodes.end(),
                                           [](const auto& node) { return node.first.ends_with("_source"); });
        EXPECT_EQ(picture.frames, sources);
      }
    }
}

TEST(Pictures, LeadFromInputsToOutputs) {
  for (Reuse reuse : {Reuse::kStore, Reuse::kRecompute}) {
    const DotReader picture(
        reference_plan("conv2d_gn_tanh_hardswish_residual_lse", "h200", reuse).explain_dot());
    const std::string output = node_of(picture, "logsumexp\\n");
    ASSERT_FALSE(output.empty());
    for (const char* argument : {"x\\n", "y.weight", "y.bias", "group_norm.weight", "group_norm.bias"})
      EXPECT_TRUE(reaches(picture, node_of(picture, argument), output)) << argument;
    EXPECT_TRUE(reaches(picture, node_of(picture, "2  finalise"), output));
    EXPECT_EQ(picture.frames, 2);
    EXPECT_EQ(node_of(picture, "y\\n520 MB").empty(), reuse == Reuse::kRecompute);
  }
}

}  // namespace
}  // namespace fuseblock
