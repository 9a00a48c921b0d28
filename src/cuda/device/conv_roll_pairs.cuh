// Numbers of the kernel `conv_roll` whose products have the input in registers: pairs of 16-bit numbers,
// which elements of 16 bits are as they are, and those of f32 become f16; and the powers of two that bring
// elements and weights of f32 into its range.
//
// An f16 has as many bits as a tf32, and its products have twice the rate, but what is below 2^-14 has fewer
// bits and above 65504 there is nothing. So elements of input channel c are multiplied by 2^e(c) and weights
// from c to output channel k by 2^(f(k) - e(c)), which makes sums 2^f(k) times as large. In strict mode a
// number is the sum of two f16 numbers, and their range has to hold the bits of both.
//
// Most tensors are in range with exponents that are the same for all. A block looks at what it stages. Where
// a sample's largest element of a channel is out of range it looks through the whole sample and, where that
// asks for other exponents (infinities do not), takes it again with these; it looks through the samples
// behind it first, until one has the usual exponents: so where a block has whole samples, what one gives does
// not depend on those before it.
//
// Before this stand the constants, the types Element and Factor, of which products are, Arguments,
// input_data, input_offset, input_steps and weight_at.

constexpr int kTf32 = 0, kStrict = 1, k16Bits = 2;
constexpr int kParts = kMode == kStrict ? 2 : 1;              // that a number is taken as the sum of
constexpr bool kMayScale = kRanged != 0 && kMode != kStrict;  // which strict mode always does

// Exponents of elements where nothing asks for others, and of a channel's largest element where something
// does.
constexpr int kUsualInput = kMode == kStrict ? 8 : 0;
constexpr int kWantedInput = kMode == kStrict ? 12 : 4;
// As bits of f16: the least that a channel's largest element may be, 2^3 and 2^-8, and what is beyond all.
constexpr unsigned int kLeastInput = kMode == kStrict ? 0x4800 : 0x1c00;
constexpr unsigned int kInfinity = 0x7c00;
// Exponents of an output channel's largest weight: those that stay as they are, and those that are made.
constexpr int kLeastWeight = -8, kMostWeight = 13;
constexpr int kWantedWeight = kMode == kStrict ? 8 : 0;

// Planes of pairs: the first two channels beside each other, and elements of one channel or of the third with
// those below them.
constexpr bool kBeside = kInChannels > 1, kBelow = kInChannels % 2 != 0;
static_assert(kInChannels <= 3 && (!kBelow || kFilterH > 1), "elements have pairs");
constexpr int kPairPlanes = (kBeside ? 1 : 0) + (kBelow ? 1 : 0);
__device__ inline int channel_of_half(int plane, int half) {
  return kBeside && plane == 0 ? half : kInChannels - 1;
}

__device__ inline unsigned int bits_of(bf16 x) { return x.bits; }
__device__ inline unsigned int bits_of(f16 x) { return x.bits; }
__device__ inline unsigned int bits_of(float x) { return __float_as_uint(x); }

__device__ inline unsigned int pair_of(float low, float high) {
  unsigned int pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ inline float low_of(unsigned int pair) { return to_real(f16{(unsigned short)pair}); }
__device__ inline float high_of(unsigned int pair) { return to_real(f16{(unsigned short)(pair >> 16)}); }
// Of each half the larger of what there is and of the sum of two others without signs, which is not less than
// either and at most twice the larger; NaN does not count.
__device__ inline unsigned int larger_of(unsigned int largest, unsigned int one, unsigned int other) {
  unsigned int both;
  asm("abs.f16x2 %0, %0;" : "+r"(one));
  asm("abs.f16x2 %0, %0;" : "+r"(other));
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(both) : "r"(one), "r"(other));
  asm("max.f16x2 %0, %0, %1;" : "+r"(largest) : "r"(both));
  return largest;
}

// 2 to the power of an exponent, the nearest that is there. Where a channel's largest element is below 2^-123
// (strict 2^-115), or an output channel's largest weight beside usual elements below 2^-126 (strict 2^-110),
// sums are a power of two off.
__device__ inline float power_of_two(int exponent) {
  return __uint_as_float((unsigned int)(max(-126, min(exponent, 127)) + 127) << 23);
}
__device__ inline float times_power(float x, int exponent) {
  return x * power_of_two(exponent / 2) * power_of_two(exponent - exponent / 2);
}
__device__ inline int exponent_of(float x) { return (int)(__float_as_uint(x) >> 23 & 255) - 127; }

// The thread's number in the block, for what is seldom asked for: nothing that is made of it is kept in
// registers.
__device__ inline int seldom_thread() {
  int thread;
  asm volatile("mov.u32 %0, %tid.x;" : "=r"(thread));
  return thread;
}

// A block's powers of two.
struct Scales {
  int input[kInChannels];                  // exponents of elements
  int weights[kNTiles * 8];                // exponents of weights, beside those of the elements they meet
  float sums[kNTiles * 8];                 // what sums are multiplied by
  float2 factors[kPairPlanes];             // of elements, by planes of pairs
  alignas(16) float2 undone[kNTiles * 8];  // what sums are multiplied by, and what is added then
  // As bits: of f16 of sums of two that are staged, of f32 where samples are looked through.
  unsigned int largest[kInChannels];
  bool are_others;  // than the usual ones, which but for strict mode are 1
  bool looks;       // through samples, before they are taken
};

