// The kernel `conv_direct`: a convolution, its transpose or a gradient of either by its input, as plain
// arithmetic, one thread an element of the result. It takes every geometry and every type; kernels that have
// less to take are faster.
//
//   gather   result[k][q] = bias[k] + sum over c, r of weight[k][c][r] * input[c][q * stride - pad + r * dilation]
//   scatter  result[k][q] = bias[k] + sum over c, r of weight[c][k][r] * input[c][(q + pad - r * dilation) / stride],
//            where that is whole
//
// The products of one input channel are summed by themselves, so that errors do not grow with the channels.
//
// Before this stand the geometry (kFilter, kStride, kPad, kDilation, each by D, H, W; kGroups, kInChannels,
// kChannels), kGather, kPadMode, Arguments with the extents of the input and of the result, and the tensors
// as input_at, weight_at, bias_at and set_result.

constexpr int kZeros = 0, kReflect = 1, kReplicate = 2, kCircular = 3;

// The coordinate of the input that a tap meets at coordinate q of the result; -1 where it meets none.
__device__ inline int met_by(int q, int tap, int stride, int pad, int dilation, int extent) {
  if (!kGather) {
    const int start = q + pad - tap * dilation;
    return start < 0 || start % stride != 0 || start / stride >= extent ? -1 : start / stride;
  }
  const int i = q * stride - pad + tap * dilation;
  if (i >= 0 && i < extent) return i;
  if (kPadMode == kReflect) return i < 0 ? -i : 2 * (extent - 1) - i;
  if (kPadMode == kReplicate) return i < 0 ? 0 : extent - 1;
  if (kPadMode == kCircular) return i < 0 ? i + extent : i - extent;
  return -1;
}

__device__ inline real value_of(const Arguments& a, long long n, int k, const Spatial& at) {
  constexpr int kGroupIn = kInChannels / kGroups, kGroupOut = kChannels / kGroups;
  const int group = k / kGroupOut;
  real total = bias_at(a, k);
#pragma unroll 1
  for (int c = 0; c < kGroupIn; ++c) {
    const int channel = group * kGroupIn + c;
    real products = 0;
#pragma unroll 1
    for (int r = 0; r < kFilterD; ++r) {
      const int d = met_by(at.d, r, kStrideD, kPadD, kDilationD, (int)a.in_d);
      if (d < 0) continue;
#pragma unroll 1
      for (int s = 0; s < kFilterH; ++s) {
        const int h = met_by(at.h, s, kStrideH, kPadH, kDilationH, (int)a.in_h);
        if (h < 0) continue;
#pragma unroll 4
        for (int t = 0; t < kFilterW; ++t) {
          const int w = met_by(at.w, t, kStrideW, kPadW, kDilationW, (int)a.in_w);
          if (w < 0) continue;
          const real weight =
              kGather ? weight_at(a, k, c, {r, s, t}) : weight_at(a, channel, k % kGroupOut, {r, s, t});
          products += input_at(a, n, channel, {d, h, w}) * weight;
        }
      }
    }
    total += products;
  }
  return total;
}

extern "C" __global__ void __launch_bounds__(256, 3) conv_direct(const __grid_constant__ Arguments a) {
  const Count width = (Count)a.out_w, height = (Count)a.out_h, depth = (Count)a.out_d;
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < a.elements;
       i += (long long)gridDim.x * 256) {
    Count rest = (Count)i;
    Spatial at;
    at.w = (int)(rest % width);
    rest /= width;
    at.h = (int)(rest % height);
    rest /= height;
    at.d = (int)(rest % depth);
    rest /= depth;
    const int k = (int)(rest % kChannels);
    const long long n = rest / kChannels;
    set_result(a, n, k, at, value_of(a, n, k, at));
  }
}
