"""Model with its blocks as CUDA kernels: `ModelNew`, in place of `Model`.

Written by `python -m fuseblock.export`; it needs PyTorch alone. The kernels are compiled at the first
call with tensors on a GPU.

Block: hardswish | group_norm(4) | mean(d,h,w)
on f32[1024,16,13,29,29], planned for sm_90a.

Forward, 1 kernel:
  1  sweep over [n,16,d,h,w]
       load x
       -> hardswish = select(x <= -3, 0 * x, select(x >= 3, x, x * (x + 3) / 6))
       -> moments of hardswish for each n,c
  2  finalise
       rstd(hardswish) = 1 / sqrt(squares(hardswish) / 43732 + 1e-05)
       mean = (channel_mean(hardswish) - mean(hardswish)) * (rstd(hardswish) * group_norm.weight) +
           group_norm.bias
       -> output mean, saved.group_norm.mean, saved.group_norm.rstd, saved.hardswish.mean
  never written to memory: hardswish, group_norm; writing and reading each once would move 2.9 GB
  the example's work:
    1  plain: 1 sweep, 1 finalise step; 16384 blocks of 256 threads
         units of 4 channels of a sample, 4096 in all; 1 block a channel
Backward, 1 kernel:
  1  finalise
       part9 = d_mean / 10933
       part10 = part9 * group_norm.weight
       mean2 = sum(part10) / 4
       part16 = (saved.hardswish.mean - saved.group_norm.mean) * saved.group_norm.rstd
       part17 = part10 * part16
       mean3 = sum(part17) / 4
       part23 = part9 * part16
       part27 = sum(part23) / 1024
       d_group_norm.weight = part27 * 11195392
       d_group_norm.bias = sum(part9) * 10933
       -> output d_group_norm.weight, d_group_norm.bias
  2  sweep over [n,16,d,h,w]
       load x
       -> hardswish = select(x <= -3, 0 * x, select(x >= 3, x, x * (x + 3) / 6))
          group_norm_hat = (hardswish - saved.group_norm.mean) * saved.group_norm.rstd
          d_hardswish = saved.group_norm.rstd * (part10 - mean2 - group_norm_hat * mean3)
          d_x = select(x <= -3, 0, select(x >= 3, d_hardswish, d_hardswish * ((x + 3 + x) / 6)))
       -> output d_x
  never written to memory: hardswish, group_norm, d_group_norm, group_norm_hat, rstd, value, value2,
      d_hardswish and 1 more; writing and reading each once would move 11 GB
  the example's work:
    1  plain: 1 sweep, 1 finalise step; 16384 blocks of 256 threads
         units of 4 channels of a sample, 4096 in all; 1 block a channel

The kernels take any extents along n, d, h, w with d * h * w < 1000000000.

Notation: n, c, d, h, w are samples, channels and positions; mean(v), squares(v) and rstd(v) are the mean
of v over what a norm takes together, the sum of squared deviations from it, and 1 / sqrt(variance + eps);
d_v is the gradient by v. A sweep is one pass over all elements, a finalise step works on statistics.

What they do not take runs by PyTorch's operators: the CPU, other dtypes, autocast, torch.compile, GPUs
before compute capability 8.0 or with less shared memory than they were planned for. Other layouts are
copied to that of the example first.

Left as it was: self.conv (kept).
"""

import ctypes
import functools
import hashlib
import inspect
import struct

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_inputs():
    return [torch.rand(1024, 3, 16, 32, 32)]


def get_init_inputs():
    return [3, 16, 4]


