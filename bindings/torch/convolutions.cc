#include "convolutions.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

namespace fuseblock::torch_binding {
namespace {

using torch::headeronly::HeaderOnlyArrayRef;
using torch::headeronly::IntHeaderOnlyArrayRef;
using torch::stable::detail::from;
using torch::stable::detail::to;
using Integers = std::vector<std::int64_t>;

bool plain_padding(const HostConvolution& convolution) {
  return convolution.pad_mode == "zeros" && convolution.pad == convolution.pad_back;
}

// Positions in front of and behind each axis, the last axis first, as aten::pad takes them.
Integers pad_amounts(const HostConvolution& convolution) {
  Integers amounts;
  for (std::size_t i = convolution.pad.size(); i-- > 0;) {
    amounts.push_back(convolution.pad[i]);
    amounts.push_back(convolution.pad_back[i]);
  }
  return amounts;
}

Tensor forward(const HostConvolution& convolution, Tensor x, const Tensor& weight,
               const std::optional<Tensor>& bias) {
  Integers pad = convolution.pad;
  if (!plain_padding(convolution)) {
    const bool zeros = convolution.pad_mode == "zeros";
    x = torch::stable::pad(x, pad_amounts(convolution), zeros ? "constant" : convolution.pad_mode, 0);
    pad.assign(pad.size(), 0);
  }
  const Integers output_pad =
      convolution.output_pad.empty() ? Integers(pad.size(), 0) : convolution.output_pad;
  std::array<StableIValue, 9> stack = {from(x),
                                       from(weight),
                                       from(bias),
                                       from(convolution.stride),
                                       from(pad),
                                       from(convolution.dilation),
                                       from(convolution.transposed),
                                       from(output_pad),
                                       from(convolution.groups)};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::convolution", "", stack.data(), TORCH_ABI_VERSION));
  return to<Tensor>(stack[0]);
}

// The gradient by x or by weight; the other is read for its extents alone.
Tensor gradient(const HostConvolution& convolution, const Tensor& d_y, const Tensor& x,
                const Tensor& weight) {
  const bool by_input = convolution.piece == ConvolutionPiece::kGradInput;
  const std::array<bool, 3> wanted = {by_input, !by_input, false};
  const Integers output_pad =
      convolution.output_pad.empty() ? Integers(convolution.pad.size(), 0) : convolution.output_pad;
  std::array<StableIValue, 11> stack = {from(d_y),
                                        from(x),
                                        from(weight),
                                        from(std::nullopt),
                                        from(convolution.stride),
                                        from(convolution.pad),
                                        from(convolution.dilation),
                                        from(convolution.transposed),
                                        from(output_pad),
                                        from(convolution.groups),
                                        from(HeaderOnlyArrayRef<bool>(wanted.data(), wanted.size()))};
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("aten::convolution_backward", "", stack.data(), TORCH_ABI_VERSION));
  std::array<Tensor, 3> gradients = {to<Tensor>(stack[0]), to<Tensor>(stack[1]), to<Tensor>(stack[2])};
  return gradients[by_input ? 0 : 1];
}

Tensor linear(const HostConvolution& convolution, std::span<const Tensor> operands) {
  switch (convolution.piece) {
    case ConvolutionPiece::kForward: {
      std::array<StableIValue, 3> stack = {
          from(operands[0]), from(operands[1]),
          from(operands.size() > 2 ? std::optional(operands[2]) : std::nullopt)};
      TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::linear", "", stack.data(), TORCH_ABI_VERSION));
      return to<Tensor>(stack[0]);
    }
    case ConvolutionPiece::kGradInput: return torch::stable::matmul(operands[0], operands[1]);
    case ConvolutionPiece::kGradWeight: break;
  }
  return torch::stable::matmul(torch::stable::transpose(operands[0], 0, 1), operands[1]);
}

void convolve(const HostConvolution& convolution, std::span<const ConstTensorView> views,
              const TensorView& result_view, Place place) {
  std::vector<Tensor> operands;
  operands.reserve(views.size());
  for (const ConstTensorView& view : views) operands.push_back(borrow(view, place));
  Tensor result = borrow(result_view, place);
  if (convolution.operation == "linear") {
    torch::stable::copy_(result, linear(convolution, operands));
    return;
  }
  switch (convolution.piece) {
    case ConvolutionPiece::kForward:
      torch::stable::copy_(result, forward(convolution, operands[0], operands[1],
                                           operands.size() > 2 ? std::optional(operands[2]) : std::nullopt));
      break;
    case ConvolutionPiece::kGradInput:
      torch::stable::copy_(result, gradient(convolution, operands[0], result, operands[1]));
      break;
    case ConvolutionPiece::kGradWeight:
      torch::stable::copy_(result, gradient(convolution, operands[0], operands[1], result));
      break;
  }
}

std::string refuses(const HostConvolution& convolution) {
  if (convolution.piece == ConvolutionPiece::kForward || plain_padding(convolution)) return "";
  return "PyTorch's gradient of a convolution takes padding by zeros, as much in front as behind";
}

// A share of a device's rate: for each channel of a group, and at most.
struct Reached {
  double of_channel;
  double most;
};

// What cuDNN reaches on an H200. Where there are few channels most of its products are with zeros. For each
// channel: conv_transpose3d_relu_gn, with 64, less an estimate of its norm; at most: conv2d(128, k=3, pad=1)
// on 1,128,256,256 by itself.
constexpr Reached kTf32 = {0.0065, 0.45};
constexpr Reached kStrict = {0.08, 0.8};  // of plain f32 arithmetic
constexpr Reached k16Bits = {0.0044, 0.37};
constexpr Reached kF64 = {0.08, 0.5};
constexpr double kCallSeconds = 5e-6;

double rate_of(const HostConvolution& convolution, const DeviceDescription& device, bool tf32) {
  const std::int64_t of_group =
      std::min(convolution.in_channels, convolution.out_channels) / convolution.groups;
  const auto channels = static_cast<double>(of_group);
  auto reach = [&](const Reached& reached, double rate) {
    return rate * std::min(reached.of_channel * channels, reached.most);
  };
  switch (convolution.dtype) {
    case DType::kF64: return reach(kF64, device.f64_rate);
    case DType::kF32: return tf32 ? reach(kTf32, device.tf32_rate) : reach(kStrict, device.f32_rate);
    default: return reach(k16Bits, device.f16_rate);
  }
}

}  // namespace

std::shared_ptr<const HostFunctions> torch_convolutions(Place place, const DeviceDescription& device,
                                                        bool tf32) {
  static std::mutex mutex;
  static std::map<std::pair<Place, bool>, std::shared_ptr<const HostFunctions>> known;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const HostFunctions>& entry = known[{place, tf32}];
  if (!entry) {
    auto functions = std::make_shared<HostFunctions>();
    functions->convolution = [place](const HostConvolution& convolution,
                                     std::span<const ConstTensorView> operands, const TensorView& result) {
      convolve(convolution, operands, result, place);
    };
    functions->copy = [place](const ConstTensorView& from, const TensorView& to) {
      Tensor result = borrow(to, place);
      torch::stable::copy_(result, borrow(from, place));
    };
    functions->refuses = refuses;
    if (place != kCpu) {
      functions->call_seconds = kCallSeconds;
      functions->rate = [device, tf32](const HostConvolution& convolution) {
        return rate_of(convolution, device, tf32);
      };
    }
    entry = functions;
  }
  return entry;
}

}  // namespace fuseblock::torch_binding
