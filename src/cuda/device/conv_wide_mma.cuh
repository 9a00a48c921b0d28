// Products of the kernel `conv_wide`: rows are positions, columns output channels, and a step is 32 bytes
// deep, eight f32 or 16 of the smaller channels at one tap. Both factors lie in shared memory in cells of 16
// bytes, so that eight rows are read as one matrix.
//
// kMode says what is multiplied: f32 elements rounded to tf32 (as they are staged); f32 elements as the sum
// of two tf32 numbers each, of whose four products three count (strict); bf16 or f16 elements. Tensor cores
// cut sums off instead of rounding them: in strict mode the sums of a tap are added to others, which are
// rounded.

__device__ inline void add_products(float (&sums)[4], const unsigned int (&a)[4], unsigned int b0,
                                    unsigned int b1) {
  if constexpr (kMode != k16Bits)
    warp::multiply_tf32(sums, a, b0, b1);
  else if constexpr (kBf16 != 0)
    warp::multiply_bf16(sums, a, b0, b1);
  else
    warp::multiply_f16(sums, a, b0, b1);
}

// Numbers as the sum of two, each of which is one of tf32: rounded, ties away from zero, and what that
// leaves. The first of a NaN may be a number, the second is not.
__device__ inline void split(unsigned int (&words)[4], unsigned int (&small)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned int rounded = (words[i] + 0x1000u) & 0xffffe000u;
    small[i] = __float_as_uint(__uint_as_float(words[i]) - __uint_as_float(rounded));
    words[i] = rounded;
  }
}

// One step. The lane's rows of the first factor are `rows` behind `image`, those of the second at `columns`.
__device__ inline void multiply_step(const unsigned int (&rows)[kMTiles], unsigned int image,
                                     unsigned int columns, float (&sums)[kMTiles][kNTiles][4]) {
  unsigned int a[kMTiles][4], small[kMTiles][4];
#pragma unroll
  for (int m = 0; m < kMTiles; ++m) {
    warp::read_matrices(a[m], image + rows[m]);
    if constexpr (kMode == kStrict) split(a[m], small[m]);
  }
#pragma unroll
  for (int n = 0; n < kNTiles; n += 2) {
    unsigned int b[4], rest[4];
    warp::read_matrices(b, columns + n * 8 * 16);
    if constexpr (kMode == kStrict) {
      split(b, rest);
#pragma unroll
      for (int m = 0; m < kMTiles; ++m)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          add_products(sums[m][n + k], small[m], b[2 * k], b[2 * k + 1]);
          add_products(sums[m][n + k], a[m], rest[2 * k], rest[2 * k + 1]);
        }
    }
#pragma unroll
    for (int m = 0; m < kMTiles; ++m)
#pragma unroll
      for (int k = 0; k < 2; ++k) add_products(sums[m][n + k], a[m], b[2 * k], b[2 * k + 1]);
  }
}

// The steps of one tap of a stage.
__device__ inline void multiply_tap(const unsigned int (&rows)[kMTiles], unsigned int image,
                                    unsigned int columns, int tap, float (&sums)[kMTiles][kNTiles][4]) {
#pragma unroll
  for (int depth = 0; depth < kChunkSteps; ++depth)
    multiply_step(rows, image + (tap * kDilationW + depth * 2 * kQuad) * 16,
                  columns + (tap * kChunkSteps + depth) * 2 * kBlockChannels * 16, sums);
}

// All steps of a stage.
__device__ inline void multiply(const unsigned int (&rows)[kMTiles], unsigned int image, unsigned int columns,
                                float (&sums)[kMTiles][kNTiles][4]) {
  constexpr int kTogether = kMode == kStrict ? 1 : kRowTaps;  // registers are for the sums of one tap there
#pragma unroll kTogether
  for (int tap = 0; tap < kRowTaps; ++tap) {
    if constexpr (kMode == kStrict) {
      float some[kMTiles][kNTiles][4] = {};
      multiply_tap(rows, image, columns, tap, some);
#pragma unroll
      for (int m = 0; m < kMTiles; ++m)
#pragma unroll
        for (int n = 0; n < kNTiles; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[m][n][i] += some[m][n][i];
    } else {
      multiply_tap(rows, image, columns, tap, sums);
    }
  }
}