# Device code that all kernels have in common.
PLAIN = r"""
constexpr int kThreads = 256;
constexpr int kKept = 0;

// A kernel with a short text. A block works on a share: a part of one channel of one sample. The blocks of a unit, the
// channels of a sample that a norm takes together, are a team. Where statistics are worked out, each lane of every warp
// stands for one of the unit's channels. Sums are added up in a fixed order.

// A run of a tensor's elements: whole vectors of four from `first` on, a few elements before and behind them.
struct Share {
  long long first;
  int before, vectors, behind;
};

// One of the parts of a channel; channels are counted over all samples.
__device__ inline Share share_of(long long channel, long long positions, int part, int parts) {
  const long long begin = channel * positions + positions * part / parts;
  const long long end = channel * positions + positions * (part + 1) / parts;
  const long long first = min((begin + 3) / 4 * 4, end), last = max(end / 4 * 4, first);
  return {first, (int)(first - begin), (int)(last - first) / 4, (int)(end - last)};
}

// The first vectors of a share, kKept of all inputs together, which may stay in shared memory for later sweeps.
__device__ inline float4* kept_vectors() {
  extern __shared__ float4 kept[];
  return kept;
}

// Takes all elements of a share: `program` gets those of the inputs at one place, and what it returns goes to `output`,
// unless that is null. Several vectors of a thread are on the way at once.
template <int kInputs, class Program>
__device__ inline void sweep(const Share& share, const float* const (&inputs)[kInputs], float* output,
                             Keep keep, Program program) {
  constexpr int kBatch = kInputs == 1 ? 4 : 2;
  float in[kInputs];
  for (int start = 0; start < share.vectors; start += kBatch * kThreads) {
    alignas(16) float loaded[kBatch][kInputs][4], results[4];
    for (int b = 0; b < kBatch; ++b)
      for (int k = 0; k < kInputs; ++k) {
        const int at = min(start + b * kThreads + (int)threadIdx.x, share.vectors - 1);
        const float4* from = (const float4*)(inputs[k] + share.first) + at;
        *(float4*)loaded[b][k] = *from;
      }
    __syncwarp();  // all loads have begun before the first is used
    for (int b = 0; b < kBatch; ++b) {
      const int at = start + b * kThreads + threadIdx.x;
      if (at >= share.vectors) break;
      for (int i = 0; i < 4; ++i) {
        for (int k = 0; k < kInputs; ++k) in[k] = loaded[b][k][i];
        results[i] = program(in);
      }
      if (output) ((float4*)(output + share.first))[at] = *(float4*)results;
      for (int k = 0; kKept > 0 && k < kInputs; ++k)
        if (keep == kWrite && at < kKept / kInputs)
          kept_vectors()[k * (kKept / kInputs) + at] = *(float4*)loaded[b][k];
    }
  }
  const int t = threadIdx.x;
  if (t >= share.before + share.behind) return;
  const long long edge = share.first - share.before + t + (t < share.before ? 0 : 4 * share.vectors);
  for (int k = 0; k < kInputs; ++k) in[k] = inputs[k][edge];
  const float result = program(in);
  if (output) output[edge] = result;
}

// Over the lanes of a warp.
template <class Number>
__device__ inline Number warp_sum(Number x) {
  for (int distance = 1; distance < 32; distance *= 2) x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}

// Over the threads of a block.
__device__ inline float block_sum(float x) {
  __shared__ float sums[kThreads / 32];
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < kThreads / 32; ++i) sum += sums[i];
  return sum;
}

// Over a group of neighbouring channels, of which each lane has one.
template <int kChannels>
__device__ inline float group_sum(float x) {
  float sum = 0;
  for (int i = 0; i < kChannels; ++i)
    sum += __shfl_sync(0xffffffffu, x, threadIdx.x % 32 / kChannels * kChannels + i);
  return sum;
}

// Over the samples of a channel, by a warp.
__device__ inline double batch_sum(const double* values, int samples, int channels) {
  double sum = 0;
  for (int n = threadIdx.x % 32; n < samples; n += 32) sum += values[n * channels];
  return warp_sum(sum);
}

// The mean of some elements and the sum of squared deviations from it: a variance is never a difference of two large
// numbers.
struct Moments {
  float mean, squares, count;
};

// While a thread takes elements: sums around the first of them. Where that is far from the mean, so is the variance large.
struct Running {
  float pivot = 0, sum = 0, squares = 0, count = 0;

  __device__ void add(float value) {
    if (count == 0) pivot = value;
    const float distance = value - pivot;
    sum += distance;
    squares += distance * distance;
    count += 1;
  }
  __device__ Moments moments() const {
    const float mean = count == 0 ? 0 : sum / count, squared = squares - sum * mean;
    return {pivot + mean, squared < 0 ? 0 : squared, count};
  }
};

// The moments of parts together, of which each thread has one: the deviations of their means count as those of elements.
// `sum` adds up what the parts have.
template <class Sum>
__device__ inline Moments merged(const Moments& own, Sum sum) {
  const float count = sum(own.count), mean = sum(own.mean * (own.count / count));
  const float distance = own.mean - mean;
  return {mean, sum(own.squares + own.count * distance * distance), count};
}

// Of the blocks of a channel, by Chan's formula.
__device__ inline Moments channel_moments(const Moments* blocks, int count) {
  Moments all = blocks[0];
  for (int i = 1; i < count; ++i) {
    const float whole = all.count + blocks[i].count, weight = blocks[i].count / whole;
    const float distance = blocks[i].mean - all.mean, squares = all.squares + blocks[i].squares;
    all = {all.mean + distance * weight, squares + distance * distance * (all.count * weight), whole};
  }
  return all;
}

// True in the last of `count` blocks that come here; it sees what the others have written before.
__device__ inline bool is_last(unsigned int* arrived, unsigned int count) {
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

// The primitives of formulas that are not operators of the language. Those without a name of their own in the
// compiler's library are spelled out; all are within a few ulp over the whole range, with exact limits.

// The quotient of two counts, for weights of means.
__device__ inline float share(float part, float whole) { return __fdividef(part, whole); }
__device__ inline double share(double part, double whole) { return part / whole; }
"""

