#include "cpu/turned.h"

#include <utility>

namespace fuseblock::cpu {
namespace {

void exchange(Extents& along_axes) { std::swap(along_axes[0], along_axes[4]); }

}  // namespace

bool has_positions(const Sweep& sweep) {
  return sweep.domain[2] != 1 || sweep.domain[3] != 1 || sweep.domain[4] != 1;
}

Schedule turned(const Schedule& schedule) {
  Schedule result = schedule;
  for (Slot& slot : result.slots) exchange(slot.extents);
  for (ScheduleStep& step : result.steps) exchange(step.sweep.domain);
  return result;
}

std::vector<SlotView> turned(std::vector<SlotView> views) {
  for (SlotView& view : views) exchange(view.strides);
  return views;
}

}  // namespace fuseblock::cpu
