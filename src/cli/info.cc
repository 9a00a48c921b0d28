// fuseblock info: versions, engines, and how this binary was built.
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

}  // namespace

int run_info(const Console& console) {
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
      json["engines"].push_back(
          {{"name", device.name()}, {"description", device.description()}, {"best", device.name() == best}});
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
    engines.add({device.name() + (device.name() == best ? " (default)" : ""), device.description()});
  console.print("\n" + console.bold("Engines") + "\n" + engines.text(console, 2));

  Table blocks({{}, {}, {}});
  for (const ReferenceBlock& block : reference_blocks())
    blocks.add({"@" + std::string(block.name), std::string(block.input), std::string(block.notation)});
  console.print("\n" + console.bold("Reference blocks") + "\n" + blocks.text(console, 2));
  return kSuccess;
}

}  // namespace fuseblock::cli
