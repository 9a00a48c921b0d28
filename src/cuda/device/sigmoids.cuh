// Sigmoids of a vector's elements where results are rounded to 16 bits. Special functions are what bounds a sweep that has two for
// each element, so four elements have one reciprocal, that of the product of their divisors: 1 / a = 1 / (a b c d) * (c d) * b.

// 1 / (1 + exp(-x)) of each, as `sigmoid` of device/functions.cuh has it, within 4 ulp more. Where a product is NaN, or too large to
// have a reciprocal, each has its own, so that no element touches its neighbours.
__device__ inline void sigmoids(const float (&x)[kVector], float (&y)[kVector]) {
  static_assert(kVector % 4 == 0, "elements are taken by fours");
  float divisors[kVector], reciprocals[kVector / 4];
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x[i] * -1.44269504f));
    divisors[i] = 1.0f + e;
  }
  bool all = true;
#pragma unroll
  for (int i = 0; i < kVector; i += 4) {
    const float product = divisors[i] * divisors[i + 1] * (divisors[i + 2] * divisors[i + 3]);
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocals[i / 4]) : "f"(product));
    all = all && reciprocals[i / 4] > 0;
  }
  if (all) {
#pragma unroll
    for (int i = 0; i < kVector; i += 4) {
      const float of_first = reciprocals[i / 4] * (divisors[i + 2] * divisors[i + 3]);
      const float of_second = reciprocals[i / 4] * (divisors[i] * divisors[i + 1]);
      y[i] = of_first * divisors[i + 1];
      y[i + 1] = of_first * divisors[i];
      y[i + 2] = of_second * divisors[i + 3];
      y[i + 3] = of_second * divisors[i + 2];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y[i]) : "f"(divisors[i]));
  }
}
