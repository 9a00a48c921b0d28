"""Model with its blocks as CUDA kernels: `ModelNew`, in place of `Model`.

Written by `python -m fuseblock.export`; it needs PyTorch alone. Compiled at the first call on a GPU.
Block: group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim), on f32[128,64,126,126], planned
for sm_90a.
Forward, 2 kernels:
  1  sweep over [n,64,h,w]: load x -> moments of x for each n,c
  2  finalise: rstd(x) = 1 / sqrt(squares(x) / 63504 + 1e-05)
      -> output saved.group_norm.mean, saved.group_norm.rstd
  3  sweep over [n,64,h,w]: load x;
      group_norm = (x - mean(x)) * (rstd(x) * group_norm.weight) + group_norm.bias; tanh = tanh(group_norm);
      hardswish = select(tanh <= -3, 0 * tanh, select(tanh >= 3, tanh, tanh * (tanh + 3) / 6));
      add = hardswish + x -> max and sum of exp of add over c;
      logsumexp = select(abs(max(add)) == inf, max(add), max(add) + log(sum_exp(add)))
      -> output logsumexp, saved.logsumexp
  kernel 1, plain: 8192 blocks of 256 threads, units of 4 channels, 2048 in all, 1 block a channel
  kernel 2, plain_channels: 2048 blocks of 256 threads, a thread for 4 positions with all 64 channels, 4 at
        a time
Backward, 1 kernel:
  1  sweep over [n,64,h,w]: load x;
      group_norm = (x - saved.group_norm.mean) * (saved.group_norm.rstd * group_norm.weight) +
        group_norm.bias;
      tanh = tanh(group_norm);
      hardswish = select(tanh <= -3, 0 * tanh, select(tanh >= 3, tanh, tanh * (tanh + 3) / 6));
      add = hardswish + x; d_add = d_logsumexp * exp(add - saved.logsumexp);
      d_tanh = select(tanh <= -3, 0, select(tanh >= 3, d_add, d_add * ((tanh + 3 + tanh) / 6)));
      d_group_norm = d_tanh * (1 - tanh(group_norm) * tanh(group_norm));
      group_norm_hat = (x - saved.group_norm.mean) * saved.group_norm.rstd;
      value4 = d_group_norm * group_norm_hat -> sum of d_group_norm for each n,c; sum of value4 for each n,c
  2  finalise: part20 = channel_sum(d_group_norm) / 15876; part21 = part20 * group_norm.weight;
      mean = sum(part21) / 4; part29 = channel_sum(value4) / 15876; part30 = group_norm.weight * part29;
      mean2 = sum(part30) / 4 -> output d_group_norm.weight, d_group_norm.bias
  3  sweep over [n,64,h,w]: load x;
      group_norm, tanh, hardswish, add, d_add, d_tanh, d_group_norm, group_norm_hat as before;
      value = d_group_norm * group_norm.weight;
      value3 = saved.group_norm.rstd * (value - mean - group_norm_hat * mean2); d_x = d_add + value3
      -> output d_x
  kernel 1, plain: 2048 blocks of 256 threads, units of 4 channels, 2048 in all, a block each
The kernels take any extents along n, h, w with h * w % 4 == 0 and h * w < 1000000000.

Notation: n, c, d, h, w are samples, channels and positions; mean(v), squares(v), rstd(v) the mean of v
over what a norm takes together, the sum of squared deviations from it, 1 / sqrt(variance + eps); d_v is
the gradient by v. A sweep is one pass over all elements, a finalise step works on statistics.
By PyTorch's operators: the CPU, other dtypes, autocast, torch.compile, GPUs before compute capability 8.0
or with less shared memory. Other layouts are copied first. Left as it was: self.conv (kept).
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


PLAIN = r"""
constexpr int kThreads = 256;

