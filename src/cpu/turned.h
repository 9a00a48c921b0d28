// Sweeps without positions, such as a norm of [samples, channels]: run with the samples as their positions.
//
// One element a channel and sample leaves nothing to a loop over positions. With the axes n and w exchanged the same memory is
// one sample of many positions that lies channels_last, and ChannelsLastRunner walks it in its order.
#pragma once

#include <vector>

#include "cpu/memory.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

bool has_positions(const Sweep& sweep);

// The schedule with n and w exchanged in the extents of its slots and in the domains of its sweeps.
Schedule turned(const Schedule& schedule);
// The same of views.
std::vector<SlotView> turned(std::vector<SlotView> views);

}  // namespace fuseblock::cpu
