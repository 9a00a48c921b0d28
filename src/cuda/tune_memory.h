// The memory of a plan on a GPU, and times of its launches with nothing of that memory in L2.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda/gpu.h"
#include "cuda/jit/driver.h"
#include "cuda/launch/kernel.h"
#include "plan/schedule.h"

namespace fuseblock::cuda {

// Memory of the current context.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) = delete;

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

// A launch and its places in the workspace. Launches that are alternatives share them.
struct PlacedLaunch {
  KernelLaunch* launch = nullptr;
  std::size_t counters = 0;
  std::size_t counter_bytes = 0;
};

// The arguments of a schedule, random numbers, its outputs and its workspace. The context of the GPU is current as long
// as this lives.
class TuneMemory {
 public:
  // Takes the launches' places; `launches` may have alternatives to each other.
  TuneMemory(const Schedule& schedule, const Gpu& gpu, const std::vector<KernelLaunch*>& launches);

  const std::vector<PlacedLaunch>& launches() const { return placed_; }
  // In order, once; waits for their end. Throws what the driver says.
  void run(const std::vector<PlacedLaunch>& launches) const;
  // The same, in seconds, L2 emptied before.
  double time(const std::vector<PlacedLaunch>& launches) const;
  // Elements of the outputs, some thousands of each.
  std::vector<std::vector<double>> results() const;

 private:
  void enqueue(const std::vector<PlacedLaunch>& launches) const;
  void clear_counters(const std::vector<PlacedLaunch>& launches) const;

  const Schedule& schedule_;
  Gpu gpu_;
  const jit::Driver& driver_;
  std::vector<PlacedLaunch> placed_;
  Arguments arguments_;
  std::vector<DeviceMemory> tensors_;
  std::vector<DeviceMemory> others_;  // the workspace, and what empties L2
  std::vector<SlotView> views_;
  std::size_t flush_bytes_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace fuseblock::cuda
