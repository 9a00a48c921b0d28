// The text of a kernel `conv_direct` (device/conv_direct.cu).
#pragma once

#include "cuda/emit/kernel_writer.h"

namespace fuseblock::cuda {

// The cut's step is a sweep that stores its convolution.
EmittedKernel conv_direct_text(const Schedule& schedule, const KernelCut& cut);

}  // namespace fuseblock::cuda
