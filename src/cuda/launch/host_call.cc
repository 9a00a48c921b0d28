// A convolution, or a gradient of one, computed by the embedder's function on views of the GPU's memory, in the stream that
// the plan runs in.
#include "plan/host.h"

#include "cuda/launch/kernel.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// A component lives in the statistic that has it.
int home_of(const Schedule& schedule, int slot) {
  const Slot& which = schedule.slots[at(slot)];
  const Part& part = schedule.graph[which.part];
  const bool inside = which.kind == SlotKind::kStatistic && part.kind == PartKind::kComponent;
  return inside ? schedule.statistic_slot(part.operands[0], part.component) : slot;
}

class HostCall : public KernelLaunch {
 public:
  HostCall(const Schedule& schedule, const KernelCut& cut, std::shared_ptr<const HostFunctions> host)
      : host_(std::move(host)) {
    const ScheduleStep& step = schedule.steps[at(cut.first)];
    const int number = schedule.graph[step.parts[0]].node;
    convolution_ = host_convolution(schedule.block, number);
    for (HostOperand& operand : host_operands(schedule, step, arithmetic_type(schedule.inputs))) {
      if (operand.other_dtype && host_ && !host_->copy)
        throw NotSupportedError("cuda: " + convolution_.stage +
                                ": an operand is not of the convolution's type, and the host has no function "
                                "`copy` to convert it");
      operand.slot = home_of(schedule, operand.slot);
      operands_.push_back({std::move(operand), 0});
    }
    result_ = step.result;
    result_type_ = schedule.block.type(schedule.block.block().nodes()[at(number)].result);
  }

  std::vector<jit::KernelSource> sources() const override { return {}; }

  void reserve_scratch(WorkspaceLayout& layout) override {
    for (Operand& operand : operands_)
      if (operand.tensor.other_dtype) operand.offset = layout.reserve(at(operand.tensor.type.byte_count()));
  }

  void load(const Gpu& /*gpu*/) override {}

  bool is_kernel() const override { return false; }

  void launch(const RunContext& run, std::byte* /*counters*/) const override {
    std::vector<ConstTensorView> operands;
    for (const Operand& operand : operands_) {
      const TensorType& type = operand.tensor.type;
      const TensorView from = slot_tensor((*run.views)[at(operand.tensor.slot)], type);
      if (!operand.tensor.other_dtype) {
        operands.push_back(from);
        continue;
      }
      const TensorView to = {run.workspace + operand.offset, type.dtype, type.extents, type.strides()};
      host_->copy(from, to);
      operands.push_back(to);
    }
    host_->convolution(convolution_, operands, slot_tensor((*run.views)[at(result_)], result_type_));
  }

 private:
  struct Operand {
    HostOperand tensor;
    std::size_t offset = 0;  // in the workspace, where it is converted
  };

  std::shared_ptr<const HostFunctions> host_;
  HostConvolution convolution_;
  std::vector<Operand> operands_;
  int result_ = -1;
  TensorType result_type_;
};

}  // namespace

std::unique_ptr<KernelLaunch> make_host_call(const Schedule& schedule, const KernelCut& cut,
                                             std::shared_ptr<const HostFunctions> host) {
  return std::make_unique<HostCall>(schedule, cut, std::move(host));
}

}  // namespace fuseblock::cuda
