// What an engine offers to plans. `src/engines.cc` lists the engines of this build.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fuseblock/plan.h"

namespace fuseblock {

struct Lowered;
struct Schedule;

// A kernel that a plan launches.
struct PlannedKernel {
  std::string name;
  std::string digest;  // of the text that its compiler was given
  int sweeps = 0;
  int finalises = 0;  // steps
  std::int64_t blocks = 1;
  int threads = 0;
  int shared_bytes = 0;  // of a block
  // From and to memory, each value once, and what later sweeps read again.
  double read_bytes = 0;
  double written_bytes = 0;
  double again_bytes = 0;
  // Where what is read stays until the last sweep: registers, shared, memory; empty where one sweep reads it.
  std::string residency = {};
  // How its work is divided, by name and in words.
  std::vector<std::pair<std::string, std::int64_t>> numbers = {};
  std::vector<std::string> division = {};
  // By what its division was chosen: `tuned`, `by the cost model`, `asked for`; empty where there is one alone.
  std::string chosen = {};
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
  std::function<DeviceDescription()> describe;
  std::function<std::unique_ptr<Executable>(const TypedBlock& block, const PlanOptions& options)> prepare;
  // Null for an engine whose forward saves nothing.
  std::function<TrainingExecutables(const TypedBlock& forward, const TypedBlock& backward,
                                    const PlanOptions& options)>
      prepare_training;
};

// The kernels that a schedule would launch on a GPU of that description; empty where there are none for it.
std::vector<PlannedKernel> kernels_for(const Schedule& schedule, const DeviceDescription& device);
// The launches of a schedule on a GPU of that description, as JSON. Throws NotSupportedError where there are none.
std::string launches_json_for(const Schedule& schedule, const DeviceDescription& device,
                              const Schedule* like);

// How an engine's own kernels compute a convolution, as far as that is known before there are sweeps.
struct OwnConvolution {
  std::string kernel;                // empty: there is none
  double operations_per_second = 0;  // of that kernel
  // For want of another: any host's is taken in its place.
  bool last_resort = false;
};

// A part of the kind kConv or kContract on a GPU of that description; nothing for devices that are none.
std::optional<OwnConvolution> own_convolution(const Lowered& lowered, int part,
                                              const DeviceDescription& device, Precision precision);

// The engines for tensors in the program's own memory, the fastest one first.
const std::vector<Engine>& engines();
// Those of this machine's GPUs. Asking for them starts the CUDA driver, which a process that forks later may not want.
const std::vector<Engine>& gpu_engines();

}  // namespace fuseblock
