// The text of a kernel `pool` (device/pool.cu).
#pragma once

#include "cuda/emit/kernel_writer.h"

namespace fuseblock::cuda {

// `channels_last`: neighbouring threads have neighbouring channels.
EmittedKernel pool_text(const Schedule& schedule, const KernelCut& cut, bool channels_last);

}  // namespace fuseblock::cuda