// Takes the elements of a share: `program` gets those of the inputs at one place, and what it returns goes to `output`,
// unless that is null. Vectors of four, several on the way at once; those that a thread keeps make room for the `next` share's.
template <int kSharers, int kInputs, class Program>
__device__ inline void sweep(long long begin, long long end, const float* const (&inputs)[kInputs],
                             float* output, Program program) {
  constexpr int kBatch = kInputs == 1 ? 4 : 2;
  const int vectors = (int)((end - begin) / 4), thread = threadIdx.x % kSharers;
  float in[kInputs];
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
      for (int i = 0; i < 4; ++i) {
        for (int k = 0; k < kInputs; ++k) in[k] = loaded[b][k][i];
        results[i] = program(in);
      }
      if (output) ((float4*)(output + begin))[at] = *(float4*)results;
    }
  }
}

// Sums over lanes, the threads of a share, neighbouring channels (lanes), the blocks of a channel, and these of all samples.
template <class Number>
__device__ inline Number warp_sum(Number x) {
  for (int distance = 1; distance < 32; distance *= 2) x += __shfl_xor_sync(~0u, x, distance);
  return x;
}
template <int kSharers>
__device__ inline float share_sum(float x) {
  __shared__ float sums[kThreads / 32];
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  const float* own = sums + threadIdx.x / kSharers * (kSharers / 32);
  x = own[0];
  for (int i = 1; i < kSharers / 32; ++i) x += own[i];
  return x;
}
template <int kChannels>
__device__ inline float group_sum(float x) {
  float sum = 0;
  for (int i = 0; i < kChannels; ++i)
    sum += __shfl_sync(~0u, x, threadIdx.x % 32 / kChannels * kChannels + i);
  return sum;
}
template <int kParts>
__device__ inline double batch_sum(const float* blocks, int samples, int channels) {
  double sum = 0;
  for (int i = threadIdx.x % 32; i < samples * kParts; i += 32)
    sum += blocks[i / kParts * channels * kParts + i % kParts];
  return warp_sum(sum);
}

// Sums of deviations from `mean` and of their squares: a variance is never a difference of two large numbers. While a thread
// adds elements `mean` is the first of them; where that is far from the mean, so is the variance large.
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

// Those of all parts, of which each thread has one and `sum` adds up what they have: the deviations of means count, too.
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
"""

PLAIN_CHANNELS = r"""
constexpr int kThreads = 256, kWidth = 4, kBatch = 4, kChannels = 64;

// Reductions over the channels of a sample, position by position: a thread has kWidth neighbouring positions and takes
// kBatch of their channels at a time.

// The largest of the values, and the sum of exp(value - largest).
struct ExpSum {
  float largest = -3.4028235e38f,
        sum = 0;  // the least number: nothing else is below it but what counts for nothing
  __device__ void add(const float (&values)[kBatch]) {
    const float before = largest;
    for (int b = 0; b < kBatch; ++b)
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(largest), "f"(values[b]));
    // Infinities are not subtracted from each other.
    const float base = fabsf(largest) == __int_as_float(0x7f800000) ? 0.0f : largest;
    sum *= expf(before - base);
    for (int b = 0; b < kBatch; ++b) sum += expf(values[b] - base);
  }
};

