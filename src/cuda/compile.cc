// The run-time compiler for the outside (include/fuseblock/sources.h).
#include <chrono>

#include "cuda/jit/cache.h"
#include "cuda/jit/source_digest.h"
#include "fuseblock/sources.h"

namespace fuseblock {
namespace {

jit::KernelSource to_source(const KernelText& kernel) {
  return {kernel.name, kernel.text, kernel.options, kernel.entry.empty() ? kernel.name : kernel.entry,
          kernel.description};
}

CompiledKernel compiled(const KernelText& kernel, std::string_view architecture, const std::string* folder) {
  const auto start = std::chrono::steady_clock::now();
  const jit::FoundCubin found = jit::kernel_cache().find(to_source(kernel), jit::architecture(architecture));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (folder != nullptr) jit::carry(*found.cubin, *folder);
  const jit::KernelResources& resources = found.cubin->resources();
  CompiledKernel result;
  result.name = kernel.name;
  result.architecture = found.cubin->architecture;
  result.compiler = found.cubin->compiler;
  result.digest = jit::source_digest(kernel.text);
  result.origin = found.origin;
  result.registers = resources.registers;
  result.shared_bytes = resources.shared_bytes;
  result.local_bytes = resources.local_bytes;
  result.spill_store_bytes = resources.spill_store_bytes;
  result.spill_load_bytes = resources.spill_load_bytes;
  result.cubin_bytes = found.cubin->image.size();
  result.seconds = elapsed.count();
  return result;
}

}  // namespace

CompiledKernel compile_kernel(const KernelText& kernel, std::string_view architecture) {
  return compiled(kernel, architecture, nullptr);
}

CompiledKernel carry_kernel(const KernelText& kernel, std::string_view architecture,
                            const std::string& folder) {
  return compiled(kernel, architecture, &folder);
}

std::string_view architecture_of(const Device& device) {
  const jit::Architecture* known = jit::architecture_of_device(device.name());
  if (known == nullptr)
    throw NotSupportedError(device.name() +
                            ": the cuda engine compiles kernels for GPUs; this device is none");
  return known->name;
}

std::vector<std::string_view> kernel_architectures() {
  std::vector<std::string_view> names;
  for (const jit::Architecture& known : jit::architectures()) names.emplace_back(known.name);
  return names;
}

void set_compiler_folder(std::string folder) { jit::set_compiler_folder(std::move(folder)); }

}  // namespace fuseblock
