// The text of a kernel `rows_registers` (device/rows_registers.cuh): constants, programs and finalise steps around the device files.
#pragma once

#include "cuda/emit/kernel_writer.h"

namespace fuseblock::cuda {

struct RowsRegistersConstants {
  int threads = 256;
  int blocks = 1;   // a multiprocessor
  int cluster = 1;  // blocks that have a unit together
  int vector = 8;   // elements a thread moves at once
  int pieces = 1;   // such vectors of a thread, all of which stay in its registers
};

// Whether there is such a kernel: two sweeps over one tensor, the first of which takes the moments of units and nothing else, and the
// second of which stores what it makes, in float.
bool is_for_rows_registers(const Schedule& schedule, const KernelCut& cut);

// Inputs and outputs over positions are dense, and channels are whole vectors.
EmittedKernel rows_registers_text(const Schedule& schedule, const KernelCut& cut,
                                  const RowsRegistersConstants& constants);

}  // namespace fuseblock::cuda
