// What launches need to know of a GPU.
#pragma once

#include "cuda/jit/architecture.h"
#include "fuseblock/device.h"

namespace fuseblock::cuda {

struct Gpu {
  const jit::Architecture* architecture = nullptr;
  int multiprocessors = 1;
};

// One of the planner's table, or the one of this machine (`cuda`). Throws NotSupportedError for a device that is no GPU.
Gpu gpu_of(const DeviceDescription& device);

}  // namespace fuseblock::cuda
