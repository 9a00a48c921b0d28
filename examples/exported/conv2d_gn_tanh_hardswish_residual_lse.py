"""Model with its blocks as CUDA kernels: `ModelNew`, in place of `Model`.

Written by `python -m fuseblock.export`; it needs PyTorch alone. Compiled at the first call on a GPU.
Block: group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim), on f32[128,64,126,126], for sm_90a.
Forward, 2 kernels, plain: 2048 blocks of 256 threads, units of 4 channels, 2048 in all, a block each;
  plain_channels: 2048 blocks of 256 threads, a thread for 4 positions with all 64 channels, 4 at a time
  1  sweep over [n,64,h,w]: load x -> moments of x for each n,c
  2  finalise: rstd(x) = 1 / sqrt(squares(x) / 63504 + 1e-05)
      -> output saved.group_norm.mean, saved.group_norm.rstd
  3  sweep over [n,64,h,w]: load x; group_norm = (x - mean(x)) * (rstd(x) * weight) + bias;
      tanh = tanh(group_norm);
      hardswish = select(tanh <= -3, 0 * tanh, select(tanh >= 3, tanh, tanh * (tanh + 3) / 6));
      add = hardswish + x -> max and sum of exp of add over c;
      logsumexp = select(abs(max(add)) == inf, max(add), max(add) + log(sum_exp(add))) -> output logsumexp
Backward, 1 kernel, plain: 2048 blocks of 256 threads, units of 4 channels, 2048 in all, a block each
  1  sweep over [n,64,h,w]: load x;
      group_norm = (x - saved.group_norm.mean) * (saved.group_norm.rstd * weight) + bias;
      tanh, hardswish, add as before; d_add = d_logsumexp * exp(add - logsumexp);
      d_tanh = select(tanh <= -3, 0, select(tanh >= 3, d_add, d_add * ((tanh + 3 + tanh) / 6)));
      d_group_norm = d_tanh * (1 - tanh(group_norm) * tanh(group_norm));
      group_norm_hat = (x - saved.group_norm.mean) * saved.group_norm.rstd;
      value4 = d_group_norm * group_norm_hat -> sums of d_group_norm, value4 for each n,c
  2  finalise: mean = sum(channel_sum(d_group_norm) / 15876 * weight) / 4;
      mean2 = sum(weight * (channel_sum(value4) / 15876)) / 4 -> output d_weight, d_bias
  3  sweep over [n,64,h,w]: load x; group_norm to group_norm_hat as before;
      value3 = saved.group_norm.rstd * (d_group_norm * weight - mean - group_norm_hat * mean2);
      d_x = d_add + value3 -> output d_x
The kernels take any extents along n, h, w with h * w % 4 == 0 and h * w < 1000000000.

Notation: n, c, d, h, w are samples, channels and positions; mean(v), squares(v), rstd(v) the mean of v over
what a norm takes together, the sum of squared deviations from it, 1 / sqrt(variance + eps); d_v is the
gradient by v. A sweep is one pass over all elements, a finalise step works on statistics.
By PyTorch's operators: the CPU, other dtypes, autocast, torch.compile, GPUs before compute capability 8.0 or
with less shared memory. Other layouts are copied first. Left as it was: self.conv (kept).
"""

import ctypes
import functools
import hashlib
import inspect

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_inputs():
    return [torch.rand(128, 8, 128, 128)]


def get_init_inputs():
    return [8, 64, 3, 16]


