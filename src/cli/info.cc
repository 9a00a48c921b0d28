// fuseblock info: versions, engines, devices, and how this binary was built; measuring of the CPU.
#include <thread>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "fuseblock/operations.h"
#include "fuseblock/reference_blocks.h"
#include "fuseblock/version.h"
#include "table.h"

namespace fuseblock::cli {
namespace {

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#elif defined(__GNUC__)
  return "g++ " __VERSION__;
#else
  return "unknown";
#endif
}

std::string build_type() {
#if defined(NDEBUG)
  std::string type = "release";
#else
  std::string type = "debug";
#endif
#if defined(__SANITIZE_ADDRESS__)
  type += ", address sanitizer";
#endif
#if defined(__SANITIZE_THREAD__)
  type += ", thread sanitizer";
#endif
#if !defined(__OPTIMIZE__)
  type += ", not optimized";
#endif
  return type;
}

Json device_json(const DeviceDescription& device) { return Json::parse(to_json(device)); }

std::string figure(double value, const std::string& unit) {
  return value > 0 ? amount_text(value) + unit : "-";
}

std::string devices_text(const Console& console) {
  Table table({{"name"},
               {"model"},
               {"cores", true},
               {"f32", true},
               {"tf32", true},
               {"f16", true},
               {"f64", true},
               {"memory", true},
               {"cache", true},
               {"figures"}});
  for (const Device& device : Device::known()) {
    const DeviceDescription& known = device.description();
    if (known.origin == DescriptionOrigin::kNone) continue;
    table.add({known.name, known.model, std::to_string(known.cores), figure(known.f32_rate, ""),
               figure(known.tf32_rate, ""), figure(known.f16_rate, ""), figure(known.f64_rate, ""),
               figure(known.memory_bandwidth, "B/s"), figure(known.cache_bytes, "B"),
               device_json(known)["origin"]});
  }
  return table.text(console, 2);
}

int run_measure(const Console& console) {
  console.progress("measuring the CPU");
  const DeviceDescription measured = measure_cpu();
  console.progress("");
  const std::string file = save_cpu_description(measured);
  if (console.json()) {
    Json json = device_json(measured);
    json["file"] = file;
    console.print_json(json);
    return kSuccess;
  }
  Table table({{}, {}, {}});
  const auto both = [&](const char* what, double all, double one, const std::string& unit) {
    table.add({what, figure(all, unit), one > 0 ? figure(one, unit) + " on one core" : ""});
  };
  both("f32 multiply-adds", measured.f32_rate, measured.f32_rate_one_core, " operations/s");
  both("f64 multiply-adds", measured.f64_rate, 0, " operations/s");
  both("additions on arrays", measured.program_rate, 0, " operations/s");
  both("exp and tanh", measured.special_rate, 0, " operations/s");
  both("copy in memory", measured.memory_bandwidth, measured.memory_bandwidth_one_core, "B/s");
  both("copy in the last cache", measured.cache_bandwidth, 0, "B/s");
  both("copy in the cores' caches", measured.core_cache_bandwidth, 0, "B/s");
  table.add({"last cache", bytes_text(measured.cache_bytes), ""});
  table.add({"cache of a core", bytes_text(measured.core_cache_bytes), ""});
  table.add({"first touch", time_text(measured.first_touch * 1e6) + " a MB", ""});
  table.add({"start of a sweep", time_text(measured.sweep_start), ""});
  console.print(console.bold(measured.model) + ", " +
                count_text(static_cast<std::size_t>(measured.cores), "core") + "\n" + table.text(console, 2) +
                "\nkept in " + file + "\n");
  return kSuccess;
}

}  // namespace

int run_info(const InfoOptions& options, const Console& console) {
  if (options.measure) return run_measure(console);
  const std::string best = Device::best().name();
  if (console.json()) {
    Json json;
    json["version"] = kVersion;
    json["compiler"] = compiler();
    json["build_type"] = build_type();
    json["hardware_threads"] = std::thread::hardware_concurrency();
    json["operations"] = operations().size();
    json["engines"] = Json::array();
    for (const Device& device : Device::available())
      json["engines"].push_back({{"name", device.name()},
                                 {"description", device.description().summary},
                                 {"best", device.name() == best}});
    json["devices"] = Json::array();
    for (const Device& device : Device::known()) {
      Json entry = device_json(device.description());
      entry["runs"] = device.runs();
      json["devices"].push_back(std::move(entry));
    }
    json["reference_blocks"] = Json::array();
    for (const ReferenceBlock& block : reference_blocks())
      json["reference_blocks"].push_back({{"name", block.name},
                                          {"notation", block.notation},
                                          {"input", block.input},
                                          {"small_input", block.small_input}});
    console.print_json(json);
    return kSuccess;
  }
  Table facts({{}, {}});
  facts.add({"version", kVersion});
  facts.add({"compiler", compiler()});
  facts.add({"build type", build_type()});
  facts.add({"threads", std::to_string(std::thread::hardware_concurrency())});
  facts.add({"operations", std::to_string(operations().size())});
  console.print(console.bold("fuseblock") + "\n" + facts.text(console, 2));

  Table engines({{}, {}});
  for (const Device& device : Device::available())
    engines.add({device.name() + (device.name() == best ? " (default)" : ""), device.description().summary});
  console.print("\n" + console.bold("Engines") + "\n" + engines.text(console, 2));

  console.print("\n" + console.bold("Devices to plan for") + ", operations/s by type\n" +
                devices_text(console));

  Table blocks({{}, {}, {}});
  for (const ReferenceBlock& block : reference_blocks())
    blocks.add({"@" + std::string(block.name), std::string(block.input), std::string(block.notation)});
  console.print("\n" + console.bold("Reference blocks") + "\n" + blocks.text(console, 2));
  return kSuccess;
}

}  // namespace fuseblock::cli