FORWARD = r"""
// What a launch hands over.
struct Arguments {
  const float *x, *group_norm_weight, *group_norm_bias;
  float *mean, *saved_group_norm_mean, *saved_group_norm_rstd, *saved_hardswish_mean;
  Moments* blocks_hardswish;
  unsigned int* arrived;
  long long parts, positions;
  double number1;  // 1.0 / (4 * d * h * w)
};

__global__ void __launch_bounds__(kThreads, 6) plain(const Arguments a) {
  const int parts = a.parts, team = 4 * parts, member = blockIdx.x % team;
  const int channel = member / parts, lane = min((int)threadIdx.x % 32, 3);
  const int unit = blockIdx.x / team;
  const int n = unit / 4, first = unit % 4 * 4, c = first + lane;
  const Share share = share_of(unit * 4ll + channel, a.positions, member % parts, parts);
  // Sweep 1: load x
  //   hardswish = select(x <= -3, 0 * x, select(x >= 3, x, x * (x + 3) / 6))
  //   -> moments of hardswish for each n,c
  Running hardswish_sums;
  sweep(share, {a.x}, nullptr, kNothing, [&](const float(&in)[1]) {
    const float x = in[0];
    const float t12 = x <= (-3.0f) ? (0.0f * x) : (x >= 3.0f ? x : (x * (x + 3.0f) * 0.16666667f));
    hardswish_sums.add(t12);
    return 0.0f;
  });
  const Moments block_hardswish = merged(hardswish_sums.moments(), block_sum);
  if (threadIdx.x == 0) a.blocks_hardswish[unit * team + member] = block_hardswish;
  if (!is_last(a.arrived + unit, team)) return;
  const Moments hardswish_c = channel_moments(a.blocks_hardswish + (unit * 4 + lane) * parts, parts);
  // Finalise
  const Moments group_hardswish_c = merged(hardswish_c, group_sum<4>);
  const float rstd_hardswish_c_5 = group_hardswish_c.squares * (float)a.number1 + 1e-05f;
  const float rstd_hardswish_c = rsqrtf(rstd_hardswish_c_5);
  const float mean_c_6 =
      (hardswish_c.mean - group_hardswish_c.mean) * (rstd_hardswish_c * a.group_norm_weight[c]);
  const float mean_c = mean_c_6 + a.group_norm_bias[c];
  if (threadIdx.x < 4) {
    a.mean[n * 16 + c] = mean_c;
    a.saved_group_norm_mean[n * 4 + c / 4] = group_hardswish_c.mean;
    a.saved_group_norm_rstd[n * 4 + c / 4] = rstd_hardswish_c;
    a.saved_hardswish_mean[n * 16 + c] = hardswish_c.mean;
  }
}
"""

