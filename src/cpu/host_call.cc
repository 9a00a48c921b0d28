#include "cpu/host_call.h"

#include "fuseblock/tensor.h"
#include "plan/host.h"

namespace fuseblock::cpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// A slot's memory as a tensor of a type with the same extents.
TensorView tensor_view(const SlotView& view, const TensorType& type) {
  TensorView result = {view.data, view.dtype, type.extents, {}};
  for (Axis axis : type.axes.list()) result.strides.push_back(view.strides[at(index(axis))]);
  return result;
}

DType slot_dtype(const Schedule& schedule, const Slot& slot, DType stored) {
  switch (slot.kind) {
    case SlotKind::kArgument: return schedule.inputs[at(slot.number)].type.dtype;
    case SlotKind::kOutput: return schedule.outputs[at(slot.number)].type.dtype;
    case SlotKind::kStatistic: return DType::kF64;
    default: return slot.dtype.value_or(stored);
  }
}

}  // namespace

HostCall::HostCall(const Schedule& schedule, const ScheduleStep& step,
                   std::shared_ptr<const HostFunctions> host, DType stored, Layout& layout)
    : host_(std::move(host)) {
  const int number = schedule.graph[step.parts[0]].node;
  const Node& node = schedule.block.block().nodes()[at(number)];
  convolution_ = host_convolution(schedule.block, number);
  for (std::size_t i = 0; i < step.operands.size(); ++i) {
    Operand operand;
    operand.slot = step.operands[i];
    operand.type = schedule.block.type(node.operand(static_cast<int>(i)));
    operand.type.dtype = convolution_.dtype;
    const Slot& slot = schedule.slots[at(operand.slot)];
    // A smaller value that stands for all of the operand's elements is spread as well.
    operand.converted = slot_dtype(schedule, slot, stored) != convolution_.dtype ||
                        (slot.kind != SlotKind::kArgument && slot.extents != operand.type.canonical());
    if (operand.converted) operand.offset = layout.reserve(at(operand.type.byte_count()));
    operands_.push_back(std::move(operand));
  }
  result_.slot = step.result;
  result_.type = schedule.block.type(node.result);
}

void HostCall::run(const Workers& workers, const std::vector<SlotView>& views, std::byte* workspace) const {
  std::vector<ConstTensorView> operands;
  for (const Operand& operand : operands_) {
    const SlotView& view = views[at(operand.slot)];
    if (operand.converted) {
      convert(operand, workers, view, workspace + operand.offset);
      operands.push_back(
          {workspace + operand.offset, operand.type.dtype, operand.type.extents, operand.type.strides()});
    } else {
      operands.push_back(tensor_view(view, operand.type));
    }
  }
  host_->convolution(convolution_, operands, tensor_view(views[at(result_.slot)], result_.type));
}

void HostCall::convert(const Operand& operand, const Workers& workers, const SlotView& from,
                       std::byte* to) const {
  const Extents extents = operand.type.canonical();
  SlotView target = {to, operand.type.dtype, {0, 0, 0, 0, 0}};
  const std::vector<std::int64_t> strides = operand.type.strides();
  std::size_t next = 0;
  for (Axis axis : operand.type.axes.list()) target.strides[at(index(axis))] = strides[next++];
  workers.run(extents[0] * extents[1], [&](std::int64_t plane, int) {
    const std::int64_t n = plane / extents[1];
    const std::int64_t c = plane % extents[1];
    for (std::int64_t d = 0; d < extents[2]; ++d)
      for (std::int64_t h = 0; h < extents[3]; ++h)
        for (std::int64_t w = 0; w < extents[4]; ++w)
          store_element(target.data, target.dtype, target.offset(n, c, d, h, w),
                        load_element(from.data, from.dtype, from.offset(n, c, d, h, w)));
  });
}

}  // namespace fuseblock::cpu
