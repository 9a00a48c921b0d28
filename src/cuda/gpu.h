// What launches need to know of a GPU.
#pragma once

#include <string>

#include "cuda/jit/architecture.h"
#include "fuseblock/device.h"

namespace fuseblock::cuda {

struct Gpu {
  const jit::Architecture* architecture = nullptr;
  int multiprocessors = 1;
  int ordinal = 0;              // among those of this machine
  double memory_bandwidth = 0;  // bytes a second, as DeviceDescription has them; 0 where that is not known
  double cache_bytes = 0;
};

// The name of a GPU of this machine, as Device::by_name takes it: `cuda`, `cuda:1`, ...
std::string gpu_name(int ordinal);

// Whether a device is a GPU, of the planner's table or of this machine.
bool is_gpu(const DeviceDescription& device);

// One of the planner's table, or one of this machine (`cuda`). Throws NotSupportedError for a device that is no GPU.
Gpu gpu_of(const DeviceDescription& device);

}  // namespace fuseblock::cuda
