// Plans for devices that are not there: the sweeps, and nothing that runs them.
#pragma once

#include <memory>

#include "plan/engine.h"

namespace fuseblock {

// Their `run` throws NotSupportedError. Only fused plans are made.
std::unique_ptr<Executable> prepare_plan_only(const TypedBlock& block, const Device& device,
                                              const PlanOptions& options);
TrainingExecutables prepare_plan_only_training(const TypedBlock& forward, const TypedBlock& backward,
                                               const Device& device, const PlanOptions& options);

}  // namespace fuseblock
