#include "cpu/host_call.h"

#include "fuseblock/tensor.h"
#include "plan/host.h"

namespace fuseblock::cpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

HostCall::HostCall(const Schedule& schedule, const ScheduleStep& step,
                   std::shared_ptr<const HostFunctions> host, DType stored, Layout& layout)
    : host_(std::move(host)) {
  const int number = schedule.graph[step.parts[0]].node;
  convolution_ = host_convolution(schedule.block, number);
  for (HostOperand& operand : host_operands(schedule, step, stored)) {
    const bool converted = operand.other_dtype || operand.other_extents;
    const std::size_t offset = converted ? layout.reserve(at(operand.type.byte_count())) : 0;
    operands_.push_back({operand.slot, std::move(operand.type), converted, offset});
  }
  result_.slot = step.result;
  result_.type = schedule.block.type(schedule.block.block().nodes()[at(number)].result);
}

void HostCall::run(const Workers& workers, SlotViews views, std::byte* workspace) const {
  std::vector<ConstTensorView> operands;
  for (const Operand& operand : operands_) {
    const SlotView& view = views[at(operand.slot)];
    if (operand.converted) {
      convert(operand, workers, view, workspace + operand.offset);
      operands.push_back(
          {workspace + operand.offset, operand.type.dtype, operand.type.extents, operand.type.strides()});
    } else {
      operands.push_back(slot_tensor(view, operand.type));
    }
  }
  host_->convolution(convolution_, operands, slot_tensor(views[at(result_.slot)], result_.type));
}

void HostCall::convert(const Operand& operand, const Workers& workers, const SlotView& from,
                       std::byte* to) const {
  const Extents extents = operand.type.canonical();
  SlotView target = {to, operand.type.dtype, {0, 0, 0, 0, 0}};
  const std::vector<std::int64_t> strides = operand.type.strides();
  std::size_t next = 0;
  for (Axis axis : operand.type.axes.list()) target.strides[at(index(axis))] = strides[next++];
  run_tasks(workers, extents[0] * extents[1], [&](std::int64_t plane, int) {
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
