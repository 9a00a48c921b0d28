"""Model with its blocks as CUDA kernels: `ModelNew`, in place of `Model`.

Written by `python -m fuseblock.export`; it needs PyTorch alone. Compiled at the first call on a GPU.
Block: group_norm(32, eps=1e-06) | silu, on f32[1,512,256,256], for sm_90a.
Forward, 1 kernel, plain: 512 blocks of 256 threads, 56 kB of shared memory each, units of 16 channels, 32 in
      all, 4 blocks a channel, 8 units at a time, 85 % of them in shared memory for later sweeps
  1  sweep over [n,512,h,w]: load x -> moments of x for each n,c
  2  finalise: rstd(x) = 1 / sqrt(squares(x) / 1048576 + 1e-06)
      -> output saved.group_norm.mean, saved.group_norm.rstd
  3  sweep over [n,512,h,w]: load x; group_norm = (x - mean(x)) * (rstd(x) * weight) + bias;
      silu = group_norm * sigmoid(group_norm) -> output silu
Backward, 1 kernel, plain: 512 blocks of 256 threads, 56 kB of shared memory each, units of 16 channels, 32 in
      all, 8 blocks a channel, 4 units at a time, 85 % of them in shared memory for later sweeps
  1  sweep over [n,512,h,w]: load x, d_silu;
      group_norm = (x - saved.group_norm.mean) * (saved.group_norm.rstd * weight) + bias;
      d_group_norm = d_silu * (sigmoid(group_norm) + group_norm * (sigmoid(group_norm) * (1 -
        sigmoid(group_norm))));
      group_norm_hat = (x - saved.group_norm.mean) * saved.group_norm.rstd;
      value4 = d_group_norm * group_norm_hat -> sums of d_group_norm, value4 for each n,c
  2  finalise: mean = sum(channel_sum(d_group_norm) / 65536 * weight) / 16;
      mean2 = sum(weight * (channel_sum(value4) / 65536)) / 16 -> output d_weight, d_bias
  3  sweep over [n,512,h,w]: load x, d_silu; group_norm, d_group_norm, group_norm_hat as before;
      d_x = saved.group_norm.rstd * (d_group_norm * weight - mean - group_norm_hat * mean2) -> output d_x
The kernels take any extents along n, h, w with h * w % 4 == 0 and multiprocessors * 4 >= 128 and 32 <= h * w
< 1000000000.

Notation: n, c, d, h, w are samples, channels and positions; mean(v), squares(v), rstd(v) the mean of v over
what a norm takes together, the sum of squared deviations from it, 1 / sqrt(variance + eps); d_v is the
gradient by v. A sweep is one pass over all elements, a finalise step works on statistics. multiprocessors is
how many the GPU has.
By PyTorch's operators: the CPU, other dtypes, autocast, torch.compile, GPUs before compute capability 8.0 or
with less shared memory. Other layouts are copied first.
"""

import ctypes
import functools
import hashlib
import inspect

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_inputs():
    return [torch.rand(1, 512, 256, 256)]


def get_init_inputs():
    return [512, 32]