BACKWARD = r"""
// What a launch hands over.
struct Arguments {
  const float *d_mean, *group_norm_weight, *saved_hardswish_mean, *saved_group_norm_mean,
      *saved_group_norm_rstd, *x;
  double *sum_part23, *sum_part9;
  float *d_group_norm_weight, *d_group_norm_bias, *d_x;
  unsigned int* arrived;
  long long samples, parts, positions;
  double number1;  // 1.0 / (d * h * w)
  double number2;  // n
  double number3;  // n * d * h * w
  double number4;  // d * h * w
};

__global__ void __launch_bounds__(kThreads, 6) plain(const Arguments a) {
  const int parts = a.parts, team = 4 * parts, member = blockIdx.x % team;
  const int channel = member / parts, lane = min((int)threadIdx.x % 32, 3);
  const int unit = blockIdx.x / team;
  const int n = unit / 4, first = unit % 4 * 4, c = first + lane;
  const Share share = share_of(unit * 4ll + channel, a.positions, member % parts, parts);
  // Finalise
  const float part9_c = a.d_mean[n * 16 + c] * (float)a.number1;
  const float part10_c = part9_c * a.group_norm_weight[c];
  const float mean2_c = group_sum<4>(part10_c) * 0.25f;
  const float part16_c_2 = a.saved_hardswish_mean[n * 16 + c] - a.saved_group_norm_mean[n * 4 + c / 4];
  const float part16_c = part16_c_2 * a.saved_group_norm_rstd[n * 4 + c / 4];
  const float part17_c = part10_c * part16_c;
  const float mean3_c = group_sum<4>(part17_c) * 0.25f;
  const float part23_c = part9_c * part16_c;
  if (member == 0 && threadIdx.x < 4) {
    a.sum_part23[n * 16 + c] = part23_c;
    a.sum_part9[n * 16 + c] = part9_c;
  }
  // Sums over the batch, by the last block that has statistics of these channels: a warp a channel.
  if (member == 0 && is_last(a.arrived + unit % 4, a.samples))
    for (int i = threadIdx.x / 32; i < 4; i += kThreads / 32) {
      const int c = first + i;
      const double part27 = batch_sum(a.sum_part23 + c, a.samples, 16) / a.number2;
      const double d_group_norm_weight = part27 * a.number3;
      const double d_group_norm_bias = batch_sum(a.sum_part9 + c, a.samples, 16) * a.number4;
      a.d_group_norm_weight[c] = d_group_norm_weight;
      a.d_group_norm_bias[c] = d_group_norm_bias;
    }
  // Sweep 1: load x
  //   hardswish = select(x <= -3, 0 * x, select(x >= 3, x, x * (x + 3) / 6))
  //   group_norm_hat = (hardswish - saved.group_norm.mean) * saved.group_norm.rstd
  //   d_hardswish = saved.group_norm.rstd * (part10 - mean2 - group_norm_hat * mean3)
  //   d_x = select(x <= -3, 0, select(x >= 3, d_hardswish, d_hardswish * ((x + 3 + x) / 6)))
  //   -> output d_x
  const float saved_group_norm_mean = __shfl_sync(~0u, a.saved_group_norm_mean[n * 4 + c / 4], channel);
  const float saved_group_norm_rstd = __shfl_sync(~0u, a.saved_group_norm_rstd[n * 4 + c / 4], channel);
  const float part10 = __shfl_sync(~0u, part10_c, channel);
  const float mean2 = __shfl_sync(~0u, mean2_c, channel);
  const float mean3 = __shfl_sync(~0u, mean3_c, channel);
  sweep(share, {a.x}, a.d_x, kNothing, [&](const float(&in)[1]) {
    const float x = in[0];
    const float t2 = x <= (-3.0f) ? 1 : 0;
    const float t6 = x >= 3.0f ? 1 : 0;
    const float t7 = x + 3.0f;
    const float t15 = (t2 != 0 ? (0.0f * x) : (t6 != 0 ? x : (x * t7 * 0.16666667f))) - saved_group_norm_mean;
    const float t23 = saved_group_norm_rstd * (part10 - mean2 - t15 * saved_group_norm_rstd * mean3);
    return t2 != 0 ? 0.0f : (t6 != 0 ? t23 : (t23 * ((t7 + x) * 0.16666667f)));
  });
}
"""

