// The kernels of a plan as text (include/fuseblock/sources.h).
#include "fuseblock/sources.h"

namespace fuseblock {

std::vector<KernelText> kernel_sources(const TypedBlock& block, const Device& device,
                                       const PlanOptions& /*options*/) {
  architecture_of(device);
  throw NotSupportedError("the cuda engine has no kernel for " + block.block().to_string());
}

}  // namespace fuseblock
