#include "plan/host.h"

#include <algorithm>

#include "plan/amounts.h"
#include "plan/engine.h"

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
    return decide(number, convolution, refusal);
  }

  std::vector<Decision> decisions;

 private:
  // A host call needs its operands whole and leaves its result whole; a sweep computes the one while it is staged and
  // uses the other up.
  bool decide(int number, const HostConvolution& convolution, const std::string& refusal) {
    const Part& part = lowered_.graph[number];
    const HostFunctions& host = *options_.host;
    const std::optional<OwnConvolution> own =
        own_convolution(lowered_, number, cost_.device(), options_.precision);
    const double rate = host.rate ? host.rate(convolution) : host.operations_per_second;
    Decision decision;
    decision.value = part.name;
    if (own && own->kernel.empty() && refusal.empty())
      decision.take("host call", "there is no kernel for it");
    else
      decision.alternatives.push_back(own_sweep(own, convolution));
    if (refusal.empty() && (rate > 0 || (own && own->last_resort))) {
      double moved = 2 * bytes(part, convolution);
      for (int operand : part.operands)
        if (lowered_.graph[operand].kind != PartKind::kArgument)
          moved += 2 * bytes(lowered_.graph[operand], convolution);
      const double computing = rate > 0 ? convolution.operations / rate : 0;
      decision.alternatives.push_back(
          {"host call", computing + host.call_seconds + moved / cost_.device().memory_bandwidth,
           rate > 0
               ? "its arithmetic at " + amount(rate) + " operations/s, the call, and moving what is not fused"
               : "the call, and moving what is not fused"});
    }
    if (decision.chosen.empty()) choose(decision, own, convolution, rate, refusal);
    decisions.push_back(std::move(decision));
    return decisions.back().chosen == "host call";
  }

  Alternative own_sweep(const std::optional<OwnConvolution>& own, const HostConvolution& convolution) const {
    if (own && own->kernel.empty()) return {"own sweep", 0, "there is no kernel for it"};
    const double rate = own ? own->operations_per_second : cost_.convolution_rate();
    return {"own sweep", convolution.operations / rate,
            "its arithmetic" + (own ? " by " + own->kernel + " at " + amount(rate) + " operations/s" : "")};
  }

  void choose(Decision& decision, const std::optional<OwnConvolution>& own,
              const HostConvolution& convolution, double rate, const std::string& refusal) const {
    const bool gradient = convolution.piece != ConvolutionPiece::kForward;
    if (!refusal.empty())
      decision.take("own sweep", "the host refuses: " + refusal);
    else if (own && gradient)
      decision.take("host call", "gradients of convolutions are left to the host");
    else if (options_.own_convolutions)
      decision.take("own sweep", "asked for");
    else if (own && own->last_resort)
      decision.take("host call", own->kernel + " is for where there is no host");
    else if (rate <= 0)
      decision.take("own sweep", "the host states no rate");
    else
      decision.take_smallest();
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
  result.in_channels = geometry.in_channels;
  result.out_channels = geometry.out_channels;
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
