"""Model with its blocks as CUDA kernels: `ModelNew`, in place of `Model`.

Written by `python -m fuseblock.export`; it needs PyTorch alone. Compiled at the first call on a GPU.
Block: hardswish | group_norm(4) | mean(d,h,w), on f32[1024,16,13,29,29], for sm_90a.
Forward, 1 kernel, plain: 16384 blocks of 256 threads, units of 4 channels, 4096 in all, 1 block a channel
  1  sweep over [n,16,d,h,w]: load x; hardswish = select(x <= -3, 0 * x, select(x >= 3, x, x * (x + 3) / 6))
      -> moments of hardswish for each n,c
  2  finalise: rstd(hardswish) = 1 / sqrt(squares(hardswish) / 43732 + 1e-05);
      mean = (channel_mean(hardswish) - mean(hardswish)) * (rstd(hardswish) * weight) + bias
      -> output mean, saved.group_norm.mean, saved.group_norm.rstd, saved.hardswish.mean
Backward, 1 kernel, plain: 16384 blocks of 256 threads, units of 4 channels, 4096 in all, 1 block a channel
  1  finalise: part9 = d_mean / 10933; part10 = part9 * weight; mean2 = sum(part10) / 4;
      part16 = (saved.hardswish.mean - saved.group_norm.mean) * saved.group_norm.rstd;
      mean3 = sum(part10 * part16) / 4; d_weight = sum(part9 * part16) / 1024 * 11195392;
      d_bias = sum(part9) * 10933 -> output d_weight, d_bias
  2  sweep over [n,16,d,h,w]: load x; hardswish as before;
      group_norm_hat = (hardswish - saved.group_norm.mean) * saved.group_norm.rstd;
      d_hardswish = saved.group_norm.rstd * (part10 - mean2 - group_norm_hat * mean3);
      d_x = select(x <= -3, 0, select(x >= 3, d_hardswish, d_hardswish * ((x + 3 + x) / 6))) -> output d_x
The kernels take any extents along n, d, h, w with d * h * w < 1000000000.

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
    return [torch.rand(1024, 3, 16, 32, 32)]


def get_init_inputs():
    return [3, 16, 4]


CUDA = r"""
constexpr int kThreads = 256;

// Takes the elements of a share, which a block or some threads of it have: a channel, a part of one, or more.
// `program` gets those of the inputs at one place, 4 apart; what it makes of them goes to `output`, if any.
template <int kInputs, class Program>
__device__ inline void sweep(long long begin, long long end, const float* const (&inputs)[kInputs],
                             float* output, Program program) {
  constexpr int kBatch = kInputs == 1 ? 4 : 2;
  const long long first = min((begin + 3) / 4 * 4, end);
  const int vectors = (int)((end - first) / 4), thread = threadIdx.x;
  for (int start = 0; start < vectors; start += kBatch * kThreads) {
    alignas(16) float loaded[kBatch][kInputs][4], results[4];
    for (int b = 0; b < kBatch; ++b)
      for (int k = 0; k < kInputs; ++k) {
        const int at = start + b * kThreads + thread;
        const float4* from = (const float4*)(inputs[k] + first) + at;
        if (at < vectors) *(float4*)loaded[b][k] = *from;
      }
    __syncwarp();  // all loads have begun before the first is used
    for (int b = 0; b < kBatch; ++b) {
      const int at = start + b * kThreads + thread;
      if (at >= vectors) break;
      for (int i = 0; i < 4; ++i) program(loaded[b][0] + i, results[i]);
      if (output) ((float4*)(output + first))[at] = *(float4*)results;
    }
  }
  // the elements around them one by one
  const long long edge = (begin + thread < first ? begin : begin + 4 * vectors) + thread;
  float loaded[kInputs][4], result;
  if (edge >= end) return;
  for (int k = 0; k < kInputs; ++k) loaded[k][0] = inputs[k][edge];
  program(loaded[0], result);
  if (output) output[edge] = result;
}

