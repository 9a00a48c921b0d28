// The engines of this build: the only file that knows all of them.
#include "cpu/description.h"
#include "cpu/engine.h"
#include "cuda/conv_cost.h"
#include "cuda/engine.h"
#include "plan/engine.h"
#include "reference/reference.h"

namespace fuseblock {
namespace {

class ReferenceExecutable : public Executable {
 public:
  explicit ReferenceExecutable(const TypedBlock& block)
      : block_(block), workspace_bytes_(reference::workspace_bytes(block)) {}

  std::size_t workspace_bytes() const override { return workspace_bytes_; }
  void run(const Arguments& arguments, std::span<std::byte> workspace) const override {
    reference::run(block_, arguments, workspace);
  }

 private:
  TypedBlock block_;
  std::size_t workspace_bytes_;
};

}  // namespace

std::vector<PlannedKernel> kernels_for(const Schedule& schedule, const DeviceDescription& device) {
  try {
    return cuda::kernels(schedule, cuda::gpu_of(device));
  } catch (const NotSupportedError&) {
    return {};
  }
}

std::optional<OwnConvolution> own_convolution(const Lowered& lowered, int part,
                                              const DeviceDescription& device, Precision precision) {
  if (!cuda::is_gpu(device)) return std::nullopt;
  return cuda::own_convolution(lowered, part, device, precision);
}

std::string launches_json_for(const Schedule& schedule, const DeviceDescription& device,
                              const Schedule* like) {
  return cuda::launches_json(schedule, cuda::gpu_of(device), like);
}

const std::vector<Engine>& engines() {
  static const std::vector<Engine> kEngines = {
      {"cpu", [] { return cpu::description(); }, cpu::prepare, cpu::prepare_training},
      {"reference",
       [] {
         DeviceDescription description;
         description.name = "reference";
         description.summary = "double precision, one operation after the other, one thread";
         description.cores = 1;
         return description;
       },
       [](const TypedBlock& block, const PlanOptions&) -> std::unique_ptr<Executable> {
         return std::make_unique<ReferenceExecutable>(block);
       },
       nullptr},
  };
  return kEngines;
}

const std::vector<Engine>& gpu_engines() {
  static const std::vector<Engine> kEngines = [] {
    std::vector<Engine> list;
    for (int gpu = 0; gpu < cuda::gpu_count(); ++gpu)
      list.push_back(
          {cuda::gpu_name(gpu), [gpu] { return cuda::description(gpu); },
           [gpu](const TypedBlock& block, const PlanOptions& options) {
             return cuda::prepare(gpu, block, options);
           },
           [gpu](const TypedBlock& forward, const TypedBlock& backward, const PlanOptions& options) {
             return cuda::prepare_training(gpu, forward, backward, options);
           }});
    return list;
  }();
  return kEngines;
}

}  // namespace fuseblock
