// The text of a kernel `finalise`: statistics out of statistics, by one block, or by all of a
// grid where they vary over positions.
#pragma once

#include "cuda/emit/kernel_writer.h"

namespace fuseblock::cuda {

EmittedKernel finalise_text(const Schedule& schedule, const KernelCut& cut);

}  // namespace fuseblock::cuda