CUDA = r"""
constexpr int kThreads = 256, kKept = 3520;

// A vector on its way to shared memory.
__device__ inline void copy(float4* to, const float* from) {
  const unsigned int place = (unsigned int)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}

// Takes the elements of a share, which a block or some threads of it have: a channel, a part of one, or more.
// `program` gets those of the inputs at one place, 4 apart; what it makes of them goes to `output`, if any.
template <int kInputs, class Program>
__device__ inline void sweep(long long begin, long long end, const float* const (&inputs)[kInputs],
                             float* output, float4* kept, long long next, Program program) {
  constexpr int kBatch = kInputs == 1 ? 4 : 2;
  const int vectors = (int)((end - begin) / 4), thread = threadIdx.x;
  asm volatile("cp.async.wait_all;" ::: "memory");
  for (int start = 0; start < vectors; start += kBatch * kThreads) {
    alignas(16) float loaded[kBatch][kInputs][4], results[4];
    for (int b = 0; b < kBatch; ++b)
      for (int k = 0; k < kInputs; ++k) {
        const int at = start + b * kThreads + thread;
        const float4* from = (const float4*)(inputs[k] + begin) + at;
        if (at < kKept / kInputs) from = kept + k * (kKept / kInputs) + at;
        if (at < vectors) *(float4*)loaded[b][k] = *from;
      }
    __syncwarp();  // all loads have begun before the first is used
    for (int b = 0; b < kBatch; ++b) {
      const int at = start + b * kThreads + thread;
      if (at >= vectors) break;
      for (int i = 0; i < 4; ++i) program(loaded[b][0] + i, results[i]);
      if (output) ((float4*)(output + begin))[at] = *(float4*)results;
      if (next >= 0 && at < kKept / kInputs)  // room for the next share's
        for (int k = 0; k < kInputs; ++k) copy(kept + k * (kKept / kInputs) + at, inputs[k] + next + 4 * at);
    }
  }
}

// Begins to bring the first kKept vectors of a share, of all inputs, to shared memory; each thread its own.
template <int kInputs>
__device__ inline void keep(long long begin, long long end, const float* const (&from)[kInputs], float4* to) {
  for (int at = threadIdx.x; at < min((int)((end - begin) / 4), kKept / kInputs); at += kThreads)
    for (int k = 0; k < kInputs; ++k) copy(to + k * (kKept / kInputs) + at, from[k] + begin + 4 * at);
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
__device__ inline float unit_sum(float x) { return warp_sum(threadIdx.x % 32 < 16 ? x : 0); }
// Over the blocks of a channel.
__device__ inline float channel_sum(const float* blocks) {
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += blocks[i];
  return sum;
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

// Waits until `count` blocks have come here; all see then what the others have written.
__device__ inline void meet(unsigned int* arrived, unsigned int count) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    while (*(volatile unsigned int*)arrived < count) __nanosleep(64);
    __threadfence();
  }
  __syncthreads();
}

// The primitives of formulas that are not operators of the language. Those without a name of their own in the
// compiler's library are spelled out; all are within a few ulp over the whole range, with exact limits.

// 1 / (1 + exp(-x)). The quotient is rcp.approx, within 1 ulp. Where results are rounded to 16 bits, exp is ex2.approx of a
// rounded product, whose error grows to 1e-5 of the value at the ends of the range, and what is below 1e-38 is 0.
__device__ inline float sigmoid(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(1.0f + expf(-x)));
  return y;
}

__global__ void __launch_bounds__(kThreads, 4)
    forward(const float* weight, const float* bias, const float* x, float* group_norm_mean,
            float* group_norm_rstd, float* silu, Moments* blocks_x, unsigned int* arrived,
            long long positions, long long units) {
  extern __shared__ float4 kept[];
  const int own = blockIdx.x % 64 / 4, part = blockIdx.x % 4, teams = gridDim.x / 64;
  const long long from = part * positions / 4 / 4 * 4, size = (part + 1) * positions / 4 / 4 * 4 - from;
  long long begin = (blockIdx.x / 64 * 16ll + own) * positions + from, stride = teams * 16 * positions;
  __nanosleep(4 * blockIdx.x / gridDim.x * 3750);  // some teams read while others wait
  keep(begin, begin + size, {x}, kept);
  for (int unit = blockIdx.x / 64; unit < units; unit += teams, begin += stride) {
    const int first = unit % 32 * 16;
    const long long end = begin + size, next = unit + teams < units ? begin + stride : -1;
    const float own_weight = weight[first + own], own_bias = bias[first + own];
    // Sweep: load x -> moments of x for each n,c
    Moments x_sums;
    sweep(begin, end, {x}, nullptr, kept, -1, [&](const float* in, float&) { x_sums.add(in[0]); });
    blocks_x[unit * 64 + blockIdx.x % 64] = merged(x_sums, share_sum);
    meet(arrived + unit, 64);
    const Moments group_x =
        merged(threadIdx.x < 64 ? blocks_x[unit * 64 + threadIdx.x] : Moments(), share_sum);
    const float rstd_x_c = rsqrtf(group_x.squares * (float)(1.0 / (16 * positions)) + 1e-06f);
    if (blockIdx.x % 64 == 0 && threadIdx.x == 0) {
      group_norm_mean[unit] = group_x.mean;
      group_norm_rstd[unit] = rstd_x_c;
    }
    // Sweep: load x -> output silu
    sweep(begin, end, {x}, silu, kept, next, [&](const float* in, float& out) {
      const float x = in[0];
      const float t8 = (x - group_x.mean) * (rstd_x_c * own_weight) + own_bias;
      out = t8 * sigmoid(t8);
    });
  }
}

__global__ void __launch_bounds__(kThreads, 4)
    backward(const float* weight, const float* bias, const float* group_norm_mean,
             const float* group_norm_rstd, const float* x, const float* d_silu, float* d_x,
             float* blocks_d_group_norm, float* blocks_value4, unsigned int* arrived, long long positions,
             long long units) {
  extern __shared__ float4 kept[];
  const int own = blockIdx.x % 128 / 8, part = blockIdx.x % 8, teams = gridDim.x / 128;
  const long long from = part * positions / 4 / 8 * 4, size = (part + 1) * positions / 4 / 8 * 4 - from;
  long long begin = (blockIdx.x / 128 * 16ll + own) * positions + from, stride = teams * 16 * positions;
  __nanosleep(4 * blockIdx.x / gridDim.x * 3750);  // some teams read while others wait
  keep(begin, begin + size, {x, d_silu}, kept);
  for (int unit = blockIdx.x / 128; unit < units; unit += teams, begin += stride) {
    const int n = unit / 32, first = unit % 32 * 16, c = first + min((int)threadIdx.x % 32, 15);
    const long long end = begin + size, next = unit + teams < units ? begin + stride : -1;
    const float own_weight = weight[first + own], own_bias = bias[first + own];
    // Sweep: load x, d_silu -> sum of d_group_norm for each n,c; sum of value4 for each n,c
    const float own_group_norm_mean = group_norm_mean[unit], own_group_norm_rstd = group_norm_rstd[unit];
    float sum_d_group_norm = 0, sum_value4 = 0;
    sweep(begin, end, {x, d_silu}, nullptr, kept, -1, [&](const float* in, float&) {
      const float x = in[0], d_silu = in[4];
      const float t6 = x - own_group_norm_mean;
      const float t9 = t6 * (own_group_norm_rstd * own_weight) + own_bias;
      const float t10 = sigmoid(t9);
      const float t16 = d_silu * (t10 + t9 * (t10 * (1.0f - t10)));
      sum_d_group_norm += t16;
      sum_value4 += t16 * (t6 * own_group_norm_rstd);
    });
    blocks_d_group_norm[unit * 128 + blockIdx.x % 128] = share_sum(sum_d_group_norm);
    blocks_value4[unit * 128 + blockIdx.x % 128] = share_sum(sum_value4);
    meet(arrived + unit, 128);
    const float sum_d_group_norm_c = channel_sum(blocks_d_group_norm + (n * 512 + c) * 8);
    const float sum_value4_c = channel_sum(blocks_value4 + (n * 512 + c) * 8);
    const float mean_c = unit_sum((sum_d_group_norm_c * (float)(1.0 / positions)) * weight[c]) * 0.0625f;
    const float mean2_c = unit_sum(weight[c] * (sum_value4_c * (float)(1.0 / positions))) * 0.0625f;
    // Sweep: load x, d_silu -> output d_x
    sweep(begin, end, {x, d_silu}, d_x, kept, next, [&](const float* in, float& out) {
      const float x = in[0], d_silu = in[4];
      const float t6 = x - own_group_norm_mean;
      const float t9 = t6 * (own_group_norm_rstd * own_weight) + own_bias;
      const float t10 = sigmoid(t9);
      out = own_group_norm_rstd * (d_silu * (t10 + t9 * (t10 * (1.0f - t10))) * own_weight - mean_c -
                                   t6 * own_group_norm_rstd * mean2_c);
    });
  }
}

// Launches one of the kernels; returns CUDA's error. Blocks with shared memory wait for each other.
extern "C" int launch(int kernel, long long* words, unsigned int blocks, int bytes, cudaStream_t stream) {
  const void* const kernels[] = {(const void*)forward, (const void*)backward};
  void* parameters[32];
  for (int i = 0; i < 32; ++i) parameters[i] = words + i;
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const cudaError_t error = cudaFuncSetAttribute(kernels[kernel], attribute, bytes)) return error;
  return cudaLaunchCooperativeKernel(kernels[kernel], blocks, 256, parameters, bytes, stream);
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


def launch(kernel, blocks, shared_bytes, arguments):
    """Launches a kernel: addresses of tensors and numbers are its parameters."""
    words = [each.data_ptr() if torch.is_tensor(each) else each for each in arguments]
    packed = (ctypes.c_int64 * len(words))(*words)
    with torch.cuda.device(arguments[0].device):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        error = library().launch(KERNELS.index(kernel), packed, blocks, shared_bytes, stream)
    if error != 0:
        raise RuntimeError(f"{kernel}: the launch failed with CUDA error {error}")


def takes(x, weight, bias):
    """Whether the kernels take these tensors."""
    tensors = (x, weight, bias)
    if not x.is_cuda or x.dim() != 4 or torch.is_autocast_enabled() or torch.compiler.is_compiling():
        return False
    n, _, h, w = x.shape
    gpu = torch.cuda.get_device_properties(x.device)
    return (
        gpu.major >= 8
        and gpu.shared_memory_per_multiprocessor >= 233472
        and all(t.device == x.device and t.dtype == torch.float32 for t in tensors)
        and [t.shape for t in tensors] == [(n, 512, h, w), (512,), (512,)]
        and x.numel() > 0
        and h * w % 4 == 0
        and gpu.multi_processor_count * 4 >= 128
        and 32 <= h * w < 1000000000
    )


def by_pytorch(x, weight, bias):
    """The block by PyTorch's operators."""
    group_norm = F.group_norm(x, 32, weight=weight, bias=bias, eps=1e-06)
    return F.silu(group_norm)


