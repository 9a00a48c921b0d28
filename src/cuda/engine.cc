#include "cuda/engine.h"

#include <algorithm>

#include "cuda/arrange.h"
#include "cuda/jit/driver.h"
#include "cuda/launch/kernel.h"
#include "cuda/launch/tags.h"
#include "plan/device_description.h"
#include "plan/saved.h"
#include "plan/slot_memory.h"

namespace fuseblock::cuda {

std::unique_ptr<KernelLaunch> make_launch(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu,
                                          const std::shared_ptr<const HostFunctions>& host) {
  if (cut.kind == KernelKind::kRows) {
    if (auto launch = make_plain_launch(schedule, cut, gpu)) return launch;
    if (auto launch = make_rows_registers_launch(schedule, cut, gpu)) return launch;
  }
  if (cut.kind == KernelKind::kColumns)
    if (auto launch = make_plain_channels_launch(schedule, cut, gpu)) return launch;
  switch (cut.kind) {
    case KernelKind::kRows: return make_rows_launch(schedule, cut, gpu);
    case KernelKind::kFinalise: return make_finalise_launch(schedule, cut);
    case KernelKind::kColumns: return make_columns_launch(schedule, cut, gpu);
    case KernelKind::kSlices: return make_slices_launch(schedule, cut, gpu);
    case KernelKind::kConv: return make_conv_launch(schedule, cut, gpu);
    case KernelKind::kConvWide: return make_conv_wide_launch(schedule, cut, gpu);
    case KernelKind::kConvDirect: return make_conv_direct_launch(schedule, cut);
    case KernelKind::kPool: return make_pool_launch(schedule, cut);
    case KernelKind::kHostCall: return make_host_call(schedule, cut, host);
  }
  throw InternalError("an unknown kind of kernel");
}

std::vector<std::unique_ptr<KernelLaunch>> make_launches(const Schedule& schedule, const Gpu& gpu,
                                                         const std::shared_ptr<const HostFunctions>& host) {
  for (const NamedType& input : schedule.inputs)
    if (input.type.extent(Axis::kC) == 0)
      throw NotSupportedError("cuda: " + input.name + " has no channels: " + to_string(input.type));
  std::vector<std::unique_ptr<KernelLaunch>> launches;
  for (const KernelCut& cut : cut_into_kernels(schedule))
    launches.push_back(make_launch(schedule, cut, gpu, host));
  return launches;
}

namespace {

std::vector<jit::KernelSource> sources_of(const std::vector<std::unique_ptr<KernelLaunch>>& launches) {
  std::vector<jit::KernelSource> result;
  for (const auto& launch : launches)
    for (jit::KernelSource& source : launch->sources()) result.push_back(std::move(source));
  return result;
}

std::vector<PlannedKernel> planned(const std::vector<std::unique_ptr<KernelLaunch>>& launches) {
  std::vector<PlannedKernel> result;
  for (const auto& launch : launches)
    for (PlannedKernel& kernel : launch->planned()) result.push_back(std::move(kernel));
  return result;
}

class CudaExecutable : public Executable {
 public:
  CudaExecutable(const Gpu& gpu, Schedule schedule, const PlanOptions& options)
      : schedule_(arranged(std::move(schedule))), stored_(arithmetic_type(schedule_.inputs)), gpu_(gpu) {
    for (const NamedType& input : schedule_.inputs)
      if (input.type.element_count() == 0)
        throw NotSupportedError("cuda: " + input.name + " has no elements: " + to_string(input.type));
    const jit::ContextScope context(gpu_.ordinal);
    WorkspaceLayout layout;
    offsets_ = place_slots(schedule_, stored_, layout);
    WorkspaceLayout counters;
    launches_ = make_launches(schedule_, gpu_, options.host);
    for (const auto& launch : launches_) {
      const std::size_t before = counters.bytes();
      launch->reserve(counters);
      if (counters.bytes() > before) counting_.push_back(launch.get());
      launch->reserve_scratch(layout);
      launch->load(gpu_);
    }
    counter_bytes_ = counters.bytes();
    counters_ = layout.reserve(counter_bytes_);
    workspace_bytes_ = layout.bytes();
  }

