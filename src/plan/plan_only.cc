#include "plan/plan_only.h"

#include "plan/saved.h"
#include "plan/schedule.h"

namespace fuseblock {
namespace {

class PlanOnly : public Executable {
 public:
  PlanOnly(Schedule schedule, Device device) : device_(std::move(device)), schedule_(std::move(schedule)) {
    const CostModel cost(device_.description(), schedule_.block);
    for (const Slot& slot : schedule_.slots) {
      const bool statistic = slot.kind == SlotKind::kStatistic;
      if (statistic || slot.kind == SlotKind::kStored)
        bytes_ += slot.elements() * (statistic ? sizeof(double) : static_cast<double>(cost.element_bytes()));
    }
    constexpr double kLargest = 1e18;
    if (bytes_ > kLargest) throw NotSupportedError("a value of the plan is too large for the workspace");
  }

  // Of values that sweeps hand to each other; what an engine needs beside them is not known.
  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(bytes_); }
  void run(const Arguments& /*arguments*/, std::span<std::byte> /*workspace*/) const override {
    device_.require_runs();
  }
  const Schedule* schedule() const override { return &schedule_; }
  std::vector<PlannedKernel> kernels() const override {
    return kernels_for(schedule_, device_.description());
  }

 private:
  Device device_;
  Schedule schedule_;
  double bytes_ = 0;
};

void require_fused(const Device& device, const PlanOptions& options) {
  if (!options.fuse)
    throw NotSupportedError(device.name() + ": for a device that is not there, only fused plans are made");
}

}  // namespace

std::unique_ptr<Executable> prepare_plan_only(const TypedBlock& block, const Device& device,
                                              const PlanOptions& options) {
  require_fused(device, options);
  return std::make_unique<PlanOnly>(make_schedule(block, device.description(), options), device);
}

TrainingExecutables prepare_plan_only_training(const TypedBlock& forward, const TypedBlock& backward,
                                               const Device& device, const PlanOptions& options) {
  require_fused(device, options);
  const CostModel cost(device.description(), forward);
  const DType arithmetic = cost.element_bytes() == 8 ? DType::kF64 : DType::kF32;
  auto [written, read] =
      make_training_schedules(forward, backward, arithmetic, device.description(), options);
  return {std::make_unique<PlanOnly>(std::move(written), device),
          std::make_unique<PlanOnly>(std::move(read), device)};
}

}  // namespace fuseblock
