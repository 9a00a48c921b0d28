// Sigmoids of the elements of a vector, two with one reciprocal: 1 / a is b / (a b). For results that are rounded to 16 bits; a
// single one is `sigmoid`.
//
// What is returned is below kPairsHold where all of them are right. Elsewhere a product is too large for that, or an element is none, and
// its neighbour may be wrong, too: whoever asked takes each by itself.

constexpr float kPairsHold = 8e37f;

__device__ inline float sigmoids(const real (&x)[kVector], real (&y)[kVector]) {
  static_assert(kVector % 2 == 0, "pairs");
  float divisors[kVector], products = 0;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x[i] * -1.44269504f));
    divisors[i] = 1.0f + e;
  }
#pragma unroll
  for (int i = 0; i < kVector; i += 2) {
    const float product = divisors[i] * divisors[i + 1];
    float both;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(both) : "f"(product));
    y[i] = divisors[i + 1] * both;
    y[i + 1] = divisors[i] * both;
    products += product;
  }
  return products;
}
