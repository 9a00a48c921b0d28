// PyTorch's current stream of a GPU.
#pragma once

#include "tensors.h"

namespace fuseblock::torch_binding {

// The stream (a CUstream) that PyTorch's operators use on this thread for that GPU; null on the CPU. Only PyTorch built
// for CUDA has the function that says so: it is looked up at run time. Throws NotSupportedError where it is missing.
void* current_stream(Place place);

}  // namespace fuseblock::torch_binding
