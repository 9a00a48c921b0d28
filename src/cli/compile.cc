// fuseblock compile: every kernel of a plan compiled, on any machine, and what it takes of a multiprocessor.
#include <nlohmann/json.hpp>

#include "commands.h"
#include "kernels.h"
#include "table.h"

namespace fuseblock::cli {
namespace {

std::vector<std::string> wanted_architectures(const std::vector<std::string>& asked, const std::string& own) {
  if (asked.empty()) return {own};
  if (asked != std::vector<std::string>{"all"}) return asked;
  const std::vector<std::string_view> all = kernel_architectures();
  return {all.begin(), all.end()};
}

Json to_json(const CompiledKernel& kernel) {
  return {{"name", kernel.name},
          {"architecture", kernel.architecture},
          {"compiler", kernel.compiler},
          {"digest", kernel.digest},
          {"origin", std::string(to_string(kernel.origin))},
          {"registers", kernel.registers},
          {"shared_bytes", kernel.shared_bytes},
          {"local_bytes", kernel.local_bytes},
          {"spill_store_bytes", kernel.spill_store_bytes},
          {"spill_load_bytes", kernel.spill_load_bytes},
          {"cubin_bytes", kernel.cubin_bytes},
          {"seconds", kernel.seconds}};
}

}  // namespace

int run_compile(const CompileOptions& options, const Console& console) {
  const KernelRequest request = read_kernels(options.block, options.gradient);
  std::vector<CompiledKernel> kernels;
  for (const std::string& architecture : wanted_architectures(options.architectures, request.architecture))
    for (const KernelText& kernel : request.kernels_for(architecture)) {
      console.progress("compiling " + kernel.name + " for " + architecture);
      kernels.push_back(options.carry.empty() ? compile_kernel(kernel, architecture)
                                              : carry_kernel(kernel, architecture, options.carry));
    }
  console.progress("");
  if (console.json()) {
    Json json;
    json["device"] = request.device.name();
    json["kernels"] = Json::array();
    for (const CompiledKernel& kernel : kernels) json["kernels"].push_back(to_json(kernel));
    console.print_json(json);
    return kSuccess;
  }
  Table table({{"kernel"},
               {"architecture"},
               {"registers", true},
               {"shared, B", true},
               {"local, B", true},
               {"spilled, B", true},
               {"cubin", true},
               {"time", true},
               {"from"}});
  for (const CompiledKernel& kernel : kernels) {
    const bool compiled = kernel.origin == KernelOrigin::kCompiled;
    table.add({kernel.name, kernel.architecture, std::to_string(kernel.registers),
               std::to_string(kernel.shared_bytes), std::to_string(kernel.local_bytes),
               std::to_string(kernel.spill_store_bytes + kernel.spill_load_bytes),
               bytes_text(static_cast<double>(kernel.cubin_bytes)), time_text(kernel.seconds),
               compiled ? kernel.compiler : std::string(to_string(kernel.origin))});
  }
  console.print(table.text(console));
  return kSuccess;
}

}  // namespace fuseblock::cli
