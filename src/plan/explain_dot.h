// A plan as a picture, in the language of Graphviz: arguments and outputs as ellipses, each sweep as a frame with its
// source, program and sinks, stored values as cylinders, finalise steps as notes.
#pragma once

#include <string>

#include "plan/schedule.h"

namespace fuseblock {

std::string schedule_dot(const Schedule& schedule, const DeviceDescription& device);
// For an engine without sweeps: one box an operation.
std::string block_dot(const TypedBlock& block, const DeviceDescription& device);

}  // namespace fuseblock