// Takes the channels of a thread's positions: `program` gets the elements of the inputs at one of them, and what it returns
// is added to the position's sum.
template <int kInputs, class Program>
__device__ inline void sweep_channels(const float* const (&inputs)[kInputs], long long positions,
                                      ExpSum (&sums)[kWidth], Program program) {
  for (int first = 0; first < kChannels; first += kBatch) {
    alignas(16) float loaded[kBatch][kInputs][kWidth], values[kWidth][kBatch], in[kInputs];
    for (int b = 0; b < kBatch; ++b)
      for (int k = 0; k < kInputs; ++k) {
        *(float4*)loaded[b][k] = *(const float4*)(inputs[k] + (first + b) * positions);
      }
    __syncwarp();  // all loads have begun before the first is used
    for (int b = 0; b < kBatch; ++b)
      for (int i = 0; i < kWidth; ++i) {
        for (int k = 0; k < kInputs; ++k) in[k] = loaded[b][k][i];
        const bool behind = kChannels % kBatch != 0 && first + b >= kChannels;
        values[i][b] = behind ? -__int_as_float(0x7f800000) : program(first + b, in);
      }
    for (int i = 0; i < kWidth; ++i) sums[i].add(values[i]);
  }
}
"""

FORWARD_PLAIN = r"""
__global__ void __launch_bounds__(kThreads, 6)
    plain(const float* x, double* group_mean_x, double* rstd_x, float* group_norm_mean,
          float* group_norm_rstd, Moments* blocks_x, unsigned int* arrived, long long positions) {
  const int unit = blockIdx.x / 4, own = blockIdx.x % 4, n = unit / 16, first = unit % 16 * 4;
  const int c = first + min((int)threadIdx.x % 32, 3);
  const long long begin = (unit * 4ll + own) * positions, end = begin + positions;
  // Sweep: load x -> moments of x for each n,c
  Moments x_sums;
  sweep<kThreads>(begin, end, {x}, nullptr, [&](const float(&in)[1]) {
    const float x = in[0];
    x_sums.add(x);
    return 0.0f;
  });
  blocks_x[blockIdx.x] = merged(x_sums, share_sum<kThreads>);
  if (!arrive(arrived + unit, 4)) return;
  const Moments group_x =
      merged(threadIdx.x < 4 ? blocks_x[unit * 4 + threadIdx.x] : Moments(), share_sum<kThreads>);
  const float rstd_x_c = rsqrtf(group_x.squares * (float)(1.0 / (4 * positions)) + 1e-05f);
  if (threadIdx.x < 4) {
    group_mean_x[n * 64 + c] = group_x.mean;
    rstd_x[n * 64 + c] = rstd_x_c;
    group_norm_mean[n * 16 + c / 4] = group_x.mean;
    group_norm_rstd[n * 16 + c / 4] = rstd_x_c;
  }
}
"""

FORWARD_PLAIN_CHANNELS = r"""
// What the program takes of a channel.
struct Channel {
  float group_norm_weight, group_norm_bias, mean_x, rstd_x;
};