// Whether elements are in range of whom this is the largest, as it is staged. All that are 0 there may be
// small.
__device__ inline bool is_in_range(unsigned int largest) {
  return largest >= kLeastInput && largest < kInfinity;
}
// Whether what is staged is so, where that follows from sums of two: they are at least twice the least.
__device__ inline bool are_in_range(const Scales& scales) {
  constexpr unsigned int kTwice = 0x400;  // the next exponent
  bool all = true;
#pragma unroll
  for (int c = 0; c < kInChannels; ++c)
    all = all && scales.largest[c] >= kLeastInput + kTwice && scales.largest[c] < kInfinity;
  return all;
}

__device__ inline unsigned int warp_largest(unsigned int value) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2)
    value = max(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

// One thread's.
__device__ inline void set_input(Scales& scales, const int (&exponents)[kInChannels]) {
#pragma unroll
  for (int c = 0; c < kInChannels; ++c) scales.input[c] = exponents[c];
#pragma unroll
  for (int plane = 0; plane < kPairPlanes; ++plane)
    scales.factors[plane] = make_float2(power_of_two(exponents[channel_of_half(plane, 0)]),
                                        power_of_two(exponents[channel_of_half(plane, 1)]));
}

// The usual exponents of elements.
__device__ inline void begin_scales(Scales& scales) {
  if (threadIdx.x != 0) return;
  int exponents[kInChannels];
#pragma unroll
  for (int c = 0; c < kInChannels; ++c) exponents[c] = kUsualInput;
  set_input(scales, exponents);
  scales.are_others = scales.looks = false;
}

// Exponents of weights, by those of elements: a warp takes an output channel.
__device__ inline void scale_weights(const Arguments& a, Scales& scales) {
  constexpr int kTaps = kFilterD * kFilterH * kFilterW, kNothing = -1000;
  const int thread = seldom_thread();
  __syncthreads();
  // Weights of several channels are on their way at once.
#pragma unroll 4
  for (int k = thread / 32; k < kNTiles * 8; k += kWarps) {
    int largest = kNothing;
#pragma unroll
    for (int first = 0; first < kInChannels * kTaps; first += 32) {
      const int i = first + thread % 32, c = i / kTaps, tap = i - c * kTaps;
      if (k >= kChannels || i >= kInChannels * kTaps) continue;
      const float weight = weight_at(
          a, k, c, Position{tap / (kFilterH * kFilterW), tap / kFilterW % kFilterH, tap % kFilterW});
      // Of infinities and NaN nothing is lost.
      if (weight != 0 && exponent_of(weight) < 128)
        largest = max(largest, exponent_of(weight) - scales.input[c]);
    }
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2)
      largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    const bool stays =
        largest == kNothing || (kMode != kStrict && largest >= kLeastWeight && largest <= kMostWeight);
    if (thread % 32 == 0) {
      scales.weights[k] = stays ? 0 : kWantedWeight - largest;
      scales.sums[k] = power_of_two(-scales.weights[k]);
      if (!stays) scales.are_others = true;
    }
  }
}

// The exponents that a sample asks for. Whether they are others than before.
__device__ inline bool look_through(const Arguments& a, int n, Scales& scales) {
  const InputSteps steps = input_steps(a);
  const int thread = seldom_thread();
  if (thread < kInChannels) scales.largest[thread] = 0;
  __syncthreads();
#pragma unroll 1
  for (int c = 0; c < kInChannels; ++c) {
    unsigned int largest = 0;
#pragma unroll 1
    for (int d = 0; d < (int)a.in_d; ++d) {
      const Element* plane = input_data(a) + input_offset(a, n, d) + c * steps.c;
#pragma unroll 4
      for (int i = thread; i < (int)(a.in_h * a.in_w); i += kThreads) {
        const int y = i / (int)a.in_w, x = i - y * (int)a.in_w;
        const unsigned int size = __float_as_uint(to_real(plane[y * steps.h + x * steps.w])) & 0x7fffffffu;
        if (size < 0x7f800000u) largest = max(largest, size);
      }
    }
    largest = warp_largest(largest);
    if (thread % 32 == 0) atomicMax(&scales.largest[c], largest);
  }
  __syncthreads();
  bool changes = false, scaled = false;
  int exponents[kInChannels];
#pragma unroll
  for (int c = 0; c < kInChannels; ++c) {
    const float largest = __uint_as_float(scales.largest[c]);
    const unsigned int staged = pair_of(times_power(largest, kUsualInput), 0.0f) & 0xffffu;
    exponents[c] = largest == 0 || is_in_range(staged) ? kUsualInput : kWantedInput - exponent_of(largest);
    changes = changes || exponents[c] != scales.input[c];
    scaled = scaled || exponents[c] != kUsualInput;
  }
  __syncthreads();
  if (thread == 0) {
    set_input(scales, exponents);
    if (changes) scales.are_others = scaled;  // else weights may be what has others
    scales.looks = scaled;
  }
  __syncthreads();
  return changes;
}
