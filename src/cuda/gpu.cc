#include "cuda/gpu.h"

#include "cuda/jit/driver.h"
#include "cuda/tuned.h"
#include "plan/device_description.h"

namespace fuseblock::cuda {

std::string gpu_name(int ordinal) { return ordinal == 0 ? "cuda" : "cuda:" + std::to_string(ordinal); }

std::string gpu_kind(const std::string& model) {
  std::string kind = model;
  for (const DeviceDescription& known : gpu_descriptions())
    if (model.find(known.model.substr(0, known.model.find(" SXM"))) != std::string::npos) kind = known.name;
  return kind;
}

bool is_gpu(const DeviceDescription& device) {
  return device.name.starts_with("cuda") || jit::architecture_of_device(device.name) != nullptr;
}

Gpu gpu_of(const DeviceDescription& device) {
  for (int ordinal = 0; device.name.starts_with("cuda") && ordinal < jit::device_count(); ++ordinal) {
    if (device.name != gpu_name(ordinal)) continue;
    const jit::DeviceFacts facts = jit::device_facts(ordinal);
    return {&jit::architecture_for(facts.compute_major, facts.compute_minor),
            facts.multiprocessors,
            ordinal,
            device.memory_bandwidth,
            device.cache_bytes,
            gpu_kind(facts.model),
            tuned_table()};
  }
  const jit::Architecture* known = jit::architecture_of_device(device.name);
  if (known == nullptr)
    throw NotSupportedError(device.name + ": the cuda engine runs on GPUs; this device is none");
  return {known, device.cores, 0, device.memory_bandwidth, device.cache_bytes, device.name, tuned_table()};
}

}  // namespace fuseblock::cuda
