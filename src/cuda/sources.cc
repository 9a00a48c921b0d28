// The kernels of a plan as text (include/fuseblock/sources.h).
#include "fuseblock/sources.h"

#include <algorithm>

#include "cuda/engine.h"
#include "plan/schedule.h"

namespace fuseblock {

std::vector<KernelText> kernel_sources(const TypedBlock& block, const Device& device,
                                       const PlanOptions& options, std::string_view architecture) {
  cuda::Gpu gpu = cuda::gpu_of(device.description());
  if (!architecture.empty() && architecture != gpu.architecture->name) {
    gpu.architecture = &jit::architecture(architecture);
    // Divisions were measured within the device's own limits.
    gpu.tuned = nullptr;
  }
  std::vector<KernelText> kernels;
  for (jit::KernelSource& source : cuda::sources(make_schedule(block, device.description(), options), gpu)) {
    const bool known = std::any_of(kernels.begin(), kernels.end(),
                                   [&](const KernelText& kernel) { return kernel.text == source.text; });
    if (!known)
      kernels.push_back(
          {source.name, std::move(source.text), source.options, source.entry, source.description});
  }
  return kernels;
}

}  // namespace fuseblock
