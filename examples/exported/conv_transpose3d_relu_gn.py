"""Model with its blocks as CUDA kernels: `ModelNew`, in place of `Model`.

Written by `python -m fuseblock.export`; it needs PyTorch alone. Compiled at the first call on a GPU.
Block: relu | group_norm(8), on f32[16,128,34,34,34], for sm_90a.
Forward, 1 kernel, plain: 528 blocks of 256 threads, 56 kB of shared memory each, units of 16 channels, 128 in
      all, 3 blocks a channel, 11 units at a time, 100 % of them in shared memory for later sweeps
  1  sweep over [n,128,d,h,w]: load x; relu = select(x <= 0, 0, x) -> moments of relu for each n,c
  2  finalise: rstd(relu) = 1 / sqrt(squares(relu) / 628864 + 1e-05)
      -> output saved.group_norm.mean, saved.group_norm.rstd
  3  sweep over [n,128,d,h,w]: load x; relu as before;
      group_norm = (relu - mean(relu)) * (rstd(relu) * weight) + bias -> output group_norm
Backward, 1 kernel, plain: 512 blocks of 256 threads, 56 kB of shared memory each, units of 16 channels, 128
      in all, 4 blocks a channel, 8 units at a time, 71 % of them in shared memory for later sweeps
  1  sweep over [n,128,d,h,w]: load d_group_norm, x; relu as before;
      group_norm_hat = (relu - saved.group_norm.mean) * saved.group_norm.rstd;
      value4 = d_group_norm * group_norm_hat -> sums of d_group_norm, value4 for each n,c
  2  finalise: mean = sum(channel_sum(d_group_norm) / 39304 * weight) / 16;
      mean2 = sum(weight * (channel_sum(value4) / 39304)) / 16 -> output d_weight, d_bias
  3  sweep over [n,128,d,h,w]: load x, d_group_norm; relu, group_norm_hat as before;
      d_relu = saved.group_norm.rstd * (d_group_norm * weight - mean - group_norm_hat * mean2);
      d_x = select(x <= 0, 0, d_relu) -> output d_x
The kernels take any extents along n, d, h, w with d * h * w % 4 == 0 and multiprocessors * 4 >= 64 and 16 <=
d * h * w < 1000000000.

Notation: n, c, d, h, w are samples, channels and positions; mean(v), squares(v), rstd(v) the mean of v over
what a norm takes together, the sum of squared deviations from it, 1 / sqrt(variance + eps); d_v is the
gradient by v. A sweep is one pass over all elements, a finalise step works on statistics. multiprocessors is
how many the GPU has.
By PyTorch's operators: the CPU, other dtypes, autocast, torch.compile, GPUs before compute capability 8.0 or
with less shared memory. Other layouts are copied first. Left as it was: self.conv_transpose (kept).
"""

import ctypes
import functools
import hashlib
import inspect

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_inputs():
    return [torch.rand(16, 64, 32, 32, 32)]


def get_init_inputs():
    return [64, 128, 3, 8, False]


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
  for (int i = 0; i < 4; ++i) sum += blocks[i];
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

