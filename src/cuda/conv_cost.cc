#include "cuda/conv_cost.h"

#include "plan/slot_memory.h"

namespace fuseblock::cuda {
namespace {

// Shares of a device's rate for the type of the products (strict: of the TF32 rate) that a kernel reaches, together with
// what follows in its sweep.
struct Shares {
  double tf32;
  double strict;
  double bits16;
};

// `conv`: the smaller ones that the reference blocks with few channels reach on an H200 (benchmarks/gpu/bench_conv.py).
constexpr Shares kConvShares = {0.15, 0.085, 0.09};
// `conv_wide`: three quarters of what mma.sync can reach, which is 0.62 of the rate; strict takes three products for one.
constexpr Shares kWideShares = {0.46, 0.15, 0.46};
// `conv_direct`: of the rate of plain arithmetic. An estimate: loads of single elements bound it.
constexpr double kDirectShare = 0.05;

double share_of(const Shares& shares, DType dtype, Precision precision) {
  if (byte_size(dtype) == 2) return shares.bits16;
  return precision == Precision::kTf32 ? shares.tf32 : shares.strict;
}

// What the input of a convolution lies in memory as; nothing where it is a program's result.
std::optional<DType> input_type(const Lowered& lowered, int number, DType arithmetic) {
  const Part& part = lowered.graph[number];
  switch (part.kind) {
    case PartKind::kArgument:
      return part.saved >= 0 ? lowered.saved[static_cast<std::size_t>(part.saved)].type.dtype
                             : lowered.block.type(part.value).dtype;
    case PartKind::kConv:
    case PartKind::kHost:
    case PartKind::kPool: return arithmetic;
    default: return std::nullopt;
  }
}

ConvKernel kernel_of(const Lowered& lowered, const Part& part) {
  const DType arithmetic = arithmetic_type(lowered.block.arguments());
  const ConvSum conv = conv_sum(lowered.block, part.node);
  const std::optional<DType> input = input_type(lowered, part.operands[0], arithmetic);
  const std::optional<DType> weight = input_type(lowered, part.operands[1], arithmetic);
  if (arithmetic != DType::kF32 || conv.geometry.pad_mode != PadMode::kZeros || !input || input != weight)
    return ConvKernel::kDirect;
  return conv_kernel(conv, *input, false, false);
}

}  // namespace

OwnConvolution own_convolution(const Lowered& lowered, int number, const DeviceDescription& device,
                               Precision precision) {
  const Part& part = lowered.graph[number];
  if (part.kind != PartKind::kConv) return {};
  const DType arithmetic = arithmetic_type(lowered.block.arguments());
  const DType dtype = input_type(lowered, part.operands[0], arithmetic).value_or(arithmetic);
  const double rate = byte_size(dtype) == 2 ? device.f16_rate : device.tf32_rate;
  switch (kernel_of(lowered, part)) {
    case ConvKernel::kConv: return {"conv", rate * share_of(kConvShares, dtype, precision)};
    case ConvKernel::kWide: return {"conv_wide", rate * share_of(kWideShares, dtype, precision)};
    case ConvKernel::kDirect: break;
  }
  const double plain = arithmetic == DType::kF64 ? device.f64_rate : device.f32_rate;
  return {"conv_direct", plain * kDirectShare, true};
}

}  // namespace fuseblock::cuda
