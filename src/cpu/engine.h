// The CPU engine: runs schedules of sweeps, in f32 (f64 where an argument is).
#pragma once

#include <memory>

#include "plan/engine.h"

namespace fuseblock::cpu {

std::unique_ptr<Executable> prepare(const TypedBlock& block, const PlanOptions& options);
TrainingExecutables prepare_training(const TypedBlock& forward, const TypedBlock& backward,
                                     const PlanOptions& options);

}  // namespace fuseblock::cpu