__global__ void __launch_bounds__(kThreads, 4)
    forward(const float* weight, const float* bias, const float* x, float* group_norm_mean,
            float* group_norm_rstd, float* group_norm, Moments* blocks_relu, unsigned int* arrived,
            long long positions, long long units) {
  extern __shared__ float4 kept[];
  const int own = blockIdx.x % 48 / 3, part = blockIdx.x % 3, teams = gridDim.x / 48;
  const long long from = part * positions / 4 / 3 * 4, size = (part + 1) * positions / 4 / 3 * 4 - from;
  long long begin = (blockIdx.x / 48 * 16ll + own) * positions + from, stride = teams * 16 * positions;
  __nanosleep(4 * blockIdx.x / gridDim.x * 3750);  // some teams read while others wait
  keep(begin, begin + size, {x}, kept);
  for (int unit = blockIdx.x / 48; unit < units; unit += teams, begin += stride) {
    const int first = unit % 8 * 16;
    const long long end = begin + size, next = unit + teams < units ? begin + stride : -1;
    const float own_weight = weight[first + own], own_bias = bias[first + own];
    // Sweep: load x -> moments of relu for each n,c
    Moments relu_sums;
    sweep(begin, end, {x}, nullptr, kept, -1, [&](const float* in, float&) {
      const float x = in[0];
      relu_sums.add(x <= 0.0f ? 0.0f : x);
    });
    blocks_relu[unit * 48 + blockIdx.x % 48] = merged(relu_sums, share_sum);
    meet(arrived + unit, 48);
    const Moments group_relu =
        merged(threadIdx.x < 48 ? blocks_relu[unit * 48 + threadIdx.x] : Moments(), share_sum);
    const float rstd_relu_c = rsqrtf(group_relu.squares * (float)(1.0 / (16 * positions)) + 1e-05f);
    if (blockIdx.x % 48 == 0 && threadIdx.x == 0) {
      group_norm_mean[unit] = group_relu.mean;
      group_norm_rstd[unit] = rstd_relu_c;
    }
    // Sweep: load x -> output group_norm
    sweep(begin, end, {x}, group_norm, kept, next, [&](const float* in, float& out) {
      const float x = in[0];
      out = ((x <= 0.0f ? 0.0f : x) - group_relu.mean) * (rstd_relu_c * own_weight) + own_bias;
    });
  }
}