__global__ void __launch_bounds__(kThreads, 4)
    plain_channels(const float* group_norm_weight, const float* group_norm_bias, const float* x,
                   const double* group_mean_x, const double* rstd_x, float* logsumexp, float* saved_logsumexp,
                   long long blocks, long long positions) {
  const int n = blockIdx.x / blocks, block = blockIdx.x % blocks;
  // Threads behind the last positions do these, too.
  const int position = min((int)(block * kThreads + threadIdx.x) * kWidth, (int)positions - kWidth);
  __shared__ Channel channels[kChannels];
  for (int c = threadIdx.x; c < kChannels; c += kThreads)
    channels[c] = {group_norm_weight[c], group_norm_bias[c], (float)group_mean_x[n * 64 + c],
                   (float)rstd_x[n * 64 + c]};
  __syncthreads();
  // Sweep: load x -> max and sum of exp of add over c
  const long long begin = n * 64 * positions + position;
  ExpSum add_sums[kWidth];
  sweep_channels({x + begin}, positions, add_sums, [&](int c, const float(&in)[1]) {
    const float x = in[0];
    const float t7 = (x - channels[c].mean_x) * (channels[c].rstd_x * channels[c].group_norm_weight);
    const float t9 = tanhf(t7 + channels[c].group_norm_bias);
    return t9 * (t9 + 3.0f) * 0.16666667f + x;
  });
  // logsumexp = select(abs(max(add)) == inf, max(add), max(add) + log(sum_exp(add)))
  for (int i = 0; i < kWidth; ++i) {
    const long long at = n * positions + position + i;
    const float t7 = fabsf(add_sums[i].largest) == (__int_as_float(0x7f800000))
                         ? add_sums[i].largest
                         : (add_sums[i].largest + logf(add_sums[i].sum));
    logsumexp[at] = saved_logsumexp[at] = t7;
  }
}
"""

BACKWARD = r"""
__global__ void __launch_bounds__(kThreads, 4)
    plain(const float* group_norm_weight, const float* group_norm_bias, const float* group_norm_mean,
          const float* group_norm_rstd, const float* x, const float* d_logsumexp, const float* logsumexp,
          float* d_x, float* d_group_norm_weight, float* d_group_norm_bias, float* blocks_d_group_norm,
          float* blocks_value4, unsigned int* arrived, long long samples, long long positions) {
  const int unit = blockIdx.x, own = threadIdx.x / 64, n = unit / 16, first = unit % 16 * 4;
  const int c = first + min((int)threadIdx.x % 32, 3);
  const long long begin = (unit * 4ll + own) * positions, end = begin + positions;
  const long long before = begin - n * positions;  // of what is one for all channels
  const float own_group_norm_weight = group_norm_weight[first + own];
  const float own_group_norm_bias = group_norm_bias[first + own];
  // Sweep: load x -> sum of d_group_norm for each n,c; sum of value4 for each n,c
  const float own_group_norm_mean = group_norm_mean[n * 16 + c / 4];
  const float own_group_norm_rstd = group_norm_rstd[n * 16 + c / 4];
  float sum_d_group_norm = 0, sum_value4 = 0;
  sweep<64>(begin, end, {x, d_logsumexp - before, logsumexp - before}, nullptr, [&](const float(&in)[3]) {
    const float x = in[0], d_logsumexp = in[1], logsumexp = in[2];
    const float t6 = x - own_group_norm_mean;
    const float t10 = tanhf(t6 * (own_group_norm_rstd * own_group_norm_weight) + own_group_norm_bias);
    const float t12 = t10 + 3.0f;
    const float t23 =
        d_logsumexp * expf(t10 * t12 * 0.16666667f + x - logsumexp) * ((t12 + t10) * 0.16666667f);
    const float t27 = t23 * (1.0f - t10 * t10);
    sum_d_group_norm += t27;
    sum_value4 += t27 * (t6 * own_group_norm_rstd);
    return 0.0f;
  });
  blocks_d_group_norm[unit * 4 + own] = share_sum<64>(sum_d_group_norm);
  blocks_value4[unit * 4 + own] = share_sum<64>(sum_value4);
  __syncthreads();
  const float sum_d_group_norm_c = blocks_d_group_norm[n * 64 + c];
  const float sum_value4_c = blocks_value4[n * 64 + c];
  const float mean_c =
      group_sum<4>((sum_d_group_norm_c * (float)(1.0 / positions)) * group_norm_weight[c]) * 0.25f;
  const float mean2_c =
      group_sum<4>(group_norm_weight[c] * (sum_value4_c * (float)(1.0 / positions))) * 0.25f;
  // Sweep: load x -> output d_x
  const float own_mean = __shfl_sync(~0u, mean_c, own);
  const float own_mean2 = __shfl_sync(~0u, mean2_c, own);
  sweep<64>(begin, end, {x, d_logsumexp - before, logsumexp - before}, d_x, [&](const float(&in)[3]) {
    const float x = in[0], d_logsumexp = in[1], logsumexp = in[2];
    const float t6 = x - own_group_norm_mean;
    const float t10 = tanhf(t6 * (own_group_norm_rstd * own_group_norm_weight) + own_group_norm_bias);
    const float t12 = t10 + 3.0f;
    const float t20 = d_logsumexp * expf(t10 * t12 * 0.16666667f + x - logsumexp);
    const float t29 = t20 * ((t12 + t10) * 0.16666667f) * (1.0f - t10 * t10) * own_group_norm_weight;
    return t20 + (own_group_norm_rstd * (t29 - own_mean - t6 * own_group_norm_rstd * own_mean2));
  });
  // Sums over the batch, by the last block that has statistics of these channels: a warp a channel.
  if (arrive(arrived + unit % 16, samples))
    for (int i = threadIdx.x / 32; i < 4; i += kThreads / 32) {
      const int c = first + i;
      d_group_norm_weight[c] = batch_sum<1>(blocks_value4 + c, samples, 64);
      d_group_norm_bias[c] = batch_sum<1>(blocks_d_group_norm + c, samples, 64);
    }
}
"""

HOST = r"""
// Launches one of the kernels; returns CUDA's error, 0 for none.
extern "C" int launch(int kernel, long long* words, unsigned int blocks, cudaStream_t stream) {
  const void* const kernels[] = {(const void*)forward_plain::plain,
                                 (const void*)forward_plain_channels::plain_channels,
                                 (const void*)backward::plain};
  void* parameters[32];
  for (int i = 0; i < 32; ++i) parameters[i] = words + i;
  return cudaLaunchKernel(kernels[kernel], blocks, 256, parameters, 0, stream);
}
"""

KERNELS = {
    "forward_plain": (PLAIN, FORWARD_PLAIN),
    "forward_plain_channels": (PLAIN_CHANNELS, FORWARD_PLAIN_CHANNELS),
    "backward": (PLAIN, BACKWARD),
}
CUDA = "".join(f"namespace {name} {{\n{''.join(texts)}\n}}\n" for name, texts in KERNELS.items()) + HOST


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
        error = library().launch(list(KERNELS).index(kernel), packed, blocks, stream)
    if error != 0:
        raise RuntimeError(f"{kernel}: the launch failed with CUDA error {error}")


def takes(x, group_norm_weight, group_norm_bias):
    """Whether the kernels take these tensors."""
    tensors = (x, group_norm_weight, group_norm_bias)
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


def by_pytorch(x, group_norm_weight, group_norm_bias):
    """The block by PyTorch's operators."""
    group_norm = F.group_norm(x, 16, weight=group_norm_weight, bias=group_norm_bias, eps=1e-05)
    tanh = torch.tanh(group_norm)
    hardswish = F.hardswish(tanh)
    add = x + hardswish
    return torch.logsumexp(add, dim=1, keepdim=True)