HOST = r"""
// Launches one of the kernels; returns CUDA's error, 0 for none.
extern "C" int launch(int kernel, void* arguments, unsigned int blocks, unsigned int threads,
                      unsigned int shared_bytes, int cooperative, cudaStream_t stream) {
  const void* const kernels[] = {(const void*)forward::plain, (const void*)backward::plain};
  const void* entry = kernels[kernel];
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const cudaError_t error = cudaFuncSetAttribute(entry, attribute, (int)shared_bytes)) return error;
  if (!cooperative) return cudaLaunchKernel(entry, blocks, threads, &arguments, shared_bytes, stream);
  return cudaLaunchCooperativeKernel(entry, blocks, threads, &arguments, shared_bytes, stream);
}
"""

KERNELS = {"forward": (PLAIN, FORWARD), "backward": (PLAIN, BACKWARD)}
DEVICE = "".join(f"namespace {name} {{\n{''.join(texts)}\n}}\n" for name, texts in KERNELS.items())
CUDA = DEVICE + HOST


def lay_out(tensor):
    """The tensor as the kernels take it: dense, and aligned to 16 bytes. Other views are copied."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def zeros(x, *sizes):
    """Memory of so many bytes each, all of them zero."""
    sizes = [(size + 15) // 16 * 16 for size in sizes]
    return x.new_zeros(sum(sizes), dtype=torch.uint8).split(sizes)


@functools.cache
def library():
    """The compiled kernels. PyTorch builds them at the first call, one process at a time, and keeps them."""
    from torch.utils.cpp_extension import load_inline

    bare = "no_implicit_headers"  # without torch's headers it builds in seconds
    options = {bare: True} if bare in inspect.signature(load_inline).parameters else {}
    name = f"fuseblock_export_{hashlib.sha256(CUDA.encode()).hexdigest()[:16]}"
    return ctypes.CDLL(load_inline(name, "", CUDA, is_python_module=False, **options))


def launch(kernel, blocks, threads, shared_bytes, cooperative, arguments):
    """Launches a kernel: addresses of tensors and numbers are its Arguments."""
    words = [each.data_ptr() if torch.is_tensor(each) else each for each in arguments]
    packed = struct.pack("".join("d" if isinstance(word, float) else "q" for word in words), *words)
    with torch.cuda.device(arguments[0].device):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        number = list(KERNELS).index(kernel)
        error = library().launch(number, packed, blocks, threads, shared_bytes, cooperative, stream)
    if error != 0:
        raise RuntimeError(f"{kernel}: the launch failed with CUDA error {error}")


def takes(x, group_norm_weight, group_norm_bias):
    """Whether the kernels take these tensors."""
    tensors = (x, group_norm_weight, group_norm_bias)
    compiling = torch.compiler.is_compiling() or torch.is_autocast_enabled()
    if not x.is_cuda or compiling or x.dim() != 5:
        return False
    n, _, d, h, w = x.shape
    gpu = torch.cuda.get_device_properties(x.device)
    return (
        gpu.major >= 8
        and all(t.device == x.device and t.dtype == torch.float32 for t in tensors)
        and [t.shape for t in tensors] == [(n, 16, d, h, w), (16,), (16,)]
        and x.numel() > 0
        and d * h * w < 1000000000
    )


def by_pytorch(x, group_norm_weight, group_norm_bias):
    """The block by PyTorch's operators."""
    hardswish = F.hardswish(x)
    group_norm = F.group_norm(hardswish, 4, weight=group_norm_weight, bias=group_norm_bias, eps=1e-05)
    return torch.mean(group_norm, dim=[2, 3, 4])


