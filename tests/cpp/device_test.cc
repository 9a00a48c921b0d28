// Descriptions of devices: the table, this machine's CPU, what is kept in a file, and plans for devices that are not there.
#include "fuseblock/device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cpu/description.h"
#include "cpu/measure.h"
#include "fuseblock/plan.h"
#include "plan/cache_folder.h"
#include "plan/cost.h"
#include "plan/device_description.h"
#include "refusal.h"

namespace fuseblock {
namespace {

using Json = nlohmann::json;

const DeviceDescription& gpu(const std::string& name) {
  for (const DeviceDescription& each : gpu_descriptions())
    if (each.name == name) return each;
  throw InternalError("no such GPU in the table: " + name);
}

void expect_complete(const DeviceDescription& description) {
  SCOPED_TRACE(description.name);
  EXPECT_FALSE(description.model.empty());
  EXPECT_FALSE(description.summary.empty());
  EXPECT_GE(description.cores, 1);
  EXPECT_GT(description.f32_rate, 0);
  EXPECT_GT(description.f64_rate, 0);
  EXPECT_GE(description.f32_rate, description.f64_rate);
  EXPECT_GT(description.convolution_share, 0);
  EXPECT_LE(description.convolution_share, 1);
  EXPECT_GT(description.program_rate, description.special_rate);
  EXPECT_GT(description.special_rate, 0);
  EXPECT_GT(description.memory_bandwidth, 0);
  EXPECT_GE(description.cache_bandwidth, description.memory_bandwidth);
  EXPECT_GE(description.core_cache_bandwidth, description.cache_bandwidth);
  EXPECT_GT(description.cache_bytes, description.core_cache_bytes);
  EXPECT_GE(description.first_touch, 0);
  EXPECT_GT(description.sweep_start, 0);
}

TEST(Devices, OfTheTableAreComplete) {
  for (const char* name : {"h200", "h100", "a100", "l40s", "rtx4090"}) {
    expect_complete(gpu(name));
    EXPECT_EQ(gpu(name).origin, DescriptionOrigin::kTable);
    EXPECT_GE(gpu(name).f16_rate, gpu(name).tf32_rate);
  }
  EXPECT_DOUBLE_EQ(gpu("h200").memory_bandwidth, 4.23e12);
  EXPECT_DOUBLE_EQ(gpu("h200").tf32_rate, 372e12);
  EXPECT_DOUBLE_EQ(gpu("h200").f32_rate, 51e12);
  EXPECT_EQ(gpu("h200").cores, 132);
}

TEST(Devices, AreFoundByName) {
  EXPECT_TRUE(Device::by_name("cpu").runs());
  EXPECT_TRUE(Device::by_name("reference").runs());
  EXPECT_FALSE(Device::by_name("h200").runs());
  EXPECT_EQ(Device::by_name("h200").description().model, "NVIDIA H200 SXM");
  for (const Device& device : Device::available()) EXPECT_TRUE(device.runs()) << device.name();
  EXPECT_GT(Device::known().size(), Device::available().size());
  EXPECT_TRUE(refusal([] { Device::by_name("H200"); }).says("there is no device `H200`; there is cpu"));
  EXPECT_TRUE(refusal([] { Device::by_name(""); }).says("to plan for h200"));
}

TEST(Devices, OfTheCpuAreEstimatedOrMeasured) {
  expect_complete(Device::by_name("cpu").description());
  expect_complete(cpu::estimate(cpu::this_machine()));
  cpu::Machine bare;  // nothing is known of it
  expect_complete(cpu::estimate(bare));
  EXPECT_EQ(cpu::estimate(bare).origin, DescriptionOrigin::kEstimated);
  cpu::Machine four;
  four.cores = 4;
  EXPECT_EQ(cpu::estimate(four).f32_rate, 4 * cpu::estimate(bare).f32_rate);
}

TEST(Devices, OfTheCpuCanBeMeasured) {
  const DeviceDescription measured = cpu::measure(cpu::this_machine());
  expect_complete(measured);
  EXPECT_EQ(measured.origin, DescriptionOrigin::kMeasured);
  EXPECT_GT(measured.f32_rate_one_core, 0);
  EXPECT_GT(measured.memory_bandwidth_one_core, 0);
  EXPECT_GT(measured.first_touch, 0);
}

// Files of the CPU's description

class DescriptionFiles : public ::testing::Test {
 protected:
  std::string text() const { return cpu::description_text(description_); }
  bool is_read(const std::string& text) const { return cpu::read_description(text, machine_).has_value(); }
  std::string changed(const std::function<void(Json&)>& change) const {
    Json json = Json::parse(text());
    change(json);
    return json.dump();
  }

