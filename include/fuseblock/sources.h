// The kernels of a plan as text, and compiled: on any machine, with or without a GPU.
//
//   for (const auto& kernel : fuseblock::kernel_sources(typed, fuseblock::Device::by_name("h200"), {}))
//     std::cout << kernel.text;
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fuseblock/device.h"
#include "fuseblock/kernel_cache.h"
#include "fuseblock/plan.h"
#include "fuseblock/typed_block.h"

namespace fuseblock {

// Exactly what the run-time compiler is given.
struct KernelText {
  std::string name;  // of the kernel, for people
  std::string text;
  std::vector<std::string> options;  // NVRTC's; the architecture is added to them
  std::string entry;                 // the kernel's name in the text; empty: `name`
  std::string description;  // the block and its constants, for messages; not part of what is compiled
};

// The kernels of the plan that Plan::make would make, in the order in which they run, each text once. With the name of an
// architecture they are those of a GPU that is as the device, but within that architecture's limits: of shared memory, of
// threads, without clusters where it has none. Throws NotSupportedError where the cuda engine has no kernel for the block or
// the device is not a GPU, UserError where there is no such architecture.
std::vector<KernelText> kernel_sources(const TypedBlock& block, const Device& device,
                                       const PlanOptions& options = {}, std::string_view architecture = {});

struct CompiledKernel {
  std::string name;
  std::string architecture;  // `sm_90a`
  std::string compiler;      // `nvrtc 13.0`
  std::string digest;        // of the text without comments and white space
  KernelOrigin origin = KernelOrigin::kCompiled;
  int registers = 0;          // a thread
  int shared_bytes = 0;       // static, a block
  int local_bytes = 0;        // a thread's stack frame, spilled registers included
  int spill_store_bytes = 0;  // a thread
  int spill_load_bytes = 0;
  std::size_t cubin_bytes = 0;
  double seconds = 0;  // to find or to compile
};

// Compiles a kernel for an architecture, or finds it in a cache. Throws InternalError where the text does not compile,
// NotSupportedError where there is no compiler, UserError where there is no such architecture.
CompiledKernel compile_kernel(const KernelText& kernel, std::string_view architecture);
// The same, and writes the result to a folder that FUSEBLOCK_CUBINS of a machine without a compiler will name.
CompiledKernel carry_kernel(const KernelText& kernel, std::string_view architecture,
                            const std::string& folder);

// `sm_90a` for h200. Throws NotSupportedError for a device that is not a GPU.
std::string_view architecture_of(const Device& device);
// All that kernels can be compiled for.
std::vector<std::string_view> kernel_architectures();

// Where the run-time compiler is looked for beside other places: a folder of Python packages that may hold NVIDIA's
// wheels (docs/environment.md). Only before the first compilation does it have an effect.
void set_compiler_folder(std::string folder);

}  // namespace fuseblock
