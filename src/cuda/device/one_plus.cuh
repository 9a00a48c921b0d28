// 1 + erf(t) and 1 + tanh(t), of an argument that is a number and a rest below its last place, within a few ulp also where
// the sum nearly cancels: there its value depends on the argument's rest, and a sum of two rounded numbers has no digit left.

// Below -0.5: erfc(z) with z = -t is exp(-z^2) times a function that varies little, here a quotient: a polynomial of
// (z - 2) / (z + 2), whose error is below 7e-9 from 0.5 to 10, over 1 + 2 z. Behind 15 it is 0 in every type.
__device__ inline float one_plus_error_function(float t, float rest) {
  if (t > -0.5f) return 1.0f + erff(t);
  if (t < -15.0f) return 0.0f;
  const float square = __fmul_rn(t, t);
  const float below = fmaf(t, t, -square) + 2.0f * t * rest;
  const float q = __fdividef(-t - 2.0f, 2.0f - t);
  float p = -2.3959593e-04f;
  p = fmaf(p, q, -0.0012869484f);
  p = fmaf(p, q, 0.0011664437f);
  p = fmaf(p, q, 0.008677083f);
  p = fmaf(p, q, -0.008014295f);
  p = fmaf(p, q, -0.05421622f);
  p = fmaf(p, q, 0.1640501f);
  p = fmaf(p, q, -0.16603033f);
  p = fmaf(p, q, -0.092763826f);
  p = fmaf(p, q, 1.2769784f);
  // What the product of both and the quotient leave out is added at the end, so that they are rounded once.
  const float e = expf(-square);
  const float divisor = 1.0f - 2.0f * t;
  const float divisor_rest = 1.0f - (divisor + 2.0f * t);
  const float inverse = __fdividef(1.0f, divisor);
  const float quotient = __fmul_rn(p, inverse);
  const float quotient_rest = (fmaf(-quotient, divisor, p) - quotient * divisor_rest) * inverse;
  const float product = __fmul_rn(e, quotient);
  return product + (fmaf(e, quotient, -product) + (e * quotient_rest - product * below));
}

// 2 / (1 + exp(-2 t)).
__device__ inline float one_plus_hyperbolic_tangent(float t, float rest) {
  if (t < -44.0f) return 0.0f;
  float e = expf(-2.0f * t);
  if (t < 0.0f) e = fmaf(e, -2.0f * rest, e);
  return 2.0f / (1.0f + e);
}
