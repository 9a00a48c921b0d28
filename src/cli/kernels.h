// The kernels of the plan that a command line asks for.
#pragma once

#include <string>
#include <vector>

#include "arguments.h"
#include "fuseblock/sources.h"

namespace fuseblock::cli {

struct KernelRequest {
  std::string device;
  std::string architecture;  // the device's
  std::vector<KernelText> kernels;
};

// Throws as read_request does, and NotSupportedError where the device is not a GPU or the cuda engine has no kernel.
KernelRequest read_kernels(const BlockOptions& block, const GradientOptions& gradient);

}  // namespace fuseblock::cli
