// What an engine offers to plans. `src/engines.cc` lists the engines of this build.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fuseblock/plan.h"

namespace fuseblock {

struct Schedule;

// A kernel that a plan launches: its name, and the digest of the text that its compiler was given.
struct PlannedKernel {
  std::string name;
  std::string digest;
};

// A block made ready on one engine.
class Executable {
 public:
  Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  virtual ~Executable() = default;

  virtual std::size_t workspace_bytes() const = 0;
  // Arguments are known to fit the block's types; strides are arbitrary.
  virtual void run(const Arguments& arguments, std::span<std::byte> workspace) const = 0;
  // The sweeps that run; null for an engine that has none.
  virtual const Schedule* schedule() const { return nullptr; }
  // In the order of their launches; empty for an engine that compiles none.
  virtual std::vector<PlannedKernel> kernels() const { return {}; }
};

// A block and its gradients; the schedules say what the first saves for the second.
struct TrainingExecutables {
  std::unique_ptr<Executable> forward;
  std::unique_ptr<Executable> backward;
};

struct Engine {
  std::string name;
  // The device it runs on; its name is the engine's.
  DeviceDescription (*describe)();
  std::unique_ptr<Executable> (*prepare)(const TypedBlock& block, const PlanOptions& options);
  // Null for an engine whose forward saves nothing.
  TrainingExecutables (*prepare_training)(const TypedBlock& forward, const TypedBlock& backward,
                                          const PlanOptions& options);
};

// The kernels that a schedule would launch on a GPU of that description; empty where there are none for it.
std::vector<PlannedKernel> kernels_for(const Schedule& schedule, const DeviceDescription& device);

// The engines that run on this machine: that for tensors in the program's own memory first.
const std::vector<Engine>& engines();

}  // namespace fuseblock
