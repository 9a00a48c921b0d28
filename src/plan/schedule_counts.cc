// What a schedule has how many of.
#include <algorithm>

#include "plan/schedule.h"

namespace fuseblock {

int Schedule::statistic_slot(int part, int component) const {
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (slots[i].part == part && slots[i].component == component && slots[i].kind == SlotKind::kStatistic)
      return static_cast<int>(i);
  return -1;
}

int Schedule::sweep_count() const {
  return static_cast<int>(std::count_if(
      steps.begin(), steps.end(), [](const ScheduleStep& step) { return step.kind != StepKind::kFinalise; }));
}

int Schedule::kernel_count() const {
  int count = sweep_count();
  for (const Kept& run : kept)
    for (int i = run.first + 1; i <= run.last; ++i)
      if (steps[static_cast<std::size_t>(i)].kind != StepKind::kFinalise) --count;
  return count;
}

double Schedule::stored_bytes(int element_bytes) const {
  double bytes = 0;
  for (const Slot& slot : slots)
    if (slot.kind == SlotKind::kStored) bytes += graph[slot.part].elements() * element_bytes;
  return bytes;
}

}  // namespace fuseblock
