// A kernel with a short text. A block works on a share: a part of one channel of one sample. The blocks of a unit, the
// channels of a sample that a norm takes together, are a team. Where statistics are worked out, each lane of every warp
// stands for one of the unit's channels. Sums are added up in a fixed order.

struct alignas(16) Vector {
  float at[4];
};

// A run of a tensor's elements: whole vectors from `first` on, a few elements before and behind them.
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
__device__ inline Vector* kept_vectors() {
  extern __shared__ Vector kept[];
  return kept;
}
enum Keep { kNothing, kWrite, kRead };

// Takes all elements of a share: `program` gets those of the inputs at one place, and what it returns goes to `output`,
// unless that is null. Several vectors of a thread are on the way at once.
template <int kInputs, class Program>
__device__ inline void sweep(const Share& share, const float* const (&inputs)[kInputs], float* output, Keep keep,
                             Program program) {
  constexpr int kBatch = kInputs == 1 ? 4 : 2;
  float in[kInputs];
  for (int start = 0; start < share.vectors; start += kBatch * kThreads) {
    const int v = start + threadIdx.x;
    Vector loaded[kBatch][kInputs];
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
        const int at = min(v + b * kThreads, share.vectors - 1);
        const Vector* from = (const Vector*)(inputs[k] + share.first) + at;
        if (kKept > 0 && keep == kRead && at < kKept / kInputs) from = kept_vectors() + k * (kKept / kInputs) + at;
        loaded[b][k] = *from;
      }
    __syncwarp();  // all loads have begun before the first is used
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int at = v + b * kThreads;
      if (at >= share.vectors) break;
      Vector results;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int k = 0; k < kInputs; ++k) in[k] = loaded[b][k].at[i];
        results.at[i] = program(in);
      }
      if (output) ((Vector*)(output + share.first))[at] = results;
      if (kKept > 0 && keep == kWrite && at < kKept / kInputs)
#pragma unroll
        for (int k = 0; k < kInputs; ++k) kept_vectors()[k * (kKept / kInputs) + at] = loaded[b][k];
    }
  }
  const int t = threadIdx.x;
  if (t >= share.before + share.behind) return;
  const long long edge = share.first - share.before + t + (t < share.before ? 0 : 4 * share.vectors);
#pragma unroll
  for (int k = 0; k < kInputs; ++k) in[k] = inputs[k][edge];
  const float result = program(in);
  if (output) output[edge] = result;
}

// Brings a share of the next unit to L2 while this block waits.
template <int kInputs>
__device__ inline void prefetch(const Share& share, const float* const (&inputs)[kInputs], bool exists) {
  for (int v = 8 * threadIdx.x; exists && v < share.vectors; v += 8 * kThreads)
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(inputs[k] + share.first + 4 * v));
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

// Over the blocks of a channel.
__device__ inline float channel_sum(const float* blocks, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += blocks[i];
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
    const Moments next = blocks[i];
    const float whole = all.count + next.count, weight = next.count / whole, distance = next.mean - all.mean;
    all.squares += next.squares + distance * distance * (all.count * weight);
    all.mean += distance * weight;
    all.count = whole;
  }
  return all;
}

// What the lane of a channel has, in all lanes.
__device__ inline float of_channel(float x, int channel) { return __shfl_sync(0xffffffffu, x, channel); }

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

// Waits until `count` blocks are here, which all run at the same time.
__device__ inline void wait_for(unsigned int* arrived, unsigned int count) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(arrived, 1u);
    while (*(volatile unsigned int*)arrived < count) {
    }
    __threadfence();
  }
  __syncthreads();
}
