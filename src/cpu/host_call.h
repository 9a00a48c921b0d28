// Host calls: a convolution, or a gradient of one, computed by the embedder's function on views of the slots.
#pragma once

#include <memory>
#include <vector>

#include "cpu/memory.h"
#include "cpu/parallel.h"
#include "fuseblock/host.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

class HostCall {
 public:
  // Reserves memory for operands that are not of the call's type.
  HostCall(const Schedule& schedule, const ScheduleStep& step, std::shared_ptr<const HostFunctions> host,
           DType stored, Layout& layout);

  void run(const Workers& workers, SlotViews views, std::byte* workspace) const;

 private:
  // A tensor of the call.
  struct Operand {
    int slot = -1;
    TensorType type;
    bool converted = false;  // copied to `offset` first, dense in the type
    std::size_t offset = 0;
  };

  void convert(const Operand& operand, const Workers& workers, const SlotView& from, std::byte* to) const;

  std::shared_ptr<const HostFunctions> host_;
  HostConvolution convolution_;
  std::vector<Operand> operands_;
  Operand result_;
};

}  // namespace fuseblock::cpu
