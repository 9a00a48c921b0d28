// The kernels of the plan that a command line asks for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "fuseblock/sources.h"

namespace fuseblock::cli {

struct KernelRequest {
  TypedBlock block;
  Device device;
  PlanOptions options;
  std::string architecture;  // the device's

  // Within the limits of an architecture.
  std::vector<KernelText> kernels_for(std::string_view limits) const;
};

// Throws as read_request does, and NotSupportedError where the device is not a GPU.
KernelRequest read_kernels(const BlockOptions& block, const GradientOptions& gradient);

}  // namespace fuseblock::cli
