// conv_mma: the source of a kernel `conv` by tensor cores. Rows of the products are positions, columns output
// channels, and the depth is the flat index k = ((c * R + r) * S + s) * T + t of a weight. A lane takes its
// elements of a row one by one out of the staged input, `offset_of(k)` behind the position's own place.
// Weights lie in shared memory as lanes take them.
//
// kMode says what is multiplied: f32 elements rounded to tf32 (as they are staged); f32 elements as the sum
// of two tf32 numbers each, of whose four products three count (strict: the error is that of f32 products);
// bf16 or f16 elements. Tensor cores cut sums off instead of rounding them: with kPromote above 0 the sums of
// so many steps are added to others, which are rounded.

constexpr int kTf32 = 0, kStrict = 1, k16Bits = 2;
constexpr int kDepth = kMode == k16Bits ? 16 : 8;  // of one step
constexpr int kTaps = kFilterD * kFilterH * kFilterW;
constexpr int kTerms = kInChannels * kTaps;
constexpr int kSteps = (kTerms + kDepth - 1) / kDepth;
constexpr int kWholeSteps = kTerms / kDepth;      // without padding
constexpr int kLaneTerms = kDepth / 4;            // of a row that a lane has in one step
constexpr int kWords = kMode == kStrict ? 4 : 2;  // of a lane's weights of one step and eight channels
constexpr int kWeightWords = kSteps * kNTiles * 32 * kWords;
constexpr int kOffsetCount = kSteps * kDepth;

// Where the input of weight k lies behind a position's own place, in bytes; terms that pad the depth have
// weight 0.
__device__ constexpr int offset_of(int k) {
  if (k >= kTerms) return 0;
  return (int)sizeof(Element) *
         (k / kTaps * kVolume + k / (kFilterH * kFilterW) % kFilterD * kDilationD * kPlane +
          k / kFilterW % kFilterH * kDilationH * kPitch + k % kFilterW * kDilationW);
}

// The depth index of a lane's term i of a step.
__device__ constexpr int term_of(int t, int i) {
  return kMode == k16Bits ? 2 * t + i % 2 + i / 2 * 8 : t + 4 * i;
}

// What a thread block prepares once.
struct Prepared {
  alignas(16) unsigned int weights[kWeightWords];
  alignas(16) int offsets[kOffsetCount];  // [step][t][term of the lane]
};

__device__ inline unsigned int bits_of(bf16 x) { return x.bits; }
__device__ inline unsigned int bits_of(f16 x) { return x.bits; }
__device__ inline unsigned int bits_of(float x) { return __float_as_uint(x); }

__device__ inline float padded_weight(const Arguments& a, int channel, int k) {
  if (channel >= kChannels || k >= kTerms) return 0;
  return weight_at(a, channel, k / kTaps,
                   {k / (kFilterH * kFilterW) % kFilterD, k / kFilterW % kFilterH, k % kFilterW});
}

__device__ inline void prepare(const Arguments& a, Prepared& prepared) {
  for (int i = (int)threadIdx.x; i < kSteps * kNTiles * 64; i += kThreads) {
    const int j = i % 2, lane = i / 2 % 32, tile = i / 64 % kNTiles, step = i / 64 / kNTiles;
    const int channel = tile * 8 + lane / 4;
    unsigned int* to = prepared.weights + ((step * kNTiles + tile) * 32 + lane) * kWords + j;
    if (kMode == k16Bits) {
      const int k = step * kDepth + lane % 4 * 2 + j * 8;
      Element lower, upper;
      assign(lower, padded_weight(a, channel, k));
      assign(upper, padded_weight(a, channel, k + 1));
      to[0] = bits_of(lower) | bits_of(upper) << 16;
    } else {
      const float weight = padded_weight(a, channel, step * kDepth + lane % 4 + j * 4);
      const float rounded = to_tf32(weight);
      to[0] = __float_as_uint(rounded);
      if (kMode == kStrict) to[2 % kWords] = __float_as_uint(to_tf32(weight - rounded));
    }
  }
  for (int i = (int)threadIdx.x; i < kOffsetCount; i += kThreads) {
    const int step = i / kDepth, t = i / kLaneTerms % 4;
    prepared.offsets[i] = offset_of(step * kDepth + term_of(t, i % kLaneTerms));
  }
}