CUDA = r"""
constexpr int kThreads = 256, kWidth = 4, kBatch = 4, kChannels = 64;

// Takes the elements of a share, which a block or some threads of it have: a channel, a part of one, or more.
// `program` gets those of the inputs at one place, 4 apart; what it makes of them goes to `output`, if any.
template <int kSharers, int kInputs, class Program>
__device__ inline void sweep(long long begin, long long end, const float* const (&inputs)[kInputs],
                             float* output, Program program) {
  constexpr int kBatch = kInputs == 1 ? 4 : 2;
  const int vectors = (int)((end - begin) / 4), thread = threadIdx.x % kSharers;
  for (int start = 0; start < vectors; start += kBatch * kSharers) {
    alignas(16) float loaded[kBatch][kInputs][4], results[4];
    for (int b = 0; b < kBatch; ++b)
      for (int k = 0; k < kInputs; ++k) {
        const int at = start + b * kSharers + thread;
        const float4* from = (const float4*)(inputs[k] + begin) + at;
        if (at < vectors) *(float4*)loaded[b][k] = *from;
      }
    __syncwarp();  // all loads have begun before the first is used
    for (int b = 0; b < kBatch; ++b) {
      const int at = start + b * kSharers + thread;
      if (at >= vectors) break;
      for (int i = 0; i < 4; ++i) program(loaded[b][0] + i, results[i]);
      if (output) ((float4*)(output + begin))[at] = *(float4*)results;
    }
  }
}

// A sum over the lanes of a warp; the order of sums is fixed.
template <class Number>
__device__ inline Number warp_sum(Number x) {
  for (int distance = 1; distance < 32; distance *= 2) x += __shfl_xor_sync(~0u, x, distance);
  return x;
}
// Over the threads of a share.
template <int kSharers>
__device__ inline float share_sum(float x) {
  __shared__ float sums[kThreads / 32];
  __syncthreads();
  sums[threadIdx.x / 32] = warp_sum(x);
  __syncthreads();
  x = 0;
  for (int i = 0; i < kSharers / 32; ++i) x += sums[threadIdx.x / kSharers * (kSharers / 32) + i];
  return x;
}
// Over the channels of a unit, which a norm takes together: each lane has one.
__device__ inline float unit_sum(float x) { return warp_sum(threadIdx.x % 32 < 4 ? x : 0); }

// Sums of deviations from `mean` and of their squares: a variance is never a difference of two large numbers.
// A thread's `mean` is its first element; where that is far from the mean, so is the variance large.
struct Moments {
  float mean = 0, rest = 0, squares = 0, count = 0;
  __device__ void add(float value) {
    if (count == 0) mean = value;
    const float distance = value - mean;
    rest += distance;
    squares += distance * distance;
    count += 1;
  }
};

// Those of all parts, of which each thread has one and `sum` is over all: deviations of means count, too.
template <class Sum>
__device__ inline Moments merged(const Moments& own, Sum sum) {
  const float shift = own.count == 0 ? 0 : own.rest / own.count, near = own.mean + shift;
  const float count = sum(own.count), weight = own.count / count, rough = sum(near * weight);
  const float mean = rough + sum((near - rough) * weight), distance = near - mean;
  return {mean, 0, sum(own.squares - own.rest * shift + own.count * distance * distance), count};
}

__global__ void __launch_bounds__(kThreads, 6)
    forward_1(const float* x, float* group_norm_mean, float* group_norm_rstd, long long positions) {
  const int unit = blockIdx.x;
  const long long begin = unit * 4ll * positions, end = begin + 4 * positions;
  // Sweep: load x -> moments of x for each n,c
  Moments x_sums;
  sweep<kThreads>(begin, end, {x}, nullptr, [&](const float* in, float&) { x_sums.add(in[0]); });
  const Moments group_x = merged(x_sums, share_sum<kThreads>);
  const float rstd_x_c = rsqrtf(group_x.squares * (float)(1.0 / (4 * positions)) + 1e-05f);
  if (threadIdx.x == 0) {
    group_norm_mean[unit] = group_x.mean;
    group_norm_rstd[unit] = rstd_x_c;
  }
}

// The largest of the values at a position, and the sum of exp(value - largest).
// A thread has kWidth neighbouring positions and takes kBatch of their channels at a time.
struct ExpSum {
  // The least number: nothing else is below it but what counts for nothing.
  float largest = -3.4028235e38f, sum = 0;
  __device__ void add(const float (&values)[kBatch]) {
    const float before = largest;
    for (int b = 0; b < kBatch; ++b)
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(largest), "f"(values[b]));
    const float base = fabsf(largest) == __int_as_float(0x7f800000) ? 0.0f : largest;  // never inf - inf
    sum *= expf(before - base);
    for (int b = 0; b < kBatch; ++b) sum += expf(values[b] - base);
  }
};

__global__ void __launch_bounds__(kThreads, 4)
    forward_2(const float* weight, const float* bias, const float* group_norm_mean,
              const float* group_norm_rstd, const float* x, float* logsumexp, long long blocks,
              long long positions) {
  const int n = blockIdx.x / blocks, block = blockIdx.x % blocks;
  // Threads behind the last positions do these, too.
  const int position = min((int)(block * kThreads + threadIdx.x) * kWidth, (int)positions - kWidth);
  struct Channel {
    float weight, bias, group_norm_mean, group_norm_rstd;
  };
  __shared__ Channel channels[kChannels];
  for (int c = threadIdx.x; c < kChannels; c += kThreads)
    channels[c] = {weight[c], bias[c], group_norm_mean[n * 16 + c / 4], group_norm_rstd[n * 16 + c / 4]};
  __syncthreads();
  // Sweep: load x -> max and sum of exp of add over c
  const long long begin = n * 64 * positions + position;
  ExpSum add_sums[kWidth];
  for (int first = 0; first < kChannels; first += kBatch) {
    alignas(16) float xs[kBatch][kWidth], values[kWidth][kBatch];
    for (int b = 0; b < kBatch; ++b) *(float4*)xs[b] = *(const float4*)(x + begin + (first + b) * positions);
    __syncwarp();  // all loads have begun before the first is used
    for (int b = 0; b < kBatch; ++b)
      for (int i = 0; i < kWidth; ++i) {
        const float x = xs[b][i];
        const Channel& channel = channels[first + b];
        const float t7 = (x - channel.group_norm_mean) * (channel.group_norm_rstd * channel.weight);
        const float t9 = tanhf(t7 + channel.bias);
        values[i][b] = t9 * (t9 + 3.0f) * 0.16666667f + x;
      }
    for (int i = 0; i < kWidth; ++i) add_sums[i].add(values[i]);
  }
  // logsumexp = select(abs(max(add)) == inf, max(add), max(add) + log(sum_exp(add)))
  for (int i = 0; i < kWidth; ++i) {
    const float largest = add_sums[i].largest, sum = add_sums[i].sum;
    const float t7 = fabsf(largest) == (__int_as_float(0x7f800000)) ? largest : (largest + logf(sum));
    logsumexp[n * positions + position + i] = t7;
  }
}

__global__ void __launch_bounds__(kThreads, 4)
    backward(const float* weight, const float* bias, const float* group_norm_mean,
             const float* group_norm_rstd, const float* x, const float* d_logsumexp, const float* logsumexp,
             float* d_x, float* blocks_d_group_norm, float* blocks_value4, long long positions) {
  const int unit = blockIdx.x, own = threadIdx.x / 64, n = unit / 16, first = unit % 16 * 4;
  const int c = first + min((int)threadIdx.x % 32, 3);
  const long long begin = (unit * 4ll + own) * positions, end = begin + positions;
  const long long before = begin - n * positions;  // of what is one for all channels
  const float own_weight = weight[first + own], own_bias = bias[first + own];
  // Sweep: load x -> sum of d_group_norm for each n,c; sum of value4 for each n,c
  const float own_group_norm_mean = group_norm_mean[unit], own_group_norm_rstd = group_norm_rstd[unit];
  float sum_d_group_norm = 0, sum_value4 = 0;
  sweep<64>(begin, end, {x, d_logsumexp - before, logsumexp - before}, nullptr, [&](const float* in, float&) {
    const float x = in[0], d_logsumexp = in[4], logsumexp = in[8];
    const float t6 = x - own_group_norm_mean;
    const float t10 = tanhf(t6 * (own_group_norm_rstd * own_weight) + own_bias);
    const float t12 = t10 + 3.0f;
    const float t23 =
        d_logsumexp * expf(t10 * t12 * 0.16666667f + x - logsumexp) * ((t12 + t10) * 0.16666667f);
    const float t27 = t23 * (1.0f - t10 * t10);
    sum_d_group_norm += t27;
    sum_value4 += t27 * (t6 * own_group_norm_rstd);
  });
  blocks_d_group_norm[unit * 4 + own] = share_sum<64>(sum_d_group_norm);
  blocks_value4[unit * 4 + own] = share_sum<64>(sum_value4);
  __syncthreads();
  const float sum_d_group_norm_c = blocks_d_group_norm[n * 64 + c];
  const float sum_value4_c = blocks_value4[n * 64 + c];
  const float mean_c = unit_sum((sum_d_group_norm_c * (float)(1.0 / positions)) * weight[c]) * 0.25f;
  const float mean2_c = unit_sum(weight[c] * (sum_value4_c * (float)(1.0 / positions))) * 0.25f;
  // Sweep: load x -> output d_x
  sweep<64>(begin, end, {x, d_logsumexp - before, logsumexp - before}, d_x, [&](const float* in, float& out) {
    const float x = in[0], d_logsumexp = in[4], logsumexp = in[8];
    const float t6 = x - own_group_norm_mean;
    const float t10 = tanhf(t6 * (own_group_norm_rstd * own_weight) + own_bias);
    const float t12 = t10 + 3.0f;
    const float t20 = d_logsumexp * expf(t10 * t12 * 0.16666667f + x - logsumexp);
    const float t32 = t20 * ((t12 + t10) * 0.16666667f) * (1.0f - t10 * t10) * own_weight - mean_c;
    out = t20 + own_group_norm_rstd * (t32 - t6 * own_group_norm_rstd * mean2_c);
  });
}

// Launches one of the kernels; returns CUDA's error, 0 for none.
extern "C" int launch(int kernel, long long* words, unsigned int blocks, cudaStream_t stream) {
  const void* const kernels[] = {(const void*)forward_1, (const void*)forward_2, (const void*)backward};
  void* parameters[32];
  for (int i = 0; i < 32; ++i) parameters[i] = words + i;
  return cudaLaunchKernel(kernels[kernel], blocks, 256, parameters, 0, stream);
}
"""

