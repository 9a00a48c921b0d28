// The engines of this build: the only file that knows all of them.
#include "cpu/description.h"
#include "cpu/engine.h"
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

const std::vector<Engine>& engines() {
  static const std::vector<Engine> kEngines = [] {
    std::vector<Engine> list = {
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
    if (cuda::available())
      list.insert(list.begin() + 1,
                  {"cuda", [] { return cuda::description(); }, cuda::prepare, cuda::prepare_training});
    return list;
  }();
  return kEngines;
}

}  // namespace fuseblock
