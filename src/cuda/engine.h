// The CUDA engine: a schedule as kernels, compiled for the GPU at hand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/emit/kernel_writer.h"
#include "cuda/gpu.h"
#include "cuda/jit/compiler.h"
#include "cuda/kernels.h"
#include "plan/engine.h"
#include "plan/schedule.h"

namespace fuseblock::cuda {

// The GPUs of this machine; 0 where there is none, or no driver.
int gpu_count();
// One of them: the table's figures where it is one of the table's, else estimates from its counts.
DeviceDescription description(int gpu);

// For the GPU of that number.
std::unique_ptr<Executable> prepare(int gpu, const TypedBlock& block, const PlanOptions& options);
TrainingExecutables prepare_training(int gpu, const TypedBlock& forward, const TypedBlock& backward,
                                     const PlanOptions& options);

// The kernels of a schedule for a GPU, as the compiler sees them, in the order of their launches. Where tensors are not
// dense others are compiled at that time.
std::vector<jit::KernelSource> sources(const Schedule& schedule, const Gpu& gpu);

// The launches of a schedule (arranged: cuda/arrange.h), which must outlive them.
class KernelLaunch;
std::unique_ptr<KernelLaunch> make_launch(const Schedule& schedule, const KernelCut& cut, const Gpu& gpu,
                                          const std::shared_ptr<const HostFunctions>& host);
std::vector<std::unique_ptr<KernelLaunch>> make_launches(const Schedule& schedule, const Gpu& gpu,
                                                         const std::shared_ptr<const HostFunctions>& host);

// Everything that a program needs to make a schedule's launches by itself, as JSON (include/fuseblock/plan.h). `like` is
// the schedule of the block for other extents, whose kernels' constants are taken; null: its own.
std::string launches_json(const Schedule& schedule, const Gpu& gpu, const Schedule* like);

// What plans say of them.
std::vector<PlannedKernel> kernels(const Schedule& schedule, const Gpu& gpu);

}  // namespace fuseblock::cuda
