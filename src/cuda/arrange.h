// A schedule in the order and the pieces that kernels want.
#pragma once

#include "plan/schedule.h"

namespace fuseblock::cuda {

// A sweep that takes statistics over channels and others too becomes two, since no kernel takes both. The second, and the
// finalise steps that need it, come as late as what they make allows: the sweeps that follow stay beside the first.
// Statistics of single elements become stores.
Schedule arranged(Schedule schedule);

}  // namespace fuseblock::cuda