KERNELS = ("forward_1", "forward_2", "backward")


def lay_out(tensor):
    """The tensor as the kernels take it: dense, and aligned to 16 bytes. Other views are copied."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


@functools.cache
def library():
    """The compiled kernels. PyTorch builds them at the first call, one process at a time, and keeps them."""
    from torch.utils.cpp_extension import load_inline

    bare = "no_implicit_headers"  # without torch's headers it builds in seconds
    options = {bare: True} if bare in inspect.signature(load_inline).parameters else {}
    name = f"fuseblock_export_{hashlib.sha256(CUDA.encode()).hexdigest()[:16]}"
    return ctypes.CDLL(load_inline(name, "", CUDA, is_python_module=False, **options))


def launch(kernel, blocks, arguments):
    """Launches a kernel: addresses of tensors and numbers are its parameters."""
    words = [each.data_ptr() if torch.is_tensor(each) else each for each in arguments]
    packed = (ctypes.c_int64 * len(words))(*words)
    with torch.cuda.device(arguments[0].device):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        error = library().launch(KERNELS.index(kernel), packed, blocks, stream)
    if error != 0:
        raise RuntimeError(f"{kernel}: the launch failed with CUDA error {error}")


def takes(x, weight, bias):
    """Whether the kernels take these tensors."""
    tensors = (x, weight, bias)
    if not x.is_cuda or x.dim() != 4 or torch.is_autocast_enabled() or torch.compiler.is_compiling():
        return False
    n, _, h, w = x.shape
    return (
        torch.cuda.get_device_properties(x.device).major >= 8
        and all(t.device == x.device and t.dtype == torch.float32 for t in tensors)
        and [t.shape for t in tensors] == [(n, 64, h, w), (64,), (64,)]
        and x.numel() > 0
        and h * w % 4 == 0
        and h * w < 1000000000
    )


def by_pytorch(x, weight, bias):
    """The block by PyTorch's operators."""
    group_norm = F.group_norm(x, 16, weight=weight, bias=bias, eps=1e-05)
    tanh = torch.tanh(group_norm)
    hardswish = F.hardswish(tanh)
    add = x + hardswish
    return torch.logsumexp(add, dim=1, keepdim=True)


