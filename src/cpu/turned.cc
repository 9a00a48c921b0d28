#include "cpu/turned.h"

#include <algorithm>
#include <utility>

namespace fuseblock::cpu {
namespace {

constexpr Spatial kOne = {1, 1, 1};

void exchange(Extents& along_axes) { std::swap(along_axes[0], along_axes[3]); }

// An element of the result is a sum over the channels of the same element of the source.
bool is_linear(const ConvGeometry& geometry) {
  return geometry.in == kOne && geometry.out == kOne && geometry.filter == kOne && geometry.stride == kOne &&
         geometry.pad == Spatial{0, 0, 0};
}

// Whether nobody sees the statistic of a single sample.
bool is_merged_over_samples(const Schedule& schedule, int number) {
  const auto merges = [&](const Part& part) {
    const bool takes = std::find(part.operands.begin(), part.operands.end(), number) != part.operands.end();
    return !takes || (part.kind == PartKind::kMerge && part.axes.contains(Axis::kN));
  };
  const auto is_of_part = [&](int slot) {
    return slot >= 0 && schedule.slots[static_cast<std::size_t>(slot)].part == number;
  };
  const auto reads = [&](const ScheduleStep& step) {
    const std::vector<int>& inputs = step.sweep.inputs;
    const std::vector<int>& later = step.sweep.epilogue.inputs;
    return std::any_of(inputs.begin(), inputs.end(), is_of_part) ||
           std::any_of(later.begin(), later.end(), is_of_part);
  };
  const auto leaves = [&](const Slot& slot) { return slot.kind == SlotKind::kOutput && slot.part == number; };
  return std::all_of(schedule.graph.parts.begin(), schedule.graph.parts.end(), merges) &&
         std::none_of(schedule.steps.begin(), schedule.steps.end(), reads) &&
         std::none_of(schedule.slots.begin(), schedule.slots.end(), leaves);
}

}  // namespace

bool can_turn(const Schedule& schedule, const Sweep& sweep) {
  if (over_positions(sweep.domain) || sweep.domain[0] < 2) return false;
  const auto part_is_linear = [&](int part) {
    return is_linear(conv_geometry(schedule.block, schedule.graph[part].node));
  };
  if (sweep.source >= 0 && !part_is_linear(sweep.source)) return false;
  return std::all_of(sweep.sinks.begin(), sweep.sinks.end(), [&](const Sink& sink) {
    return sink.kind != SinkKind::kContract || part_is_linear(sink.part);
  });
}

void reduce_samples(Schedule& schedule) {
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind != StepKind::kSweep || !can_turn(schedule, step.sweep)) continue;
    for (const Sink& sink : step.sweep.sinks) {
      if (sink.kind != SinkKind::kStatistic || !is_merged_over_samples(schedule, sink.part)) continue;
      Part& part = schedule.graph.parts[static_cast<std::size_t>(sink.part)];
      if (part.axes == AxisSet{Axis::kC} || part.statistic == Statistic::kExpSum) continue;
      part.count *= std::exchange(part.extents[0], 1);
      for (int slot : sink.slots) schedule.slots[static_cast<std::size_t>(slot)].extents[0] = 1;
    }
  }
}

Schedule turned(const Schedule& schedule) {
  Schedule result = schedule;
  for (Slot& slot : result.slots) exchange(slot.extents);
  for (Part& part : result.graph.parts) exchange(part.extents);
  for (ScheduleStep& step : result.steps) exchange(step.sweep.domain);
  return result;
}

Extents turned(Extents along_axes) {
  exchange(along_axes);
  return along_axes;
}

SlotView turned(SlotView view) {
  exchange(view.strides);
  return view;
}

ConvGeometry turned(ConvGeometry geometry) {
  geometry.in[1] = geometry.out[1] = std::exchange(geometry.batch, 1);
  return geometry;
}

}  // namespace fuseblock::cpu
