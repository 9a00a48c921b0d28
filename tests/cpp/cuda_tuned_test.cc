// Tuned divisions: the table, and launches that take what it says.
#include <gtest/gtest.h>

#include <set>

#include "cuda/arrange.h"
#include "cuda/engine.h"
#include "cuda/launch/cheapest.h"
#include "cuda/launch/conv_wishes.h"
#include "cuda/launch/kernel.h"
#include "cuda/tuned.h"
#include "fuseblock/tune.h"

namespace fuseblock::cuda {
namespace {

Gpu h200() {
  Gpu gpu = gpu_of(Device::by_name("h200").description());
  gpu.tuned = nullptr;
  return gpu;
}

Gpu with(const Gpu& gpu, const std::string& problem, const std::string& kernel, const std::string& division) {
  TunedTable table;
  table.add({gpu.kind, gpu.multiprocessors, kernel, problem, division, 1, 2});
  Gpu result = gpu;
  result.tuned = std::make_shared<const TunedTable>(std::move(table));
  return result;
}

Schedule schedule_of(const std::string& block, const std::string& input,
                     Precision precision = Precision::kStrict) {
  return arranged(make_schedule(TypedBlock::infer(Block::parse(block), TensorType::parse(input)),
                                Device::by_name("h200").description(), {.precision = precision}));
}

std::string table_text(const std::string& entries) {
  return R"({"format": "fuseblock tuned divisions 1", "entries": [)" + entries + "]}";
}

constexpr const char* kEntry =
    R"({"gpu": "h200", "multiprocessors": 132, "kernel": "conv", "problem": "p", "division": "threads=128", )"
    R"("us": 1.5, "us_by_cost_model": 2})";

TEST(Cheapest, KeepsTheCheapestInOrder) {
  Cheapest<int> cheapest(2);
  EXPECT_TRUE(cheapest.empty());
  for (const auto& [cost, number] : std::vector<std::pair<double, int>>{{3, 1}, {2, 2}, {2, 3}, {5, 4}})
    cheapest.add(cost, number);
  EXPECT_EQ(cheapest.best(), 2);
  EXPECT_EQ(cheapest.kept(), (std::vector<std::pair<double, int>>{{2, 2}, {2, 3}}));
  EXPECT_FALSE(cheapest.takes(2));
  EXPECT_TRUE(cheapest.takes(1.9));
}

TEST(TunedTable, ReadsWhatItWrites) {
  TunedTable table = TunedTable::parse(table_text(kEntry), "here");
  ASSERT_EQ(table.entries().size(), 1U);
  table.add({"a100", 108, "conv", "p", "rows=2,tile=1x2x3", 3, 4});
  table.add({"h200", 132, "conv_roll", "p", "", 1, 1});
  ASSERT_EQ(table.entries().size(), 2U);
  EXPECT_EQ(TunedTable::parse(table.text(), "here").entries(), table.entries());
  EXPECT_EQ(TunedTable::parse(table.text(), "here").text(), table.text());
  const Gpu gpu = h200();
  ASSERT_NE(table.find(gpu, "p"), nullptr);
  EXPECT_EQ(table.find(gpu, "p")->kernel, "conv_roll");
  EXPECT_EQ(table.find(gpu, "q"), nullptr);
  Gpu smaller = gpu;
  smaller.multiprocessors = 4;
  EXPECT_EQ(table.find(smaller, "p"), nullptr);
}

TEST(TunedTable, RefusesWhatIsNone) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{", "no table of tuned divisions"},
      {"[]", "`format` is missing"},
      {R"({"format": "other", "entries": []})", "expected the format"},
      {R"({"format": "fuseblock tuned divisions 1", "entries": 3})", "expected a list"},
      {table_text("{}"), "entry 1: `gpu` is missing"},
      {table_text(std::string(kEntry) + ", 7"), "entry 2: `gpu` is missing"},
      {table_text(R"({"gpu": 7})"), "gpu: not what was expected"},
      {table_text(std::string(kEntry).replace(std::string(kEntry).find("threads=128"), 11, "threads=77")),
       "entry 1: division: threads"},
  };
  for (const auto& [text, message] : cases) {
    try {
      TunedTable::parse(text, "here.json");
      ADD_FAILURE() << text;
    } catch (const UserError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("here.json: ")) << error.what();
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

TEST(TunedTable, TheLibrarysOwnIsWrittenByTheProgram) {
  const TunedTable table = TunedTable::parse(tuned_file(), "src/cuda/tuned.json");
  EXPECT_EQ(table.text(), tuned_file());
}

TEST(ConvWishes, ReadsWhatItWrites) {
  const std::string text =
      "roll=0,fold=1,deep=1,groups=2,columns=128,threads=256,blocks=2,rows=4,products=8,beside=2,stages=1,"
      "promote=4,down=0,"
      "width=30,depths=11,rounds=8,chunk=2,ring=3,images=3,taps=3,strip=32,tile=1x8x30";
  EXPECT_EQ(ConvWishes::parse(text).text(), text);
  EXPECT_FALSE(ConvWishes().any());
}

struct Case {
  const char* block;
  const char* input;
  Precision precision;
  const char* kernels;  // of the divisions
};

// Every division that a launch offers is one that it can have, and tells all that was chosen: the launch
// that finds it in the table is divided so.
TEST(Divisions, AreThoseThatALaunchCanHave) {
  const std::vector<Case> cases = {
      {"conv3d(24, k=3) | group_norm(8) | mean(c,d,h,w)", "f32[128,3,24,32,32]", Precision::kTf32,
       "conv conv_roll"},
      {"conv2d(64, k=3) as y | group_norm(16) | tanh | hardswish | add(y) | logsumexp(c, keepdim)",
       "bf16[16,8,64,64]", Precision::kStrict, "conv conv_roll"},
      {"conv2d(32, k=3, stride=2, pad=1) | group_norm(8) | relu", "f32[64,3,224,224]", Precision::kStrict,
       "conv"},
      {"conv2d(128, k=3, pad=1) | group_norm(32) | silu", "bf16[1,128,256,256]:cl", Precision::kStrict,
       "conv_deep conv_wide"},
      {"conv_transpose3d(128, k=3, bias=false) | relu | group_norm(8)", "f32[16,64,32,32,32]",
       Precision::kTf32, "conv_deep conv_wide"},
  };
  for (const Case& each : cases) {
    const Schedule schedule = schedule_of(each.block, each.input, each.precision);
    const Gpu gpu = h200();
    const std::vector<KernelCut> cuts = cut_into_kernels(schedule);
    const auto launch = make_launch(schedule, cuts[0], gpu, nullptr);
    EXPECT_EQ(launch->planned().back().chosen, "by the cost model");
    const std::vector<Division> divisions = launch->divisions();
    EXPECT_GE(divisions.size(), 8U) << each.block;
    std::set<std::string> kernels;
    std::set<std::string> texts;
    for (std::size_t i = 0; i < divisions.size(); ++i) {
      const Division& division = divisions[i];
      kernels.insert(division.kernel);
      EXPECT_TRUE(texts.insert(division.text).second) << division.text;
      EXPECT_FALSE(division.shape.empty()) << division.text;
      EXPECT_GT(division.cost, 0) << division.text;
      if (i % 7 != 0) continue;  // a launch takes its time to be made
      const auto tuned = make_launch(schedule, cuts[0],
                                     with(gpu, launch->problem(), division.kernel, division.text), nullptr);
      const PlannedKernel kernel = tuned->planned().back();
      EXPECT_EQ(kernel.chosen, "tuned") << each.block << " " << division.text;
      EXPECT_EQ(kernel.name, division.kernel);
      const ConvWishes wishes = ConvWishes::parse(division.text);
      EXPECT_EQ(kernel.threads, wishes.threads.value_or(kernel.name == "conv_deep" ? 384 : 256))
          << division.text;
      EXPECT_NE(kernel.division.back().find("; tuned"), std::string::npos);
    }
    std::string names;
    for (const std::string& name : kernels) names += (names.empty() ? "" : " ") + name;
    EXPECT_EQ(names, each.kernels) << each.block;
  }
}

// A division that this kernel does not have any more, and one for another problem, are passed over.
TEST(Divisions, ThatDoNotFitArePassedOver) {
  for (const auto& [block, input] : std::vector<std::pair<const char*, const char*>>{
           {"conv3d(24, k=3) | group_norm(8) | mean(c,d,h,w)", "f32[2,3,24,32,32]"},
           {"conv2d(128, k=3, pad=1) | silu", "bf16[1,128,64,64]"}}) {
    const Schedule schedule = schedule_of(block, input);
    const KernelCut cut = cut_into_kernels(schedule)[0];
    const auto launch = make_launch(schedule, cut, h200(), nullptr);
    for (const auto& [problem, division] : std::vector<std::pair<std::string, std::string>>{
             {launch->problem(), "threads=512,blocks=8,rows=4,columns=24"},
             {launch->problem(), ""},
             {launch->problem() + ", else", "threads=128,blocks=1"}}) {
      const auto other =
          make_launch(schedule, cut, with(h200(), problem, launch->planned().back().name, division), nullptr);
      EXPECT_EQ(other->planned().back().chosen, "by the cost model") << division;
      EXPECT_EQ(other->planned().back().digest, launch->planned().back().digest);
    }
  }
}

TEST(Tune, WantsAGpuOfThisMachine) {
  EXPECT_THROW(tune({}, Device::by_name("h200")), NotSupportedError);
  EXPECT_THROW(tune({}, Device::reference()), NotSupportedError);
}

}  // namespace
}  // namespace fuseblock::cuda
