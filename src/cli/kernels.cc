#include "kernels.h"

namespace fuseblock::cli {

KernelRequest read_kernels(const BlockOptions& block, const GradientOptions& gradient) {
  require_consistent(gradient);
  const BlockRequest request = read_request(block);
  const TypedBlock forward = TypedBlock::infer(request.block, request.input, request.others);
  PlanOptions options;
  options.reuse = request.reuse;
  options.kernels = request.kernels;
  options.precision = request.precision;
  return {gradient.backward ? forward.backward(gradient.wanted) : forward, request.device, options,
          std::string(architecture_of(request.device))};
}

std::vector<KernelText> KernelRequest::kernels_for(std::string_view limits) const {
  return kernel_sources(block, device, options, limits);
}

}  // namespace fuseblock::cli
