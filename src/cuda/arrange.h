// A schedule in the order and the pieces that kernels want.
#pragma once

#include <vector>

#include "plan/schedule.h"

namespace fuseblock::cuda {

// By part: a sum over positions for each channel that a kernel `columns` takes along while it reduces over channels. No
// sweep reads it or what is made of it, so that it may come last, and the sums of all channels find room in one block.
std::vector<bool> gathered_sums(const Schedule& schedule);

// Whether a kernel `columns` takes all sinks of a sweep: stores, reductions over channels and gathered sums.
bool is_for_columns(const Schedule& schedule, const Sweep& sweep, const std::vector<bool>& gathered);

// A sweep that takes statistics over channels and others, which are not gathered sums, becomes two, since no kernel takes
// both. The second, and the finalise steps that need it or gathered sums, come as late as what they make allows: the
// sweeps that follow stay beside the first. Statistics of single elements become stores. A convolution that no kernel but
// `conv_direct` takes with its sweep becomes a step of its own that stores it, once for all sweeps. Stored values are
// channels_last where those of the border are that have their extents.
Schedule arranged(Schedule schedule);

}  // namespace fuseblock::cuda