class Block(torch.autograd.Function):
    """The block and its gradients by the kernels."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        x, weight, bias = map(lay_out, (x, weight, bias))
        n, _, h, w = x.shape
        silu = torch.empty_like(x)
        group_norm_mean, group_norm_rstd = map(x.new_empty, [(n, 32), (n, 32)])
        multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
        arrived = x.new_zeros(n * 32, dtype=torch.int32)
        blocks_x = x.new_empty((n * 2048, 4))
        arguments = [weight, bias, x, group_norm_mean, group_norm_rstd, silu, blocks_x, arrived, h * w]
        arguments += [n * 32]
        launch("forward", min(multiprocessors * 4 // 64, n * 32) * 64, 56320, arguments)
        ctx.save_for_backward(x, weight, bias, group_norm_mean, group_norm_rstd)
        return silu

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_silu):
        x, weight, bias, group_norm_mean, group_norm_rstd = ctx.saved_tensors
        d_silu = lay_out(d_silu)
        n, _, h, w = x.shape
        d_x = torch.empty_like(x)
        multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
        arrived = x.new_zeros(n * 32, dtype=torch.int32)
        blocks_value4, blocks_d_group_norm = sums = x.new_empty((2, n, 512, 8))
        arguments = [weight, bias, group_norm_mean, group_norm_rstd, x, d_silu, d_x, blocks_d_group_norm]
        arguments += [blocks_value4, arrived, h * w, n * 32]
        launch("backward", min(multiprocessors * 4 // 128, n * 32) * 128, 56320, arguments)
        d_weight, d_bias = sums.sum((1, 3))  # over the batch
        return d_x, d_weight, d_bias


def block(x, weight, bias):
    """The block `group_norm(32, eps=1e-06) | silu`."""
    return (Block.apply if takes(x, weight, bias) else by_pytorch)(x, weight, bias)


class ModelNew(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)
        self.act = nn.SiLU()
        if repr(self.norm) != (exported := "GroupNorm(32, 512, eps=1e-06, affine=True)"):
            raise ValueError(f"norm: expected {exported}, as exported, got {self.norm}")

    def forward(self, x):
        return block(x, self.norm.weight, self.norm.bias)
