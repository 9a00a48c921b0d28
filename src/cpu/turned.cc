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

}  // namespace

bool has_positions(const Sweep& sweep) {
  return sweep.domain[2] != 1 || sweep.domain[3] != 1 || sweep.domain[4] != 1;
}

bool can_turn(const Schedule& schedule, const Sweep& sweep) {
  if (has_positions(sweep) || sweep.domain[0] < 2) return false;
  const auto part_is_linear = [&](int part) {
    return is_linear(conv_geometry(schedule.block, schedule.graph[part].node));
  };
  if (sweep.source >= 0 && !part_is_linear(sweep.source)) return false;
  return std::all_of(sweep.sinks.begin(), sweep.sinks.end(), [&](const Sink& sink) {
    return sink.kind != SinkKind::kContract || part_is_linear(sink.part);
  });
}

Schedule turned(const Schedule& schedule) {
  Schedule result = schedule;
  for (Slot& slot : result.slots) exchange(slot.extents);
  for (Part& part : result.graph.parts) exchange(part.extents);
  for (ScheduleStep& step : result.steps) exchange(step.sweep.domain);
  return result;
}

std::vector<SlotView> turned(std::vector<SlotView> views) {
  for (SlotView& view : views) exchange(view.strides);
  return views;
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
