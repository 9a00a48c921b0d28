// The text of a kernel `finalise`: statistics out of statistics, by one block.
#pragma once

#include "cuda/emit/kernel_writer.h"

namespace fuseblock::cuda {

EmittedKernel finalise_text(const Schedule& schedule, const KernelCut& cut);

}  // namespace fuseblock::cuda