struct Words {
  unsigned int at[kWords];
};

__device__ inline Words read_words(const unsigned int* from) {
  Words words;
  if constexpr (kWords == 4) {
    const uint4 found = *reinterpret_cast<const uint4*>(from);
    words.at[0] = found.x, words.at[1] = found.y, words.at[2] = found.z, words.at[3] = found.w;
  } else {
    const uint2 found = *reinterpret_cast<const uint2*>(from);
    words.at[0] = found.x, words.at[1] = found.y;
  }
  return words;
}

struct Offsets {
  int at[kLaneTerms];
};

// A lane's offsets of a step.
__device__ inline Offsets offsets_of_step(const Prepared& prepared, int step, int t) {
  Offsets offsets;
  if constexpr (kLaneTerms == 4) {
    const int4 found = *reinterpret_cast<const int4*>(prepared.offsets + (step * 4 + t) * kLaneTerms);
    offsets.at[0] = found.x, offsets.at[1] = found.y, offsets.at[2] = found.z, offsets.at[3] = found.w;
  } else {
    const int2 found = *reinterpret_cast<const int2*>(prepared.offsets + (step * 4 + t) * kLaneTerms);
    offsets.at[0] = found.x, offsets.at[1] = found.y;
  }
  return offsets;
}

__device__ inline void add_products(float (&sums)[4], const unsigned int (&a)[4],
                                    const unsigned int (&small)[4], const Words& b) {
  if constexpr (kMode == kStrict) {
    // Where there are few products f32 arithmetic is nearly exact, too.
    if constexpr (kSteps == 1) warp::multiply_tf32(sums, small, b.at[2 % kWords], b.at[3 % kWords]);
    warp::multiply_tf32(sums, small, b.at[0], b.at[1]);
    warp::multiply_tf32(sums, a, b.at[2 % kWords], b.at[3 % kWords]);
    warp::multiply_tf32(sums, a, b.at[0], b.at[1]);
  } else if constexpr (kMode == kTf32) {
    warp::multiply_tf32(sums, a, b.at[0], b.at[1]);
  } else if constexpr (kBf16) {
    warp::multiply_bf16(sums, a, b.at[0], b.at[1]);
  } else {
    warp::multiply_f16(sums, a, b.at[0], b.at[1]);
  }
}

// One element of the staged input, `bytes` behind a position's own place.
__device__ inline Element element_behind(const char* place, int bytes) {
  return *reinterpret_cast<const Element*>(place + bytes);
}

// The products of one step. `kLast`: of the last one, whose depth may be padded.
template <bool kLast>
__device__ inline void multiply_step(const char* staged, const int (&bases)[kRows], const Prepared& prepared,
                                     int step, float (&sums)[kMTiles][kNTiles][4]) {
  const int t = (int)threadIdx.x % 4;
  const Offsets offsets = offsets_of_step(prepared, step, t);
  auto padded = [&](int i) { return kLast && step * kDepth + term_of(t, i) >= kTerms; };
  unsigned int a[kMTiles][4], small[kMTiles][4];
#pragma unroll
  for (int m = 0; m < kMTiles; ++m)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Rows g and g + 8 in turn, with the lane's first terms, then with the others.
      const char* place = staged + bases[2 * m + i % 2];
      if constexpr (kMode == k16Bits) {
        const int first = i / 2 * 2;
        const unsigned int lower = padded(first) ? 0 : bits_of(element_behind(place, offsets.at[first]));
        const unsigned int upper =
            padded(first + 1) ? 0 : bits_of(element_behind(place, offsets.at[first + 1]));
        a[m][i] = lower | upper << 16;
      } else {
        const float x = padded(i / 2) ? 0.0f : to_real(element_behind(place, offsets.at[i / 2]));
        if (kMode == kStrict) {
          const float rounded = to_tf32(x);
          a[m][i] = __float_as_uint(rounded);
          small[m][i] = rest_of(x, rounded);
        } else {
          a[m][i] = __float_as_uint(x);
        }
      }
    }
