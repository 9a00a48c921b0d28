#include "plan/host.h"

#include <algorithm>

namespace fuseblock {
namespace {

ConvolutionPiece piece_of(OpCode code) {
  switch (code) {
    case OpCode::kConvolution: return ConvolutionPiece::kForward;
    case OpCode::kConvolutionGradInput: return ConvolutionPiece::kGradInput;
    case OpCode::kConvolutionGradWeight: return ConvolutionPiece::kGradWeight;
    default: throw InternalError("not a convolution");
  }
}

class HostChoice {
 public:
  HostChoice(const Lowered& lowered, const DeviceDescription& device, const PlanOptions& options)
      : lowered_(lowered), cost_(device, lowered.block), options_(options) {}

  // Whether a part becomes a host call.
  bool takes(int number) {
    const Part& part = lowered_.graph[number];
    if (part.kind != PartKind::kConv && part.kind != PartKind::kContract) return false;
    const HostConvolution convolution = host_convolution(lowered_.block, part.node);
    const std::string refusal = options_.host->refuses ? options_.host->refuses(convolution) : "";
    if (options_.keep_convolutions && !refusal.empty())
      throw NotSupportedError(convolution.stage +
                              ": convolutions are kept for the host, which refuses this one: " + refusal);
    if (options_.keep_convolutions) return true;
    return decide(part, convolution, refusal);
  }

  std::vector<Decision> decisions;

 private:
  // A host call needs its operands whole and leaves its result whole; a sweep computes the one while it is staged and
  // uses the other up.
  bool decide(const Part& part, const HostConvolution& convolution, const std::string& refusal) {
    double moved = 2 * bytes(part, convolution);
    for (int operand : part.operands)
      if (lowered_.graph[operand].kind != PartKind::kArgument)
        moved += 2 * bytes(lowered_.graph[operand], convolution);
    const double rate = options_.host->operations_per_second;
    const double own = convolution.operations / cost_.convolution_rate();
    Decision decision;
    decision.value = part.name;
    decision.alternatives = {{"own sweep", own, "its arithmetic"}};
    decision.chosen = "own sweep";
    decision.reason = "the smallest estimate";
    if (rate <= 0) decision.reason = "the host states no rate";
    if (!refusal.empty()) decision.reason = "the host refuses: " + refusal;
    if (rate > 0 && refusal.empty()) {
      const double host = convolution.operations / rate + options_.host->call_seconds +
                          moved / cost_.device().memory_bandwidth;
      decision.alternatives.push_back(
          {"host call", host, "its arithmetic, the call, and moving what is not fused"});
      if (host < own) decision.chosen = "host call";
    }
    decisions.push_back(std::move(decision));
    return decisions.back().chosen == "host call";
  }

  static double bytes(const Part& part, const HostConvolution& convolution) {
    return part.elements() * static_cast<double>(byte_size(convolution.dtype));
  }

  const Lowered& lowered_;
  CostModel cost_;
  const PlanOptions& options_;
};

DType slot_dtype(const Schedule& schedule, const Slot& slot, DType stored) {
  switch (slot.kind) {
    case SlotKind::kArgument: return schedule.inputs[static_cast<std::size_t>(slot.number)].type.dtype;
    case SlotKind::kOutput: return schedule.outputs[static_cast<std::size_t>(slot.number)].type.dtype;
    case SlotKind::kStatistic: return DType::kF64;
    default: return slot.dtype.value_or(stored);
  }
}

}  // namespace

HostConvolution host_convolution(const TypedBlock& block, int number) {
  const Node& node = block.block().nodes()[static_cast<std::size_t>(number)];
  const ConvGeometry geometry = conv_geometry(block, number);
  HostConvolution result;
  result.piece = piece_of(node.operation->code);
  result.operation = node.operation->name.substr(0, node.operation->name.find("_grad_"));
  result.stage = block.block().stage_text(number);
  result.dtype = block.type(node.result).dtype;
  result.transposed = geometry.transposed;
  result.groups = geometry.groups;
  result.operations = 2 * geometry.multiply_adds();
  const int rank = node.operation->spatial_rank;
  if (rank > 0 && !geometry.transposed) result.pad_mode = node.keyword("pad_mode");
  const bool same = rank > 0 && std::holds_alternative<std::string>(node.argument("pad")) &&
                    std::get<std::string>(node.argument("pad")) == "same";
  for (auto i = static_cast<std::size_t>(3 - rank); i < 3; ++i) {
    const std::int64_t reach = geometry.dilation[i] * (geometry.filter[i] - 1);
    result.stride.push_back(geometry.stride[i]);
    result.dilation.push_back(geometry.dilation[i]);
    result.pad.push_back(geometry.pad[i]);
    result.pad_back.push_back(same ? reach - geometry.pad[i] : geometry.pad[i]);
    const std::int64_t plain = (geometry.in[i] - 1) * geometry.stride[i] - 2 * geometry.pad[i] + reach + 1;
    result.output_pad.push_back(geometry.transposed ? geometry.out[i] - plain : 0);
  }
  return result;
}

std::vector<Decision> choose_host_calls(Lowered& lowered, const DeviceDescription& device,
                                        const PlanOptions& options) {
  if (!options.host) return {};
  HostChoice choice(lowered, device, options);
  std::vector<int> taken;
  for (int part = 0; part < static_cast<int>(lowered.graph.parts.size()); ++part)
    if (choice.takes(part)) taken.push_back(part);
  for (int part : taken) lowered.graph.parts[static_cast<std::size_t>(part)].kind = PartKind::kHost;
  return std::move(choice.decisions);
}

std::vector<HostOperand> host_operands(const Schedule& schedule, const ScheduleStep& step, DType stored) {
  const int number = schedule.graph[step.parts[0]].node;
  const Node& node = schedule.block.block().nodes()[static_cast<std::size_t>(number)];
  const DType dtype = schedule.block.type(node.result).dtype;
  std::vector<HostOperand> operands;
  for (std::size_t i = 0; i < step.operands.size(); ++i) {
    HostOperand operand;
    operand.slot = step.operands[i];
    operand.type = schedule.block.type(node.operand(static_cast<int>(i)));
    operand.type.dtype = dtype;
    const Slot& slot = schedule.slots[static_cast<std::size_t>(operand.slot)];
    operand.other_dtype = slot_dtype(schedule, slot, stored) != dtype;
    operand.other_extents = slot.kind != SlotKind::kArgument && slot.extents != operand.type.canonical();
    operands.push_back(std::move(operand));
  }
  return operands;
}

TensorView slot_tensor(const SlotView& view, const TensorType& type) {
  TensorView result = {view.data, view.dtype, type.extents, {}};
  for (Axis axis : type.axes.list())
    result.strides.push_back(view.strides[static_cast<std::size_t>(index(axis))]);
  return result;
}

}  // namespace fuseblock
