#include "plan/slot_memory.h"

#include <algorithm>

namespace fuseblock {
namespace {

Extents view_strides(const TensorType& type, const std::vector<std::int64_t>& strides) {
  Extents result = {0, 0, 0, 0, 0};
  std::size_t next = 0;
  for (Axis axis : kAllAxes) {
    if (!type.axes.contains(axis)) continue;
    const std::int64_t stride = strides[next];
    if (type.extents[next] != 1) result[static_cast<std::size_t>(index(axis))] = stride;
    ++next;
  }
  return result;
}

}  // namespace

DType arithmetic_type(const std::vector<NamedType>& inputs) {
  const bool wide = std::any_of(inputs.begin(), inputs.end(),
                                [](const NamedType& input) { return input.type.dtype == DType::kF64; });
  return wide ? DType::kF64 : DType::kF32;
}

Extents dense_strides(const Extents& extents, Layout layout) {
  constexpr std::array<std::size_t, kAxisCount> kContiguous = {4, 3, 2, 1, 0};  // the fastest axis first
  constexpr std::array<std::size_t, kAxisCount> kChannelsLast = {1, 4, 3, 2, 0};
  Extents strides = {0, 0, 0, 0, 0};
  std::int64_t step = 1;
  for (std::size_t i : layout == Layout::kChannelsLast ? kChannelsLast : kContiguous) {
    if (extents[i] != 1) strides[i] = step;
    step *= extents[i];
  }
  return strides;
}

std::vector<std::size_t> place_slots(const Schedule& schedule, DType stored, WorkspaceLayout& layout) {
  constexpr double kLargest = 1e15;
  std::vector<std::size_t> offsets;
  for (const Slot& slot : schedule.slots) {
    const bool in_workspace = slot.kind == SlotKind::kStored || slot.kind == SlotKind::kStatistic;
    const DType dtype = slot.kind == SlotKind::kStatistic ? DType::kF64 : slot.dtype.value_or(stored);
    const double elements = slot.elements();
    if (elements > kLargest) throw NotSupportedError("a value of the plan is too large for the workspace");
    const auto bytes = static_cast<std::size_t>(elements) * static_cast<std::size_t>(byte_size(dtype));
    offsets.push_back(in_workspace ? layout.reserve(bytes) : 0);
  }
  return offsets;
}

void show_slots(const Schedule& schedule, const std::vector<std::size_t>& offsets, DType stored,
                const Arguments& arguments, std::span<std::byte> workspace, std::span<SlotView> views) {
  for (std::size_t i = 0; i < schedule.slots.size(); ++i) {
    const Slot& slot = schedule.slots[i];
    const auto number = static_cast<std::size_t>(slot.number);
    SlotView& view = views[i];
    view = {};
    switch (slot.kind) {
      case SlotKind::kArgument: {
        const ConstTensorView& tensor = arguments.inputs[number];
        // Arguments are only read; the view serves both kinds of slots.
        view = {static_cast<std::byte*>(const_cast<void*>(tensor.data)), tensor.dtype,  // NOLINT
                view_strides(schedule.inputs[number].type, tensor.strides)};
        break;
      }
      case SlotKind::kOutput: {
        const TensorView& tensor = arguments.outputs[number];
        view = {static_cast<std::byte*>(tensor.data), tensor.dtype,
                view_strides(schedule.outputs[number].type, tensor.strides)};
        break;
      }
      case SlotKind::kStored:
        view = {workspace.data() + offsets[i], slot.dtype.value_or(stored),
                dense_strides(slot.extents, slot.layout)};
        break;
      case SlotKind::kTile: break;
      case SlotKind::kStatistic:
        view = {workspace.data() + offsets[i], DType::kF64, dense_strides(slot.extents)};
        break;
    }
  }
}

std::vector<SlotView> slot_views(const Schedule& schedule, const std::vector<std::size_t>& offsets,
                                 DType stored, const Arguments& arguments, std::span<std::byte> workspace) {
  std::vector<SlotView> views(schedule.slots.size());
  show_slots(schedule, offsets, stored, arguments, workspace, views);
  return views;
}

}  // namespace fuseblock
