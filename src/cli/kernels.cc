#include "kernels.h"

namespace fuseblock::cli {

KernelRequest read_kernels(const BlockOptions& block, const GradientOptions& gradient) {
  require_consistent(gradient);
  const BlockRequest request = read_request(block);
  const TypedBlock forward = TypedBlock::infer(request.block, request.input, request.others);
  PlanOptions options;
  options.reuse = request.reuse;
  options.kernels = request.kernels;
  const std::string architecture(architecture_of(request.device));
  return {request.device.name(), architecture,
          kernel_sources(gradient.backward ? forward.backward(gradient.wanted) : forward, request.device,
                         options)};
}

}  // namespace fuseblock::cli