  cpu::Machine machine_ = cpu::this_machine();
  DeviceDescription description_ = cpu::estimate(machine_);
};

TEST_F(DescriptionFiles, ReadBackAsTheyWere) {
  const auto read = cpu::read_description(text(), machine_);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->origin, DescriptionOrigin::kMeasured);
  EXPECT_EQ(read->name, "cpu");
  EXPECT_EQ(read->model, description_.model);
  EXPECT_EQ(read->cores, description_.cores);
  for (const DescriptionFigure& figure : description_figures())
    EXPECT_EQ((*read).*figure.value, description_.*figure.value) << figure.key;
}

TEST_F(DescriptionFiles, OfAnotherMachineAreIgnored) {
  cpu::Machine other = machine_;
  other.cores += 1;
  EXPECT_FALSE(cpu::read_description(text(), other).has_value());
  other = machine_;
  other.model = "another";
  EXPECT_FALSE(cpu::read_description(text(), other).has_value());
}

TEST_F(DescriptionFiles, ThatAreDamagedAreIgnored) {
  ASSERT_TRUE(is_read(text()));
  for (std::size_t length = 0; length + 2 < text().size(); length += 7)
    EXPECT_FALSE(is_read(text().substr(0, length)));
  for (const char* wrong :
       {"[]", "null", "3", "{}", "{\"format\":1}", "{\"format\":1,\"description\":[]}", "\xff\xfe"})
    EXPECT_FALSE(is_read(wrong)) << wrong;
  EXPECT_FALSE(is_read(changed([](Json& json) { json["format"] = 2; })));
  EXPECT_FALSE(is_read(changed([](Json& json) { json["description"]["cores"] = "two"; })));
  EXPECT_FALSE(is_read(changed([](Json& json) { json["description"]["cores"] = -1; })));
  for (const DescriptionFigure& figure : description_figures()) {
    EXPECT_FALSE(is_read(changed([&](Json& json) { json["description"].erase(figure.key); }))) << figure.key;
    for (const Json& wrong : {Json(-1.0), Json(1e300), Json("1"), Json()})
      EXPECT_FALSE(is_read(changed([&](Json& json) { json["description"][figure.key] = wrong; })))
          << figure.key;
  }
  EXPECT_FALSE(is_read(changed([](Json& json) { json["description"]["memory_bandwidth"] = 0; })));
}

TEST(CacheFolder, HoldsWhatWasWritten) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "fuseblock_cache" / "deep";
  std::filesystem::remove_all(folder.parent_path());
  ASSERT_EQ(setenv("FUSEBLOCK_CACHE_DIR", folder.c_str(), 1), 0);
  EXPECT_EQ(cache_folder(), folder.string());
  EXPECT_FALSE(read_cached("a.json").has_value());
  EXPECT_EQ(write_cached("a.json", "first"), folder / "a.json");
  EXPECT_EQ(write_cached("a.json", "second"), folder / "a.json");
  EXPECT_EQ(read_cached("a.json"), "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1) << "something is left beside";
  ASSERT_EQ(setenv("FUSEBLOCK_CACHE_DIR", (folder / "a.json").c_str(), 1), 0);  // no folder
  EXPECT_FALSE(read_cached("a.json").has_value());
  EXPECT_TRUE(refusal([] { write_cached("b.json", "x"); }).says("b.json: the file cannot be written"));
  unsetenv("FUSEBLOCK_CACHE_DIR");
  ASSERT_EQ(setenv("XDG_CACHE_HOME", "/xdg", 1), 0);
  EXPECT_EQ(cache_folder(), "/xdg/fuseblock");
  unsetenv("XDG_CACHE_HOME");
  ASSERT_EQ(setenv("HOME", "/somebody", 1), 0);
  EXPECT_EQ(cache_folder(), "/somebody/.cache/fuseblock");
  unsetenv("HOME");
  EXPECT_FALSE(cache_folder().has_value());
  EXPECT_TRUE(refusal([] { write_cached("b.json", "x"); }).says("none of FUSEBLOCK_CACHE_DIR"));
}

// The cost model

TypedBlock typed(const std::string& block, const std::string& input) {
  return TypedBlock::infer(Block::parse(block), TensorType::parse(input));
}

TEST(CostModel, TakesTheRatesOfTheType) {
  const DeviceDescription& h200 = gpu("h200");
  const auto rate = [&](const std::string& input) {
    return CostModel(h200, typed("conv2d(8, k=3)", input)).convolution_rate() / h200.convolution_share;
  };
  EXPECT_DOUBLE_EQ(rate("f32[1,4,8,8]"), h200.tf32_rate);
  EXPECT_DOUBLE_EQ(rate("bf16[1,4,8,8]"), h200.f16_rate);
  EXPECT_DOUBLE_EQ(rate("f16[1,4,8,8]"), h200.f16_rate);
  EXPECT_DOUBLE_EQ(rate("f64[1,4,8,8]"), h200.f64_rate);
  const DeviceDescription cpu = cpu::estimate(cpu::this_machine());
  EXPECT_DOUBLE_EQ(CostModel(cpu, typed("conv2d(8, k=3)", "bf16[1,4,8,8]")).convolution_rate(),
                   cpu.f32_rate * cpu.convolution_share);
  EXPECT_EQ(CostModel(cpu, typed("relu", "bf16[2,3]")).element_bytes(), 4);
  EXPECT_EQ(CostModel(cpu, typed("relu", "f64[2,3]")).element_bytes(), 8);
}

// A device of round numbers: 4e9 bytes/s, cache of 1 MB at 8e9, 1e9 operations/s, first touch of 1 ns a byte.
DeviceDescription round_device() {
  DeviceDescription device = cpu::estimate({});
  device.f32_rate = 2e9;
  device.convolution_share = 0.5;
  device.memory_bandwidth = 4e9;
  device.cache_bytes = 1e6;
  device.cache_bandwidth = 8e9;
  device.first_touch = 1e-9;
  return device;
}

TEST(CostModel, ComparesStoringWithRecomputing) {
  const DeviceDescription device = round_device();
  const CostModel cost(device, typed("conv2d(8, k=3)", "f32[1,4,8,8]"));
  // 4 MB: written and read twice, and touched; 10 M operations twice.
  const Decision large = decide_reuse(cost, {"y", 1e6, 1e7, 1e6, 2}, Reuse::kByCost);
  ASSERT_EQ(large.alternatives.size(), 2U);
  EXPECT_EQ(large.alternatives[0].name, "store");
  EXPECT_DOUBLE_EQ(large.alternatives[0].seconds, 3e-3 + 0.4e-3);
  EXPECT_EQ(large.alternatives[1].name, "recompute");
  EXPECT_DOUBLE_EQ(large.alternatives[1].seconds, 20e-3);
  EXPECT_EQ(large.chosen, "store");
  EXPECT_EQ(large.reason, "the smallest estimate");
  // 0.4 MB fit the cache.
  const Decision small = decide_reuse(cost, {"y", 1e5, 1e5, 1e5, 1}, Reuse::kByCost);
  EXPECT_DOUBLE_EQ(small.alternatives[0].seconds, 2 * 0.05e-3 + 0.04e-3);
  EXPECT_EQ(small.chosen, "recompute");
  // A convolution of little arithmetic takes as long as reading its input.
  const Decision thin = decide_reuse(cost, {"y", 1e6, 1, 4e8, 1}, Reuse::kByCost);
  EXPECT_DOUBLE_EQ(thin.alternatives[1].seconds, 0.1);
  EXPECT_EQ(decide_reuse(cost, {"y", 1e6, 1e7, 1e6, 2}, Reuse::kRecompute).chosen, "recompute");
  EXPECT_EQ(decide_reuse(cost, {"y", 1e5, 1e5, 1e5, 1}, Reuse::kStore).chosen, "store");
  EXPECT_EQ(decide_reuse(cost, {"y", 1e5, 1e5, 1e5, 1}, Reuse::kStore).reason, "asked for");
}

// Plans for devices that are not there

TEST(PlanOnly, ExplainsAndDoesNotRun) {
  const Plan plan = Plan::make(Block::parse("conv2d(8, k=3) | group_norm(2) | relu"), "f32[1,4,16,16]", {},
                               Device::by_name("a100"));
  EXPECT_NE(plan.explain().find("a100"), std::string::npos);
  const Json json = Json::parse(plan.explain_json());
  EXPECT_TRUE(json["engine"].is_null());
  EXPECT_EQ(json["device"]["name"], "a100");
  EXPECT_EQ(json["device"]["origin"], "table");
  EXPECT_FALSE(json["device"]["runs"].get<bool>());
  EXPECT_EQ(json["sweep_count"], 2);
  EXPECT_EQ(plan.backward({"x"}).device().name(), "a100");
  const Refusal refused = refusal([&] { plan.run({}, {}); });
  EXPECT_TRUE(
      refused.says("a100: plans can be made for this device and explained, but nothing here runs them"));
  EXPECT_THROW(plan.run({}, {}), NotSupportedError);
}

TEST(Plans, ChooseTheSameForAnyNumberOfThreads) {
  const Block block = Block::parse("conv2d(64, k=3) as y | group_norm(16) | tanh | add(y) | logsumexp(c)");
  const auto decisions = [&](int threads) {
    const Plan plan = Plan::make(block, "f32[2,8,32,32]", {}, Device::by_name("cpu"), {.threads = threads});
    return Json::parse(plan.explain_json())["decisions"];
  };
  EXPECT_FALSE(decisions(0).empty());
  for (int threads : {1, 2, 3}) EXPECT_EQ(decisions(threads), decisions(0));
}

}  // namespace
}  // namespace fuseblock
