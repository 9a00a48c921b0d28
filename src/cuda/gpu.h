// What launches need to know of a GPU.
#pragma once

#include <memory>
#include <string>

#include "cuda/jit/architecture.h"
#include "fuseblock/device.h"

namespace fuseblock::cuda {

class TunedTable;

struct Gpu {
  const jit::Architecture* architecture = nullptr;
  int multiprocessors = 1;
  int ordinal = 0;              // among those of this machine
  double memory_bandwidth = 0;  // bytes a second, as DeviceDescription has them; 0 where that is not known
  double cache_bytes = 0;
  std::string kind = {};  // `h200` where the planner's table has it, else the product's name
  std::shared_ptr<const TunedTable> tuned =
      nullptr;  // divisions that were measured (cuda/tuned.h); null: none
};

// The planner's table's name of a product, such as `h200` of `NVIDIA H200`; the product's where it has none.
std::string gpu_kind(const std::string& model);

// The name of a GPU of this machine, as Device::by_name takes it: `cuda`, `cuda:1`, ...
std::string gpu_name(int ordinal);

// Whether a device is a GPU, of the planner's table or of this machine.
bool is_gpu(const DeviceDescription& device);

// One of the planner's table, or one of this machine (`cuda`). Throws NotSupportedError for a device that is no GPU.
Gpu gpu_of(const DeviceDescription& device);

}  // namespace fuseblock::cuda