#pragma unroll
  for (int n = 0; n < kNTiles; ++n) {
    const Words b =
        read_words(prepared.weights + ((step * kNTiles + n) * 32 + (int)threadIdx.x % 32) * kWords);
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) add_products(sums[m][n], a[m], small[m], b);
  }
}

// The products of all filter rows of one input channel and depth, where the group's products are rows of the
// image one below the other: what filter row s meets for one is what row s - 1 meets for the next, and is
// read once.
__device__ inline void multiply_down(const char* staged, const int (&bases)[kRows], const Prepared& prepared,
                                     int plane, float (&sums)[kMTiles][kNTiles][4]) {
  constexpr int kDeep = kMTiles + kFilterH / 2 * 2 - 1;  // kFilterH is even
  constexpr int kBytes = (int)sizeof(Element);
  const int offset =
      (plane / kFilterD * kVolume + plane % kFilterD * kDilationD * kPlane + (int)threadIdx.x % 4) * kBytes;
  unsigned int a[kDeep][2], small[kDeep][2];
#pragma unroll
  for (int y = 0; y < kDeep; ++y)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float x = to_real(element_behind(staged + bases[i] + offset, y * kPitch * kBytes));
      const float rounded = kMode == kStrict ? to_tf32(x) : x;
      a[y][i] = __float_as_uint(rounded);
      small[y][i] = rest_of(x, rounded);
    }
#pragma unroll
  for (int s = 0; s + 1 < kFilterH; s += 2)
#pragma unroll
    for (int n = 0; n < kNTiles; ++n) {
      const int step = (plane * kFilterH + s) / 2;
      const Words b =
          read_words(prepared.weights + ((step * kNTiles + n) * 32 + (int)threadIdx.x % 32) * kWords);
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        const int y = m + s;
        const unsigned int own[4] = {a[y][0], a[y][1], a[y + 1][0], a[y + 1][1]};
        const unsigned int rest[4] = {small[y][0], small[y][1], small[y + 1][0], small[y + 1][1]};
        add_products(sums[m][n], own, rest, b);
      }
    }
}

__device__ inline void add_sums(float (&sums)[kMTiles][kNTiles][4],
                                const float (&some)[kMTiles][kNTiles][4]) {
#pragma unroll
  for (int m = 0; m < kMTiles; ++m)
#pragma unroll
    for (int n = 0; n < kNTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] += some[m][n][i];
}

// Adds a group's products to `sums`. `bases` are the places of the lane's positions in the staged input, in
// bytes.
__device__ inline void multiply(const char* staged, const int (&bases)[kRows], const Prepared& prepared,
                                float (&sums)[kMTiles][kNTiles][4]) {
  if constexpr (kDown != 0) {
#pragma unroll 1
    for (int plane = 0; plane < kInChannels * kFilterD; ++plane) {
      if constexpr (kPromote == 0) {
        multiply_down(staged, bases, prepared, plane, sums);
      } else {
        float some[kMTiles][kNTiles][4] = {};
        multiply_down(staged, bases, prepared, plane, some);
        add_sums(sums, some);
      }
    }
  } else if constexpr (kPromote == 0) {
#pragma unroll 1
    for (int step = 0; step < kWholeSteps; ++step) multiply_step<false>(staged, bases, prepared, step, sums);
    if constexpr (kWholeSteps < kSteps) multiply_step<true>(staged, bases, prepared, kWholeSteps, sums);
  } else {
#pragma unroll 1
    for (int first = 0; first < kSteps; first += kPromote) {
      float some[kMTiles][kNTiles][4] = {};
      const int end = first + kPromote < kWholeSteps ? first + kPromote : kWholeSteps;
#pragma unroll 1
      for (int step = first; step < end; ++step) multiply_step<false>(staged, bases, prepared, step, some);
      if constexpr (kWholeSteps < kSteps) {
        if (first + kPromote >= kSteps) multiply_step<true>(staged, bases, prepared, kWholeSteps, some);
      }
      add_sums(sums, some);
    }
  }
}