class Block(torch.autograd.Function):
    """The block and its gradients by the kernels."""

    @staticmethod
    def forward(ctx, x, group_norm_weight, group_norm_bias):
        x, group_norm_weight, group_norm_bias = map(lay_out, (x, group_norm_weight, group_norm_bias))
        n, _, h, w = x.shape
        logsumexp, group_norm_mean, group_norm_rstd = map(x.new_empty, [(n, 1, h, w), (n, 16), (n, 16)])
        saved_logsumexp = x.new_empty((n, 1, h, w))
        group_mean_x, rstd_x = x.new_empty((2, n, 64), dtype=torch.float64)
        arrived = x.new_zeros(n * 16, dtype=torch.int32)
        blocks_x = x.new_empty((n * 64, 4))
        arguments = [x, group_mean_x, rstd_x, group_norm_mean, group_norm_rstd, blocks_x, arrived, h * w]
        launch("forward_plain", n * 64, arguments)
        blocks = -(-h * w // 1024)
        arguments = [group_norm_weight, group_norm_bias, x, group_mean_x, rstd_x, logsumexp, saved_logsumexp]
        arguments += [blocks, h * w]
        launch("forward_plain_channels", n * blocks, arguments)
        ctx.save_for_backward(
            x, group_norm_weight, group_norm_bias, group_norm_mean, group_norm_rstd, saved_logsumexp
        )
        return logsumexp

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_logsumexp):
        x, group_norm_weight, group_norm_bias, group_norm_mean, group_norm_rstd, saved_logsumexp = (
            ctx.saved_tensors
        )
        d_logsumexp = lay_out(d_logsumexp)
        n, _, h, w = x.shape
        d_x = torch.empty_like(x)
        d_group_norm_weight, d_group_norm_bias = map(x.new_empty, [(64,), (64,)])
        arrived = x.new_zeros(16, dtype=torch.int32)
        blocks_d_group_norm, blocks_value4 = x.new_empty((2, n * 64))
        arguments = [group_norm_weight, group_norm_bias, group_norm_mean, group_norm_rstd, x, d_logsumexp]
        arguments += [saved_logsumexp, d_x, d_group_norm_weight, d_group_norm_bias, blocks_d_group_norm]
        arguments += [blocks_value4, arrived, n, h * w]
        launch("backward", n * 16, arguments)
        return d_x, d_group_norm_weight, d_group_norm_bias


def block(x, group_norm_weight, group_norm_bias):
    """The block `group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim)`."""
    by_kernels = takes(x, group_norm_weight, group_norm_bias)
    return (Block.apply if by_kernels else by_pytorch)(x, group_norm_weight, group_norm_bias)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, groups, eps=1e-5):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.group_norm = nn.GroupNorm(groups, out_channels, eps=eps)
        self.tanh = nn.Tanh()
        self.hard_swish = nn.Hardswish()

    def forward(self, x):
        conv = self.conv(x)
        return block(conv, self.group_norm.weight, self.group_norm.bias)
