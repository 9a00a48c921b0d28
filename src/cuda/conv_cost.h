// What a convolution takes on the kernels of this engine: the side of the choice between them and a host
// call.
#pragma once

#include "cuda/conv_sum.h"
#include "cuda/gpu.h"
#include "plan/engine.h"
#include "plan/lowered.h"

namespace fuseblock::cuda {

// See plan/engine.h.
OwnConvolution own_convolution(const Lowered& lowered, int part, const DeviceDescription& device,
                               Precision precision);

}  // namespace fuseblock::cuda
