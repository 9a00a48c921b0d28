// Statistics over some of the positions, as the CPU takes them.
#pragma once

#include "plan/schedule.h"

namespace fuseblock::cpu {

// A schedule takes such a statistic for every element and merges what the elements have. Has the sweeps take
// it over the axes of the merge at once, where every user of it is a merge: a number for each row or column
// is kept and not one for each element.
void take_over_positions(Schedule& schedule);

}  // namespace fuseblock::cpu