class Block(torch.autograd.Function):
    """The block and its gradients by the kernels."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        x, weight, bias = map(lay_out, (x, weight, bias))
        n, _, h, w = x.shape
        logsumexp, group_norm_mean, group_norm_rstd = map(x.new_empty, [(n, 1, h, w), (n, 16), (n, 16)])
        launch("forward_1", n * 16, [x, group_norm_mean, group_norm_rstd, h * w])
        blocks = -(-h * w // 1024)
        arguments = [weight, bias, group_norm_mean, group_norm_rstd, x, logsumexp, blocks, h * w]
        launch("forward_2", n * blocks, arguments)
        ctx.save_for_backward(x, weight, bias, group_norm_mean, group_norm_rstd, logsumexp)
        return logsumexp

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_logsumexp):
        x, weight, bias, group_norm_mean, group_norm_rstd, logsumexp = ctx.saved_tensors
        d_logsumexp = lay_out(d_logsumexp)
        n, _, h, w = x.shape
        d_x = torch.empty_like(x)
        blocks_value4, blocks_d_group_norm = sums = x.new_empty((2, n, 64))
        arguments = [weight, bias, group_norm_mean, group_norm_rstd, x, d_logsumexp, logsumexp, d_x]
        arguments += [blocks_d_group_norm, blocks_value4, h * w]
        launch("backward", n * 16, arguments)
        d_weight, d_bias = sums.sum(1)  # over the batch
        return d_x, d_weight, d_bias


def block(x, weight, bias):
    """The block `group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim)`."""
    return (Block.apply if takes(x, weight, bias) else by_pytorch)(x, weight, bias)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, groups, eps=1e-5):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.group_norm = nn.GroupNorm(groups, out_channels, eps=eps)
        self.tanh = nn.Tanh()
        self.hard_swish = nn.Hardswish()
        if repr(self.group_norm) != (exported := "GroupNorm(16, 64, eps=1e-05, affine=True)"):
            raise ValueError(f"group_norm: expected {exported}, as exported, got {self.group_norm}")

    def forward(self, x):
        conv = self.conv(x)
        return block(conv, self.group_norm.weight, self.group_norm.bias)
