#include "cuda/gpu.h"

#include "cuda/jit/driver.h"

namespace fuseblock::cuda {

Gpu gpu_of(const DeviceDescription& device) {
  if (device.name == "cuda") {
    const jit::DeviceFacts facts = jit::device_facts(0);
    return {&jit::architecture_for(facts.compute_major, facts.compute_minor), facts.multiprocessors};
  }
  const jit::Architecture* known = jit::architecture_of_device(device.name);
  if (known == nullptr)
    throw NotSupportedError(device.name + ": the cuda engine runs on GPUs; this device is none");
  return {known, device.cores};
}

}  // namespace fuseblock::cuda
