// Sweeps without positions, such as a norm of [samples, channels] or linear: run with the samples as their positions.
//
// One element a channel and sample leaves nothing to a loop over positions. With the axes n and h exchanged the same memory is
// one sample of many positions that lies channels_last. What loads walks it in its order (ChannelsLastRunner); what convolves
// has a tile of many positions for each time the weights are read.
#pragma once

#include <vector>

#include "block/geometry.h"
#include "cpu/memory.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

// Whether a sweep can run turned: it has several samples and no positions, nor has what it convolves or contracts.
bool can_turn(const Schedule& schedule, const Sweep& sweep);

// Statistics of one element, in sweeps that can turn, that are merged over the samples and nothing else: taken over the samples
// at once. What is left to merge is one of each channel.
void reduce_samples(Schedule& schedule);

// The schedule with n and h exchanged in the extents of its slots and parts and in the domains of its sweeps. Not meant for
// weights, whose first axis is not n.
Schedule turned(const Schedule& schedule);
Extents turned(Extents along_axes);
SlotView turned(SlotView view);
ConvGeometry turned(ConvGeometry geometry);

}  // namespace fuseblock::cpu