// A sum over the lanes of a warp; the order of sums is fixed.
template <class Number>
__device__ inline Number warp_sum(Number x) {
  for (int distance = 1; distance < 32; distance *= 2) x += __shfl_xor_sync(~0u, x, distance);
  return x;
}
// Over the threads of a share.
__device__ inline float share_sum(float x) {
  __shared__ float sums[kThreads / 32];
  __syncthreads();
  sums[threadIdx.x / 32] = warp_sum(x);
  __syncthreads();
  x = 0;
  for (int i = 0; i < kThreads / 32; ++i) x += sums[i];
  return x;
}
// Over the channels of a unit, which a norm takes together: each lane has one.
__device__ inline float unit_sum(float x) { return warp_sum(threadIdx.x % 32 < 4 ? x : 0); }
// Over the blocks of a channel in all samples.
__device__ inline double batch_sum(const float* blocks, int samples, int channels) {
  double sum = 0;
  for (int i = threadIdx.x % 32; i < samples; i += 32) sum += blocks[i * channels];
  return warp_sum(sum);
}

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

// Counts the blocks that come here; true in the last of them, which sees what the others have written.
__device__ inline bool arrive(unsigned int* arrived, unsigned int count) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(arrived, 1u) == count - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

__global__ void __launch_bounds__(kThreads, 6)
    forward(const float* x, const float* weight, const float* bias, float* mean, float* group_norm_mean,
            float* group_norm_rstd, float* hardswish_mean, Moments* blocks_hardswish, unsigned int* arrived,
            long long positions) {
  const int unit = blockIdx.x / 4, own = blockIdx.x % 4, n = unit / 4, first = unit % 4 * 4;
  const int c = first + min((int)threadIdx.x % 32, 3);
  const long long begin = (unit * 4ll + own) * positions, end = begin + positions;
  // Sweep: load x -> moments of hardswish for each n,c
  Moments hardswish_sums;
  sweep(begin, end, {x}, nullptr, [&](const float* in, float&) {
    const float x = in[0];
    hardswish_sums.add(x <= (-3.0f) ? (0.0f * x) : (x >= 3.0f ? x : (x * (x + 3.0f) * 0.16666667f)));
  });
  blocks_hardswish[blockIdx.x] = merged(hardswish_sums, share_sum);
  if (!arrive(arrived + unit, 4)) return;
  const Moments hardswish_c = blocks_hardswish[n * 16 + c];
  const Moments group_hardswish_c = merged(hardswish_c, unit_sum);
  const float rstd_hardswish_c = rsqrtf(group_hardswish_c.squares * (float)(1.0 / (4 * positions)) + 1e-05f);
  if (threadIdx.x == 0) {
    group_norm_mean[unit] = group_hardswish_c.mean;
    group_norm_rstd[unit] = rstd_hardswish_c;
  }
  if (threadIdx.x < 4) {
    mean[n * 16 + c] =
        ((hardswish_c.mean - group_hardswish_c.mean) * (rstd_hardswish_c * weight[c])) + bias[c];
    hardswish_mean[n * 16 + c] = hardswish_c.mean;
  }
}

__global__ void __launch_bounds__(kThreads, 6)
    backward(const float* d_mean, const float* weight, const float* hardswish_mean,
             const float* group_norm_mean, const float* group_norm_rstd, const float* x, float* d_x,
             float* d_weight, float* d_bias, float* batch_part23, float* batch_part9, unsigned int* arrived,
             long long samples, long long positions) {
  const int unit = blockIdx.x / 4, own = blockIdx.x % 4, n = unit / 4, first = unit % 4 * 4;
  const int c = first + min((int)threadIdx.x % 32, 3);
  const long long begin = (unit * 4ll + own) * positions, end = begin + positions;
  const float part9_c = d_mean[n * 16 + c] * (float)(1.0 / positions);
  const float part10_c = part9_c * weight[c];
  const float mean2_c = unit_sum(part10_c) * 0.25f;
  const float part16_c = (hardswish_mean[n * 16 + c] - group_norm_mean[unit]) * group_norm_rstd[unit];
  const float mean3_c = unit_sum(part10_c * part16_c) * 0.25f;
  if (blockIdx.x % 4 == 0 && threadIdx.x < 4) {
    batch_part23[n * 16 + c] = part9_c * part16_c;
    batch_part9[n * 16 + c] = part9_c;
  }
  // Sweep: load x -> output d_x
  const float own_group_norm_mean = group_norm_mean[unit], own_group_norm_rstd = group_norm_rstd[unit];
  const float own_part10 = __shfl_sync(~0u, part10_c, own);
  sweep(begin, end, {x}, d_x, [&](const float* in, float& out) {
    const float x = in[0];
    const float t2 = x <= (-3.0f) ? 1 : 0;
    const float t6 = x >= 3.0f ? 1 : 0;
    const float t7 = x + 3.0f;
    const float t15 = (t2 != 0 ? (0.0f * x) : (t6 != 0 ? x : (x * t7 * 0.16666667f))) - own_group_norm_mean;
    const float t23 = own_group_norm_rstd * (own_part10 - mean2_c - t15 * own_group_norm_rstd * mean3_c);
    out = t2 != 0 ? 0.0f : (t6 != 0 ? t23 : (t23 * ((t7 + x) * 0.16666667f)));
  });
  // Sums over the batch, by the last block that has statistics of these channels: a warp a channel.
  if (blockIdx.x % 4 == 0 && arrive(arrived + unit % 4, samples))
    for (int i = threadIdx.x / 32; i < 4; i += kThreads / 32) {
      const int c = first + i;
      d_weight[c] = (batch_sum(batch_part23 + c, samples, 16) / samples) * (samples * positions);
      d_bias[c] = batch_sum(batch_part9 + c, samples, 16) * positions;
    }
}

