// The text of a kernel `plain_channels` (device/plain_channels.cuh): one function, a sweep that ends in a reduction over
// the channels at each position, and what follows from that.
#pragma once

#include "cuda/emit/kernel_writer.h"

namespace fuseblock::cuda {

struct PlainChannelsConstants {
  int threads = 256;
  int blocks = 4;  // a multiprocessor
  int width = 4;   // positions of a thread, 1 or 4
  int batch = 4;   // channels whose elements a thread has at once: more take registers that other warps need
};

// Whether a kernel's steps can be written so: one sweep of f32 tensors whose elements lie one behind the other, with the
// sum of the exponentials over the channels of one value, and outputs made of that alone.
bool is_for_plain_channels(const Schedule& schedule, const KernelCut& cut);

// Its tensors are addresses alone; `blocks` of its scalars are those of a sample.
EmittedKernel plain_channels_text(const Schedule& schedule, const KernelCut& cut,
                                  const PlainChannelsConstants& constants);

}  // namespace fuseblock::cuda
