#include "cpu/description.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cpu/measure.h"
#include "cpu/measure_loops.h"
#include "plan/cache_folder.h"
#include "plan/device_description.h"

namespace fuseblock {
namespace cpu {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFileName = "cpu.json";
constexpr int kFormat = 1;

// For the estimate. Clocks and the memory are unknown: what a server core of 2.5 GHz does, and what many of them get from
// memory together.
constexpr double kClock = 2.5e9;
constexpr double kBandwidthOfCore = 10e9;
constexpr double kBandwidthOfAll = 80e9;
constexpr double kCacheBandwidthOfCore = 20e9;
constexpr double kCoreCacheBandwidthOfCore = 60e9;
constexpr double kCoreCacheBytes = 512e3;
constexpr double kCacheBytes = 8e6;
constexpr double kClocksOfProgramStep = 5;  // loads, the operation and a store of one vector
constexpr double kFirstTouch = 2e-10;
constexpr double kSweepStart = 2e-6;

}  // namespace

DeviceDescription estimate(const Machine& machine) {
  DeviceDescription result;
  name_cpu(result, machine);
  result.origin = DescriptionOrigin::kEstimated;
  const double cores = machine.cores;
  // Two units, each a vector of multiply-adds a clock; without fused ones a product and a sum a clock.
  result.f32_rate_one_core = kClock * vector_lanes() * (has_fused_multiply_add() ? 4 : 2);
  result.f32_rate = cores * result.f32_rate_one_core;
  result.f64_rate = result.f32_rate / 2;
  result.program_rate = cores * kClock * vector_lanes() / kClocksOfProgramStep;
  result.special_rate = result.program_rate / 3;
  result.memory_bandwidth_one_core = kBandwidthOfCore;
  result.memory_bandwidth = std::min(cores * kBandwidthOfCore, kBandwidthOfAll);
  result.cache_bytes = machine.cache_bytes > 0 ? machine.cache_bytes : kCacheBytes;
  result.cache_bandwidth = cores * kCacheBandwidthOfCore;
  result.core_cache_bytes = machine.core_cache_bytes > 0 ? machine.core_cache_bytes : kCoreCacheBytes;
  result.core_cache_bandwidth = cores * kCoreCacheBandwidthOfCore;
  result.first_touch = kFirstTouch;
  result.sweep_start = kSweepStart;
  return result;
}

std::string description_text(const DeviceDescription& description) {
  Json json;
  json["format"] = kFormat;
  json["description"] = Json::parse(to_json(description));
  return json.dump(2) + "\n";
}

std::optional<DeviceDescription> read_description(std::string_view text, const Machine& machine) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("description") || !json.contains("format") ||
      json["format"] != kFormat)
    return std::nullopt;
  std::optional<DeviceDescription> found = description_from_json(json["description"].dump());
  if (!found || found->model != machine.model || found->cores != machine.cores) return std::nullopt;
  name_cpu(*found, machine);
  found->origin = DescriptionOrigin::kMeasured;
  return found;
}

const DeviceDescription& description() {
  static const DeviceDescription kDescription = [] {
    const Machine machine = this_machine();
    const std::optional<std::string> text = read_cached(kFileName);
    std::optional<DeviceDescription> found;
    if (text) found = read_description(*text, machine);
    return found ? *found : estimate(machine);
  }();
  return kDescription;
}

}  // namespace cpu

DeviceDescription measure_cpu() { return cpu::measure(cpu::this_machine()); }

std::string save_cpu_description(const DeviceDescription& description) {
  return write_cached(cpu::kFileName, cpu::description_text(description));
}

}  // namespace fuseblock