// Launches one of the kernels; returns CUDA's error, 0 for none.
extern "C" int launch(int kernel, long long* words, unsigned int blocks, cudaStream_t stream) {
  const void* const kernels[] = {(const void*)forward, (const void*)backward};
  void* parameters[32];
  for (int i = 0; i < 32; ++i) parameters[i] = words + i;
  return cudaLaunchKernel(kernels[kernel], blocks, 256, parameters, 0, stream);
}
"""

KERNELS = ("forward", "backward")


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
    if not x.is_cuda or x.dim() != 5 or torch.is_autocast_enabled() or torch.compiler.is_compiling():
        return False
    n, _, d, h, w = x.shape
    return (
        torch.cuda.get_device_properties(x.device).major >= 8
        and all(t.device == x.device and t.dtype == torch.float32 for t in tensors)
        and [t.shape for t in tensors] == [(n, 16, d, h, w), (16,), (16,)]
        and x.numel() > 0
        and d * h * w < 1000000000
    )


def by_pytorch(x, weight, bias):
    """The block by PyTorch's operators."""
    hardswish = F.hardswish(x)
    group_norm = F.group_norm(hardswish, 4, weight=weight, bias=bias, eps=1e-05)
    return torch.mean(group_norm, dim=[2, 3, 4])


class Block(torch.autograd.Function):
    """The block and its gradients by the kernels."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        x, weight, bias = map(lay_out, (x, weight, bias))
        n, _, d, h, w = x.shape
        mean, group_norm_mean, group_norm_rstd = map(x.new_empty, [(n, 16), (n, 4), (n, 4)])
        hardswish_mean = x.new_empty((n, 16))
        arrived = x.new_zeros(n * 4, dtype=torch.int32)
        blocks_hardswish = x.new_empty((n * 16, 4))
        arguments = [x, weight, bias, mean, group_norm_mean, group_norm_rstd, hardswish_mean]
        arguments += [blocks_hardswish, arrived, d * h * w]
        launch("forward", n * 16, arguments)
        ctx.save_for_backward(x, weight, group_norm_mean, group_norm_rstd, hardswish_mean)
        return mean

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_mean):
        x, weight, group_norm_mean, group_norm_rstd, hardswish_mean = ctx.saved_tensors
        d_mean = lay_out(d_mean)
        n, _, d, h, w = x.shape
        d_x = torch.empty_like(x)
        d_weight, d_bias = map(x.new_empty, [(16,), (16,)])
        arrived = x.new_zeros(4, dtype=torch.int32)
        batch_part23, batch_part9 = x.new_empty((2, n * 16))
        arguments = [d_mean, weight, hardswish_mean, group_norm_mean, group_norm_rstd, x, d_x, d_weight]
        arguments += [d_bias, batch_part23, batch_part9, arrived, n, d * h * w]
        launch("backward", n * 16, arguments)
        return d_x, d_weight, d_bias


def block(x, weight, bias):
    """The block `hardswish | group_norm(4) | mean(d,h,w)`."""
    return (Block.apply if takes(x, weight, bias) else by_pytorch)(x, weight, bias)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, num_groups=4, bias=True):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size, bias=bias)
        self.group_norm = nn.GroupNorm(num_groups, out_channels)
        if repr(self.group_norm) != (exported := "GroupNorm(4, 16, eps=1e-05, affine=True)"):
            raise ValueError(f"group_norm: expected {exported}, as exported, got {self.group_norm}")

    def forward(self, x):
        conv = self.conv(x)
        return block(conv, self.group_norm.weight, self.group_norm.bias)