  std::size_t workspace_bytes() const override { return workspace_bytes_; }

  void run(const Arguments& arguments, std::span<std::byte> workspace) const override {
    const jit::ContextScope context(gpu_.ordinal);
    const jit::Driver& driver = jit::require_driver();
    const std::vector<SlotView> views = slot_views(schedule_, offsets_, stored_, arguments, workspace);
    RunContext run = {&driver, static_cast<jit::CUstream>(arguments.stream), &gpu_, &views, workspace.data()};
    const bool replayed = !counting_.empty() && (clears_tagged() || jit::is_capturing(driver, run.stream));
    if (std::any_of(counting_.begin(), counting_.end(),
                    [&](const KernelLaunch* launch) { return launch->needs_zeros(views, replayed); }))
      jit::check(driver.cuMemsetD8Async(reinterpret_cast<jit::CUdeviceptr>(workspace.data() + counters_), 0,
                                        counter_bytes_, run.stream),
                 "cuMemsetD8Async");
    for (const auto& launch : launches_) {
      launch->launch(run, workspace.data() + counters_);
      run.behind_kernel = launch->is_kernel();
    }
  }

  const Schedule* schedule() const override { return &schedule_; }

  std::vector<PlannedKernel> kernels() const override { return planned(launches_); }

 private:
  Schedule schedule_;
  DType stored_;
  Gpu gpu_;
  std::vector<std::unique_ptr<KernelLaunch>> launches_;
  std::vector<const KernelLaunch*> counting_;  // those that have counters
  std::vector<std::size_t> offsets_;
  std::size_t counters_ = 0;
  std::size_t counter_bytes_ = 0;
  std::size_t workspace_bytes_ = 0;
};

// A GPU that is not in the table: as the first one there, by the number of its multiprocessors.
DeviceDescription unknown_gpu(int multiprocessors) {
  DeviceDescription result = gpu_descriptions()[0];
  const double share = static_cast<double>(multiprocessors) / result.cores;
  for (double* rate : {&result.f32_rate, &result.tf32_rate, &result.f16_rate, &result.f64_rate,
                       &result.program_rate, &result.special_rate, &result.memory_bandwidth,
                       &result.cache_bandwidth, &result.core_cache_bandwidth, &result.cache_bytes})
    *rate *= share;
  result.origin = DescriptionOrigin::kEstimated;
  return result;
}

}  // namespace

int gpu_count() { return jit::device_count(); }

DeviceDescription description(int gpu) {
  const jit::DeviceFacts facts = jit::device_facts(gpu);
  DeviceDescription result = unknown_gpu(facts.multiprocessors);
  for (const DeviceDescription& known : gpu_descriptions())
    if (known.name == gpu_kind(facts.model)) result = known;
  result.name = gpu_name(gpu);
  result.model = facts.model;
  result.summary = facts.model + ", kernels compiled at run time";
  result.cores = facts.multiprocessors;
  return result;
}

std::unique_ptr<Executable> prepare(int gpu, const TypedBlock& block, const PlanOptions& options) {
  const DeviceDescription device = description(gpu);
  return std::make_unique<CudaExecutable>(gpu_of(device), make_schedule(block, device, options), options);
}

TrainingExecutables prepare_training(int gpu, const TypedBlock& forward, const TypedBlock& backward,
                                     const PlanOptions& options) {
  const DeviceDescription device = description(gpu);
  const Gpu own = gpu_of(device);
  auto [written, read] =
      make_training_schedules(forward, backward, arithmetic_type(forward.arguments()), device, options);
  return {std::make_unique<CudaExecutable>(own, std::move(written), options),
          std::make_unique<CudaExecutable>(own, std::move(read), options)};
}

std::vector<jit::KernelSource> sources(const Schedule& schedule, const Gpu& gpu) {
  const Schedule pieces = arranged(schedule);
  return sources_of(make_launches(pieces, gpu, nullptr));
}

std::vector<PlannedKernel> kernels(const Schedule& schedule, const Gpu& gpu) {
  const Schedule pieces = arranged(schedule);
  return planned(make_launches(pieces, gpu, nullptr));
}

}  // namespace fuseblock::cuda
