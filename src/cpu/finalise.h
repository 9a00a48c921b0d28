// Finalise steps: statistics worked out between sweeps, in double precision, in a fixed order.
#pragma once

#include <vector>

#include "cpu/memory.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

// Works out the step's statistics and writes those that are outputs.
void finalise(const Schedule& schedule, const ScheduleStep& step, const std::vector<SlotView>& views);

// One statistic of several elements or parts of a value. `count` is how many elements `first` and `second`
// stand for.
struct State {
  double first = 0;
  double second = 0;
  double count = 0;
};

// The state of nothing.
State empty_state(Statistic statistic);
// The state of one element.
State element_state(Statistic statistic, double value);
// Joins two states; the order of the calls is part of the result.
State merge(Statistic statistic, const State& a, const State& b);

}  // namespace fuseblock::cpu
