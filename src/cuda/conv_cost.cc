#include "cuda/conv_cost.h"

#include "cuda/launch/conv_deep.h"
#include "cuda/launch/conv_roll.h"
#include "plan/slot_memory.h"

namespace fuseblock::cuda {
namespace {

// Shares of a device's rate for the type of the products (strict: of the TF32 rate) that a kernel reaches,
// together with what follows in its sweep.
struct Shares {
  double tf32;
  double strict;
  double bits16;
};

// Measured on an H200 (benchmarks/gpu/bench_conv.py), of the rates that its description has: the smallest
// that reference blocks with few channels reach, conv3d_gn_mean, conv3d_hardswish_gn_mean with filters of 3
// and 4, and conv2d_gn_tanh_hardswish_residual_lse, which convolves twice. `conv` took them where `conv_roll`
// did not.
constexpr Shares kConvShares = {0.15, 0.085, 0.09};
constexpr Shares kRollShares = {0.25, 0.13, 0.125};
// `conv_wide`, there too, less the sweep of `rows` behind it by its bytes: conv2d(128, k=3, pad=1) on
// 1,128,256,256. conv_transpose3d_relu_gn reaches more (0.32, 0.13, 0.24), conv3d(32, k=3, pad=1) on
// 2,32,64,64,64 less (0.19 in tf32, 0.15 in 16 bits).
constexpr Shares kWideShares = {0.25, 0.14, 0.17};
// `conv_deep` takes so many times what its clocks say at the rate of an H200, and longer by its beginning and
// end: conv_transpose3d_relu_gn, conv2d(128, k=3, pad=1) on 1,128,256,256 and conv3d(32, k=3, pad=1) on
// 2,32,64,64,64 there, within 5 % in tf32, strict and bf16.
constexpr double kDeepFactor = 0.73;
constexpr double kDeepEnds = 28e-6;
constexpr double kClockRate = 1.755e9;
// `conv_direct`: of the rate of plain arithmetic. An estimate: loads of single elements bound it.
constexpr double kDirectShare = 0.05;

double share_of(const Shares& shares, DType dtype, Precision precision) {
  if (byte_size(dtype) == 2) return shares.bits16;
  return precision == Precision::kTf32 ? shares.tf32 : shares.strict;
}

// What an operand of a convolution lies in memory as: a program's result is stored first, an input in the type
// that the block gives it. Nothing for what is no tensor of the block.
std::optional<DType> operand_type(const Lowered& lowered, const Part& conv, int operand) {
  const Part& part = lowered.graph[conv.operands[static_cast<std::size_t>(operand)]];
  switch (part.kind) {
    case PartKind::kArgument:
      return part.saved >= 0 ? lowered.saved[static_cast<std::size_t>(part.saved)].type.dtype
                             : lowered.block.type(part.value).dtype;
    case PartKind::kConv:
    case PartKind::kHost:
    case PartKind::kPool: return arithmetic_type(lowered.block.arguments());
    case PartKind::kPointwise: {
      if (operand != 0) return arithmetic_type(lowered.block.arguments());
      const Node& node = lowered.block.block().nodes()[static_cast<std::size_t>(conv.node)];
      return lowered.block.type(node.operand(operand)).dtype;
    }
    default: return std::nullopt;
  }
}

ConvKernel kernel_of(const Lowered& lowered, const Part& part) {
  const DType arithmetic = arithmetic_type(lowered.block.arguments());
  const ConvSum conv = conv_sum(lowered.block, part.node);
  const std::optional<DType> input = operand_type(lowered, part, 0);
  const std::optional<DType> weight = operand_type(lowered, part, 1);
  if (arithmetic != DType::kF32 || conv.geometry.pad_mode != PadMode::kZeros || !input || input != weight)
    return ConvKernel::kDirect;
  return conv_kernel(conv, *input, false, false);
}

// Whether `conv` would be `conv_roll`.
bool rolls(const ConvSum& conv, DType dtype, const DeviceDescription& device, Precision precision) {
  ConvWork work;
  work.conv = conv;
  work.element_bytes = static_cast<int>(byte_size(dtype));
  work.mode = conv_mode(precision, dtype);
  work.wishes = ConvWishes::of_environment();
  return work.wishes.roll.value_or(1) != 0 && conv_rolls(gpu_of(device), work);
}

// The time that `conv_deep` takes in the place of `conv_wide`; 0 where it does not.
double deep_seconds(const ConvSum& conv, DType dtype, const DeviceDescription& device, Precision precision) {
  ConvWideWork work;
  work.conv = conv;
  work.element_bytes = static_cast<int>(byte_size(dtype));
  work.mode = conv_mode(precision, dtype);
  work.dense = true;  // as most tensors lie
  work.wishes = ConvWishes::of_environment();
  const Gpu gpu = gpu_of(device);
  return conv_deepens(gpu, work) ? conv_deep_clocks(gpu, work) * kDeepFactor / kClockRate + kDeepEnds : 0;
}

}  // namespace

OwnConvolution own_convolution(const Lowered& lowered, int number, const DeviceDescription& device,
                               Precision precision) {
  const Part& part = lowered.graph[number];
  if (part.kind != PartKind::kConv) return {};
  const DType arithmetic = arithmetic_type(lowered.block.arguments());
  const DType dtype = operand_type(lowered, part, 0).value_or(arithmetic);
  const double rate = byte_size(dtype) == 2 ? device.f16_rate : device.tf32_rate;
  switch (kernel_of(lowered, part)) {
    case ConvKernel::kConv:
      return rolls(conv_sum(lowered.block, part.node), dtype, device, precision)
                 ? OwnConvolution{"conv_roll", rate * share_of(kRollShares, dtype, precision)}
                 : OwnConvolution{"conv", rate * share_of(kConvShares, dtype, precision)};
    case ConvKernel::kWide: {
      const double deep = deep_seconds(conv_sum(lowered.block, part.node), dtype, device, precision);
      return deep > 0 ? OwnConvolution{"conv_deep", lowered.block.operation_count(part.node) / deep}
                      : OwnConvolution{"conv_wide", rate * share_of(kWideShares, dtype, precision)};
    }
    case ConvKernel::kDirect: break;
  }
  const double plain = arithmetic == DType::kF64 ? device.f64_rate : device.f32_rate;
  return {"conv_direct", plain * kDirectShare, true};
}

}  // namespace fuseblock::cuda
