// Functions and statistics that choose in place of branching, for kernels that instructions bound and not
// memory. They stand for those of the same names in device/functions.cuh and device/statistics.cuh.

namespace branchless {

// 1 - 2 / (exp(2 |x|) + 1), by ex2.approx and rcp.approx, and near 0 an odd polynomial whose error is 2^-24
// of the value: within 4 ulp. Where results are rounded to 16 bits x itself is near enough below 0.01. Of sums
// of tf32 products (k16Bit is 2), whose own error is 1e-4, it is left out: the error is 2^-23. Where results
// are rounded to bf16 (k16Bit is 3) it is tanh.approx, whose error is 2^-11 of the value.
__device__ inline float hyperbolic_tangent(float x) {
  if constexpr (k16Bit == 3) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  const float size = fabsf(x);
  float e, quotient;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"((k16Bit == 2 ? x : size) * 2.88539008f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(quotient) : "f"(e + 1.0f));
  if (k16Bit == 2) return fmaf(-2.0f, quotient, 1.0f);
  const float far = copysignf(fmaf(-2.0f, quotient, 1.0f), x);
  if (k16Bit) return size < 0.01f ? x : far;
  const float square = x * x;
  float near = fmaf(square, 0.0164375175f, -0.0526717752f);
  near = fmaf(near, square, 0.133207247f);
  near = fmaf(near, square, -0.333329469f);
  near = fmaf(near * square, x, x);
  return size < 0.55f ? near : far;
}

// x * hardsigmoid(x), with the sum as it is: exact near its zeros. Where more than that is lost elsewhere it
// is a product and a sum in one.
__device__ inline float hardswish(float x) {
  return x * __saturatef(k16Bit ? fmaf(x, 0.16666667f, 0.5f) : (x + 3.0f) * 0.16666667f);
}

// Where results are rounded to 16 bits it is ex2.approx of a rounded product, whose error grows to 1e-5 of
// the value at the ends of the range, and what is below 1e-38 is 0.
__device__ inline float exponential(float x) {
  if (!k16Bit) return expf(x);
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
}
__device__ inline double exponential(double x) { return exp(x); }

// exp(x - base) for many x that are at most the base. Of 16 bits it is one power of two of a sum of products:
// what the base's own product is rounded by is common to all of them, and below the base's last place. A base
// whose product would not be finite is left without a factor: what is below it then counts for nothing.
template <class Number>
struct ExpAbove {
  Number factor, shift;

  __device__ explicit ExpAbove(Number base)
      : factor(absolute(base) < (Number)1e38 ? (Number)1.44269504 : (Number)1),
        shift(k16Bit ? base * -factor : base) {}
  __device__ Number of(float x) const {
    if (!k16Bit) return exponential(x - shift);
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaf(x, factor, shift)));
    return y;
  }
  __device__ Number of(double x) const { return exponential(x - shift); }
};

template <class Number>
struct ExpSum : ::ExpSum<Number> {
  __device__ void add(const Number (&values)[kElements], unsigned int taken) {
    Number largest = this->first;
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (taken >> i & 1) largest = maximum(largest, values[i]);
    // Infinities are not subtracted from each other: beside one the sum is infinite, or nothing.
    const Number base = absolute(largest) == __int_as_float(0x7f800000) ? (Number)0 : largest;
    const ExpAbove<Number> above(base);
    Number sum = this->first == largest ? this->second : this->second * exponential(this->first - base);
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (taken >> i & 1) sum += above.of(values[i]);
    this->first = largest;
    this->second = sum;
  }
};

}  // namespace branchless
