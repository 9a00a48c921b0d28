// Convolutions that the program around fuseblock computes: a table of functions that it passes in, so that a plan can
// leave convolutions to a framework's own and still knows none.
//
//   auto host = std::make_shared<fuseblock::HostFunctions>();
//   host->convolution = [](const auto& convolution, auto operands, const auto& result) { ... };
//   auto plan = fuseblock::Plan::make(block, "f32[8,64,56,56]", {}, device, {.host = host, .keep_convolutions = true});
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fuseblock/tensor.h"

namespace fuseblock {

// One of the three operations of a convolution, with its operands and its result in order:
enum class ConvolutionPiece : std::uint8_t {
  kForward,     // x, weight and, where there is one, bias -> y
  kGradInput,   // d_y, weight -> d_x
  kGradWeight,  // d_y, x -> d_weight
};

// What is to be computed. Extents are those of the views: x is [N, C, in], y [N, K, out], weight [K, C / groups, filter],
// of a transposed convolution [C, K / groups, filter], bias [K]; linear has no positions. With q an output position and r
// a tap, a convolution reads x at q * stride - pad + r * dilation, a transposed one adds x at q to y there.
struct HostConvolution {
  ConvolutionPiece piece = ConvolutionPiece::kForward;
  std::string operation;  // the forward one: `conv2d`, `conv_transpose3d`, `linear`
  std::string stage;      // as the notation writes it, for messages
  DType dtype = DType::kF32;
  bool transposed = false;
  std::int64_t groups = 1;
  std::int64_t in_channels = 1;  // of the forward one
  std::int64_t out_channels = 1;
  // One number for each position axis, in the order d h w; none for linear.
  std::vector<std::int64_t> stride;
  std::vector<std::int64_t> pad;  // in front
  std::vector<std::int64_t>
      pad_back;  // behind; differs from `pad` where pad=same meets a filter that reaches over an even
                 // number of positions
  std::vector<std::int64_t> dilation;
  std::vector<std::int64_t> output_pad;  // of a transposed convolution
  // What padding holds: `zeros`, `reflect`, `replicate`, `circular`.
  std::string pad_mode = "zeros";
  // Arithmetic operations, a multiply-add counting two.
  double operations = 0;
};

struct HostFunctions {
  // Computes a piece. All views have the dtype of the piece and any strides; the result's elements do not overlap, and
  // all of them must be written. Called on the thread that runs the plan, by several at once where several run plans.
  // What it throws leaves Plan::run as it is. On a GPU the views are of its memory, its context is current, and the work
  // belongs into the stream that Arguments names.
  std::function<void(const HostConvolution& convolution, std::span<const ConstTensorView> operands,
                     const TensorView& result)>
      convolution;
  // Copies the elements of a view into another of the same extents, rounded to its type. A plan on a GPU needs it where an
  // operand is not of the piece's dtype; Plan::make throws NotSupportedError without it. The CPU's converts by itself.
  std::function<void(const ConstTensorView& from, const TensorView& to)> copy;
  // Why a piece cannot be computed; empty where it can. Asked when a plan is made. Without the function all can.
  std::function<std::string(const HostConvolution& convolution)> refuses;
  // What the cost model weighs: operations a second, and seconds of one call beside them. A host that states no rate
  // gets convolutions by PlanOptions::keep_convolutions alone, and those that the engine has no good kernel for.
  double operations_per_second = 0;
  double call_seconds = 0;
  // Operations a second of one piece, where they differ from piece to piece; in place of operations_per_second.
  std::function<double(const HostConvolution& convolution)> rate;
};

}  // namespace fuseblock
