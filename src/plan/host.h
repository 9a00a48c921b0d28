// Convolutions as host calls: which of them, and what the embedder is told.
#pragma once

#include "fuseblock/host.h"
#include "plan/schedule.h"
#include "plan/slot_memory.h"

namespace fuseblock {

// What a convolution node, or a gradient of one, asks of the host.
HostConvolution host_convolution(const TypedBlock& block, int node);

// Turns the convolutions that the host is to compute into host calls. Throws NotSupportedError where it must and
// refuses.
std::vector<Decision> choose_host_calls(Lowered& lowered, const DeviceDescription& device,
                                        const PlanOptions& options);

// A tensor that a host call reads: its slot, and the type that the host sees.
struct HostOperand {
  int slot = -1;
  TensorType type;
  bool other_dtype = false;    // the slot's is not the call's
  bool other_extents = false;  // the slot holds a smaller value that stands for all of the operand's elements
};

// The operands of a host call, in order; `stored` is the arithmetic's type.
std::vector<HostOperand> host_operands(const Schedule& schedule, const ScheduleStep& step, DType stored);

// A slot's memory as a tensor of a type; 0 strides where the slot does not vary.
TensorView slot_tensor(const SlotView& view, const TensorType& type);

}  // namespace fuseblock
