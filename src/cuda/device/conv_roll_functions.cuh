// Functions of programs of the kernel `conv_roll`.

// tanh(t) of x = 2 t / ln 2: 1 - 2 / (2^x + 1), by ex2.approx and rcp.approx, as
// branchless::hyperbolic_tangent has it for sums of tf32 products. The factor is part of what t was made with.
__device__ inline float tangent_of_power(float x) {
  float e, quotient;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(quotient) : "f"(e + 1.0f));
  return fmaf(-2.0f, quotient, 1.0f);
}
