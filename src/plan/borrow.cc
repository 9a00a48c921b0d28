#include "plan/borrow.h"

#include <algorithm>

namespace fuseblock {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

bool contains(const std::vector<int>& slots, int slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

bool writes(const std::vector<Sink>& sinks, int slot) {
  return std::any_of(sinks.begin(), sinks.end(),
                     [&](const Sink& sink) { return contains(sink.slots, slot); });
}

// Whether a step takes a slot otherwise than element by element: while staging, as a weight, for a pool.
bool takes_whole(const ScheduleStep& step, int slot) {
  if (step.kind != StepKind::kSweep) return contains(step.operands, slot);
  const Sweep& sweep = step.sweep;
  return sweep.weight == slot || sweep.bias == slot || contains(sweep.epilogue.inputs, slot) ||
         std::any_of(sweep.staged.begin(), sweep.staged.end(),
                     [&](const Prologue& prologue) { return contains(prologue.inputs, slot); });
}

bool reads(const ScheduleStep& step, int slot) {
  return takes_whole(step, slot) || (step.kind == StepKind::kSweep && contains(step.sweep.inputs, slot));
}

// The step that reads a slot last; -1 for none.
int last_reader(const Schedule& schedule, int slot) {
  for (int i = static_cast<int>(schedule.steps.size()) - 1; i >= 0; --i)
    if (reads(schedule.steps[at(i)], slot)) return i;
  return -1;
}

}  // namespace

void borrow_outputs(Schedule& schedule, DType stored) {
  std::vector<bool> taken(schedule.outputs.size(), false);
  for (int slot = 0; slot < static_cast<int>(schedule.slots.size()); ++slot) {
    if (schedule.slots[at(slot)].kind != SlotKind::kStored) continue;
    if (schedule.slots[at(slot)].dtype.value_or(stored) != stored) continue;
    const int reader = last_reader(schedule, slot);
    if (reader < 0 || schedule.steps[at(reader)].kind != StepKind::kSweep) continue;
    const ScheduleStep& step = schedule.steps[at(reader)];
    if (takes_whole(step, slot) || writes(step.sweep.sinks, slot)) continue;
    if (step.sweep.domain != schedule.slots[at(slot)].extents) continue;
    // A second sink would find the value overwritten by the first.
    if (step.sweep.sinks.size() != 1 || step.sweep.sinks[0].kind != SinkKind::kStore) continue;
    const Slot& output = schedule.slots[at(step.sweep.sinks[0].slots[0])];
    if (output.kind != SlotKind::kOutput || output.borrowed || taken[at(output.number)]) continue;
    if (schedule.outputs[at(output.number)].type.dtype != stored || output.extents != step.sweep.domain)
      continue;
    taken[at(output.number)] = true;
    Slot& moved = schedule.slots[at(slot)];
    moved.number = output.number;
    moved.kind = SlotKind::kOutput;
    moved.borrowed = true;
  }
}

bool lies_over_an_input(const Schedule& schedule, const Sweep& sweep, int slot) {
  return std::any_of(sweep.inputs.begin(), sweep.inputs.end(), [&](int input) {
    return input >= 0 && schedule.slots[at(input)].borrowed &&
           schedule.slots[at(input)].number == schedule.slots[at(slot)].number;
  });
}

}  // namespace fuseblock
