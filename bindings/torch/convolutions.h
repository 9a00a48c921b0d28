// PyTorch's convolutions for plans that leave convolutions to the program around them.
#pragma once

#include <memory>

#include "fuseblock/device.h"
#include "fuseblock/host.h"
#include "tensors.h"

namespace fuseblock::torch_binding {

// aten::convolution and aten::convolution_backward, aten::linear and matrix products, with whatever PyTorch's switches
// (deterministic algorithms, oneDNN) say when they are called. Refused: gradients of a convolution whose padding is not
// zeros, or not the same in front and behind.
// On a GPU they go into PyTorch's current stream, and the table tells what rates to expect: `tf32` is what PyTorch's
// switches say of convolutions of f32 tensors.
std::shared_ptr<const HostFunctions> torch_convolutions(Place place, const DeviceDescription& device,
                                                        bool tf32);

}  // namespace fuseblock::torch_binding
