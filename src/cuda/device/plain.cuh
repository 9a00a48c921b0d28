// A vector on its way to shared memory.
__device__ inline void copy(float4* to, const float* from) {
  const unsigned int place = (unsigned int)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
}

// Takes the elements of a share, which a block or some threads of it have: a channel, a part of one, or more.
// `program` gets those of the inputs at one place, 4 apart; what it makes of them goes to `output`, if any.
template <int kSharers, int kInputs, class Program>
__device__ inline void sweep(long long begin, long long end, const float* const (&inputs)[kInputs],
                             float* output, float4* kept, long long next, Program program) {
  constexpr int kBatch = kInputs == 1 ? 4 : 2;
  const long long first = kEdges ? min((begin + 3) / 4 * 4, end) : begin;
  const int vectors = (int)((end - first) / 4), thread = threadIdx.x % kSharers;
  if (kKept > 0) asm volatile("cp.async.wait_all;" ::: "memory");
  for (int start = 0; start < vectors; start += kBatch * kSharers) {
    alignas(16) float loaded[kBatch][kInputs][4], results[4];
    for (int b = 0; b < kBatch; ++b)
      for (int k = 0; k < kInputs; ++k) {
        const int at = start + b * kSharers + thread;
        const float4* from = (const float4*)(inputs[k] + first) + at;
        if (kKept > 0 && at < kKept / kInputs) from = kept + k * (kKept / kInputs) + at;
        if (at < vectors) *(float4*)loaded[b][k] = *from;
      }
    __syncwarp();  // all loads have begun before the first is used
    for (int b = 0; b < kBatch; ++b) {
      const int at = start + b * kSharers + thread;
      if (at >= vectors) break;
      for (int i = 0; i < 4; ++i) program(loaded[b][0] + i, results[i]);
      if (output) ((float4*)(output + first))[at] = *(float4*)results;
      if (kKept > 0 && kEdges == 0 && next >= 0 && at < kKept / kInputs)  // room for the next share's
        for (int k = 0; k < kInputs; ++k) copy(kept + k * (kKept / kInputs) + at, inputs[k] + next + 4 * at);
    }
  }
  if (kEdges) {  // the elements around them one by one
    const long long edge = (begin + thread < first ? begin : begin + 4 * vectors) + thread;
    float loaded[kInputs][4], result;
    if (edge >= end) return;
    for (int k = 0; k < kInputs; ++k) loaded[k][0] = inputs[k][edge];
    program(loaded[0], result);
    if (output) output[edge] = result;
  }
}

// Begins to bring the first kKept vectors of a share, of all inputs, to shared memory; each thread its own.
template <int kInputs>
__device__ inline void keep(long long begin, long long end, const float* const (&from)[kInputs], float4* to) {
  const long long first = kEdges ? min((begin + 3) / 4 * 4, end) : begin;
  for (int at = threadIdx.x; at < min((int)((end - first) / 4), kKept / kInputs); at += kThreads)
    for (int k = 0; k < kInputs; ++k) copy(to + k * (kKept / kInputs) + at, from[k] + first + 4 * at);
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
template <int kChannels>
__device__ inline float unit_sum(float x) {
  return warp_sum(threadIdx.x % 32 < kChannels ? x : 0);
}
// Over each group of neighbouring channels.
template <int kChannels>
__device__ inline float group_sum(float x) {
  float sum = 0;
  for (int i = 0; i < kChannels; ++i)
    sum += __shfl_sync(~0u, x, threadIdx.x % 32 / kChannels * kChannels + i);
  return sum;
}
// Over the blocks of a channel.
template <int kParts>
__device__ inline float channel_sum(const float* blocks) {
  float sum = 0;
  for (int i = 0; i < kParts; ++i) sum += blocks[i];
  return sum;
}
// Over the blocks of a channel in all samples.
template <int kParts>
__device__ inline double batch_sum(const float* blocks, int samples, int channels) {
  double sum = 0;
  for (int i = threadIdx.x % 32; i < samples * kParts; i += 32)
    sum += blocks[i / kParts * channels * kParts + i % kParts];
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

// Those of a channel out of its blocks', by Chan's formula.
template <int kParts>
__device__ inline Moments channel_moments(const Moments* blocks) {
  Moments all = blocks[0];
  for (int i = 1; i < kParts; ++i) {
    const float whole = all.count + blocks[i].count, weight = blocks[i].count / whole;
    const float distance = blocks[i].mean - all.mean, squares = all.squares + blocks[i].squares;
    all = {all.mean + distance * weight, 0, squares + distance * distance * (all.count * weight), whole};
  }
  return all;
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