class Block(torch.autograd.Function):
    """The block and its gradients by the kernels."""

    @staticmethod
    def forward(ctx, x, group_norm_weight, group_norm_bias):
        x, group_norm_weight, group_norm_bias = map(lay_out, (x, group_norm_weight, group_norm_bias))
        n, _, d, h, w = x.shape
        mean, saved_group_norm_mean = map(x.new_empty, [(n, 16), (n, 4)])
        saved_group_norm_rstd, saved_hardswish_mean = map(x.new_empty, [(n, 4), (n, 16)])
        multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
        units = n * 4
        parts = max(min(multiprocessors * 6 // (units * 4), d * h * w // 4096), 1)
        team = 4 * parts
        arrived = x.new_zeros(units, dtype=torch.int32)
        blocks_hardswish = x.new_empty(12 * units * team, dtype=torch.uint8)
        arguments = [x, group_norm_weight, group_norm_bias, mean, saved_group_norm_mean]
        arguments += [saved_group_norm_rstd, saved_hardswish_mean, blocks_hardswish, arrived, parts]
        arguments += [d * h * w, 1.0 / (4 * d * h * w)]
        launch("forward", units * team, 256, 0, False, arguments)
        ctx.save_for_backward(
            x, group_norm_weight, saved_group_norm_mean, saved_group_norm_rstd, saved_hardswish_mean
        )
        return mean

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_mean):
        x, group_norm_weight, saved_group_norm_mean, saved_group_norm_rstd, saved_hardswish_mean = (
            ctx.saved_tensors
        )
        d_mean = lay_out(d_mean)
        n, _, d, h, w = x.shape
        d_x = torch.empty_like(x)
        d_group_norm_weight, d_group_norm_bias = map(x.new_empty, [(16,), (16,)])
        multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
        units = n * 4
        parts = max(min(multiprocessors * 6 // (units * 4), d * h * w // 4096), 1)
        team = 4 * parts
        sum_part23, sum_part9 = x.new_empty((2, n, 16), dtype=torch.float64)
        arrived = x.new_zeros(4, dtype=torch.int32)
        arguments = [d_mean, group_norm_weight, saved_hardswish_mean, saved_group_norm_mean]
        arguments += [saved_group_norm_rstd, x, sum_part23, sum_part9, d_group_norm_weight, d_group_norm_bias]
        arguments += [d_x, arrived, n, parts, d * h * w, 1.0 / (d * h * w), float(n), float(n * d * h * w)]
        arguments += [float(d * h * w)]
        launch("backward", units * team, 256, 0, False, arguments)
        return d_x, d_group_norm_weight, d_group_norm_bias


def block(x, group_norm_weight, group_norm_bias):
    """The block `hardswish | group_norm(4) | mean(d,h,w)`."""
    if takes(x, group_norm_weight, group_norm_bias):
        return Block.apply(x, group_norm_weight, group_norm_bias)
    return by_pytorch(x, group_norm_weight, group_norm_bias)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, num_groups=4, bias=True):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size, bias=bias)
        self.group_norm = nn.GroupNorm(num_groups, out_channels)

    def forward(self, x):
        conv = self.conv(x)
        return block(conv, self.group_norm.weight, self.group_norm.bias)
