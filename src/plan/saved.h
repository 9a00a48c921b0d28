// What forward saves for backward.
//
// Parts that the two lowered blocks have in common need not be computed twice. Small ones, statistics of large
// values, are always saved: the lightest set of them that spares backward every reduction forward has done. Values
// over positions (reductions over channels, results of convolutions) are saved where writing and reading them is
// estimated to take less time than computing them again, or where PlanOptions::reuse says so. docs/training.md has
// the reasons.
#pragma once

#include <utility>

#include "plan/schedule.h"

namespace fuseblock {

// The schedules of a block and of its gradients, of which the first writes behind its outputs what the second reads
// behind its arguments. Saved values have the type of the arithmetic.
std::pair<Schedule, Schedule> make_training_schedules(const TypedBlock& forward, const TypedBlock& backward,
                                                      DType arithmetic, const DeviceDescription& device,
                                                      const PlanOptions& options);

}  // namespace fuseblock