__global__ void __launch_bounds__(kThreads, 4)
    backward(const float* weight, const float* group_norm_mean, const float* group_norm_rstd,
             const float* d_group_norm, const float* x, float* d_x, float* blocks_d_group_norm,
             float* blocks_value4, unsigned int* arrived, long long positions, long long units) {
  extern __shared__ float4 kept[];
  const int own = blockIdx.x % 64 / 4, part = blockIdx.x % 4, teams = gridDim.x / 64;
  const long long from = part * positions / 4 / 4 * 4, size = (part + 1) * positions / 4 / 4 * 4 - from;
  long long begin = (blockIdx.x / 64 * 16ll + own) * positions + from, stride = teams * 16 * positions;
  __nanosleep(4 * blockIdx.x / gridDim.x * 3750);  // some teams read while others wait
  keep(begin, begin + size, {d_group_norm, x}, kept);
  for (int unit = blockIdx.x / 64; unit < units; unit += teams, begin += stride) {
    const int n = unit / 8, first = unit % 8 * 16, c = first + min((int)threadIdx.x % 32, 15);
    const long long end = begin + size, next = unit + teams < units ? begin + stride : -1;
    const float own_weight = weight[first + own];
    // Sweep: load d_group_norm, x -> sum of d_group_norm for each n,c; sum of value4 for each n,c
    const float own_group_norm_mean = group_norm_mean[unit], own_group_norm_rstd = group_norm_rstd[unit];
    float sum_d_group_norm = 0, sum_value4 = 0;
    sweep(begin, end, {d_group_norm, x}, nullptr, kept, -1, [&](const float* in, float&) {
      const float d_group_norm = in[0], x = in[4];
      const float t9 = d_group_norm * (((x <= 0.0f ? 0.0f : x) - own_group_norm_mean) * own_group_norm_rstd);
      sum_d_group_norm += d_group_norm;
      sum_value4 += t9;
    });
    blocks_d_group_norm[unit * 64 + blockIdx.x % 64] = share_sum(sum_d_group_norm);
    blocks_value4[unit * 64 + blockIdx.x % 64] = share_sum(sum_value4);
    meet(arrived + unit, 64);
    const float sum_d_group_norm_c = channel_sum(blocks_d_group_norm + (n * 128 + c) * 4);
    const float sum_value4_c = channel_sum(blocks_value4 + (n * 128 + c) * 4);
    const float mean_c = unit_sum((sum_d_group_norm_c * (float)(1.0 / positions)) * weight[c]) * 0.0625f;
    const float mean2_c = unit_sum(weight[c] * (sum_value4_c * (float)(1.0 / positions))) * 0.0625f;
    // Sweep: load x, d_group_norm -> output d_x
    sweep(begin, end, {d_group_norm, x}, d_x, kept, next, [&](const float* in, float& out) {
      const float d_group_norm = in[0], x = in[4];
      const float t4 = x <= 0.0f ? 1 : 0;
      const float t14 = ((t4 != 0 ? 0.0f : x) - own_group_norm_mean) * own_group_norm_rstd * mean2_c;
      out = t4 != 0 ? 0.0f : (own_group_norm_rstd * (d_group_norm * own_weight - mean_c - t14));
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
    if not x.is_cuda or x.dim() != 5 or torch.is_autocast_enabled() or torch.compiler.is_compiling():
        return False
    n, _, d, h, w = x.shape
    gpu = torch.cuda.get_device_properties(x.device)
    return (
        gpu.major >= 8
        and gpu.shared_memory_per_multiprocessor >= 233472
        and all(t.device == x.device and t.dtype == torch.float32 for t in tensors)
        and [t.shape for t in tensors] == [(n, 128, d, h, w), (128,), (128,)]
        and x.numel() > 0
        and d * h * w % 4 == 0
        and gpu.multi_processor_count * 4 >= 64
        and 16 <= d * h * w < 1000000000
    )


def by_pytorch(x, weight, bias):
    """The block by PyTorch's operators."""
    relu = F.relu(x)
    return F.group_norm(relu, 8, weight=weight, bias=bias, eps=1e-05)


class Block(torch.autograd.Function):
    """The block and its gradients by the kernels."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        x, weight, bias = map(lay_out, (x, weight, bias))
        n, _, d, h, w = x.shape
        group_norm = torch.empty_like(x)
        group_norm_mean, group_norm_rstd = map(x.new_empty, [(n, 8), (n, 8)])
        multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
        arrived = x.new_zeros(n * 8, dtype=torch.int32)
        blocks_relu = x.new_empty((n * 384, 4))
        arguments = [weight, bias, x, group_norm_mean, group_norm_rstd, group_norm, blocks_relu, arrived]
        arguments += [d * h * w, n * 8]
        launch("forward", min(multiprocessors * 4 // 48, n * 8) * 48, 56320, arguments)
        ctx.save_for_backward(x, weight, group_norm_mean, group_norm_rstd)
        return group_norm

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_group_norm):
        x, weight, group_norm_mean, group_norm_rstd = ctx.saved_tensors
        d_group_norm = lay_out(d_group_norm)
        n, _, d, h, w = x.shape
        d_x = torch.empty_like(x)
        multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
        arrived = x.new_zeros(n * 8, dtype=torch.int32)
        blocks_value4, blocks_d_group_norm = sums = x.new_empty((2, n, 128, 4))
        arguments = [weight, group_norm_mean, group_norm_rstd, d_group_norm, x, d_x, blocks_d_group_norm]
        arguments += [blocks_value4, arrived, d * h * w, n * 8]
        launch("backward", min(multiprocessors * 4 // 64, n * 8) * 64, 56320, arguments)
        d_weight, d_bias = sums.sum((1, 3))  # over the batch
        return d_x, d_weight, d_bias


def block(x, weight, bias):
    """The block `relu | group_norm(8)`."""
    return (Block.apply if takes(x, weight, bias) else by_pytorch)(x, weight, bias)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, groups, bias=False):
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, bias=bias)
        self.relu = nn.ReLU()
        self.group_norm = nn.GroupNorm(num_groups=groups, num_channels=out_channels)
        if repr(self.group_norm) != (exported := "GroupNorm(8, 128, eps=1e-05, affine=True)"):
            raise ValueError(f"group_norm: expected {exported}, as exported, got {self.group_norm}")

    def forward(self, x):
        conv_transpose = self.conv_transpose(x)
        return block(conv_transpose, self.group_norm.weight, self.group_norm.bias)
