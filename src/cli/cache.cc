// fuseblock cache: the compiled kernels that are kept on disk.
#include <array>
#include <ctime>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "fuseblock/kernel_cache.h"
#include "table.h"

namespace fuseblock::cli {
namespace {

// `2026-05-01 12:30`, in UTC.
std::string minute_text(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts = {};
  gmtime_r(&time, &parts);
  std::array<char, 32> text = {};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &parts);
  return {text.data(), length};
}

int print_path(const KernelCacheState& state, const Console& console) {
  if (state.folder.empty()) throw UserError("there is no cache folder: " + state.refusal);
  if (console.json())
    console.print_json({{"folder", state.folder}});
  else
    console.print(state.folder + "\n");
  return kSuccess;
}

int print_list(const KernelCacheState& state, const Console& console) {
  if (console.json()) {
    Json json;
    json["folder"] = state.folder;
    json["refusal"] = state.refusal;
    json["bytes"] = state.bytes;
    json["bound"] = state.bound;
    json["kernels"] = Json::array();
    for (const CachedKernel& kernel : state.kernels)
      json["kernels"].push_back({{"file", kernel.file},
                                 {"name", kernel.name},
                                 {"architecture", kernel.architecture},
                                 {"compiler", kernel.compiler},
                                 {"bytes", kernel.bytes},
                                 {"used", kernel.used},
                                 {"damaged", kernel.damaged}});
    console.print_json(json);
    return kSuccess;
  }
  if (!state.refusal.empty()) {
    console.print("nothing is kept: " + state.refusal + "\n");
    return kSuccess;
  }
  if (!state.kernels.empty()) {
    Table table({{"kernel"}, {"architecture"}, {"compiler"}, {"size", true}, {"last used, UTC"}});
    for (const CachedKernel& kernel : state.kernels)
      table.add({kernel.damaged ? "(damaged)" : kernel.name, kernel.architecture, kernel.compiler,
                 bytes_text(static_cast<double>(kernel.bytes)), minute_text(kernel.used)});
    console.print(table.text(console) + "\n");
  }
  console.print(count_text(state.kernels.size(), "kernel") + ", " +
                bytes_text(static_cast<double>(state.bytes)) + " of at most " +
                bytes_text(static_cast<double>(state.bound)) + ", in " + state.folder + "\n");
  return kSuccess;
}

int clear(const Console& console) {
  const std::size_t removed = clear_kernel_cache();
  if (console.json())
    console.print_json({{"removed", removed}});
  else
    console.print(count_text(removed, "kernel") + " removed\n");
  return kSuccess;
}

}  // namespace

int run_cache(const CacheOptions& options, const Console& console) {
  if (options.action == "clear") return clear(console);
  const KernelCacheState state = kernel_cache_state();
  return options.action == "path" ? print_path(state, console) : print_list(state, console);
}

}  // namespace fuseblock::cli
