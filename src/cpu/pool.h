// Pools and their adjoints, for each sample and channel by itself.
#pragma once

#include <vector>

#include "cpu/memory.h"
#include "cpu/parallel.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

// Runs a pool step; operands and result are slots that hold the values whole.
void run_pool(const Schedule& schedule, const ScheduleStep& step, const Workers& workers,
              const std::vector<SlotView>& views);

}  // namespace fuseblock::cpu
