// Convolutions as host calls: which of them, and what the embedder is told.
#pragma once

#include "fuseblock/host.h"
#include "plan/schedule.h"

namespace fuseblock {

// What a convolution node, or a gradient of one, asks of the host.
HostConvolution host_convolution(const TypedBlock& block, int node);

// Turns the convolutions that the host is to compute into host calls. Throws NotSupportedError where it must and
// refuses.
std::vector<Decision> choose_host_calls(Lowered& lowered, const DeviceDescription& device,
                                        const PlanOptions& options);

}  // namespace fuseblock
