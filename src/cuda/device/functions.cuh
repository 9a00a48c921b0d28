// The primitives of formulas that are not operators of the language. Those without a name of their own in the
// compiler's library are spelled out; all are within a few ulp over the whole range, with exact limits.

__device__ inline float minimum(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ inline float maximum(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ inline double minimum(double a, double b) { return a != a || a < b ? a : b; }
__device__ inline double maximum(double a, double b) { return a != a || a > b ? a : b; }

__device__ inline float absolute(float x) { return fabsf(x); }
__device__ inline double absolute(double x) { return fabs(x); }

__device__ inline float square_root(float x) { return sqrtf(x); }
__device__ inline double square_root(double x) { return sqrt(x); }

// 1 / sqrt(x). In float it is rsqrt.approx, within 2 ulp.
__device__ inline float reciprocal_root(float x) { return rsqrtf(x); }
__device__ inline double reciprocal_root(double x) { return 1.0 / sqrt(x); }

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

__device__ inline float exponential_minus_1(float x) { return expm1f(x); }
__device__ inline double exponential_minus_1(double x) { return expm1(x); }

__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline double logarithm(double x) { return log(x); }

// log(1 + exp(x)), finite wherever x is.
__device__ inline float log_1_plus_exp(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))) + (x - x); }
__device__ inline double log_1_plus_exp(double x) { return fmax(x, 0.0) + log1p(exp(-fabs(x))) + (x - x); }

__device__ inline float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ inline double hyperbolic_tangent(double x) { return tanh(x); }

__device__ inline float error_function(float x) { return erff(x); }
__device__ inline double error_function(double x) { return erf(x); }

// 1 / (1 + exp(-x)). The quotient is rcp.approx, within 1 ulp. Where results are rounded to 16 bits, exp is ex2.approx of a
// rounded product, whose error grows to 1e-5 of the value at the ends of the range, and what is below 1e-38 is 0.
__device__ inline float sigmoid(float x) {
  float y;
  if (k16Bit) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.44269504f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1.0f + e));
  } else {
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(1.0f + expf(-x)));
  }
  return y;
}
__device__ inline double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

// A sum by its count, rounded as a quotient is, or nearly so.
__device__ inline float quotient(float sum, float count) {
  const float each = __fdividef(1.0f, count), near = sum * each;
  return fmaf(fmaf(-count, near, sum), each, near);
}
__device__ inline double quotient(double sum, double count) { return sum / count; }

// The quotient of two counts, for weights of means.
__device__ inline float share(float part, float whole) { return __fdividef(part, whole); }
__device__ inline double share(double part, double whole) { return part / whole; }
