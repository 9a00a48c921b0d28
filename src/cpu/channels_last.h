// Which sweeps of a schedule walk channels_last memory in its own order.
#pragma once

#include <vector>

#include "plan/schedule.h"

namespace fuseblock::cpu {

struct ChannelsLastChoice {
  std::vector<bool> steps;  // by step: a sweep for ChannelsLastRunner
  std::vector<bool> slots;  // by slot: a stored value that lies channels_last
  // By step: where the sweep can run together with earlier ones, a few positions at a time, the first of them; else
  // the step itself.
  std::vector<int> together;
};

// Sweeps that load, all of whose values at (channel, position) are channels_last: arguments and outputs by their
// types, stored values where every step that touches them is such a sweep or a pool of such values. Steps that run unit by
// unit (Schedule::kept) and sums of exponentials over positions are left out. Sweeps without positions belong here whatever
// their layout: they run turned (turned.h).
//
// Sweeps over one domain run together where the later ones take nothing from the earlier ones but values at the same
// position, and nothing from the finalise steps in between, which come after all of them then.
ChannelsLastChoice find_channels_last(const Schedule& schedule);

}  // namespace fuseblock::cpu
