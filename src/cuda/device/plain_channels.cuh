// The largest of the values at a position, and the sum of exp(value - largest).
// A thread has kWidth neighbouring positions and takes kBatch of their channels at a time.
struct ExpSum {
  // The least number: nothing else is below it but what counts for nothing.
  float largest = -3.4028235e38f, sum = 0;
  __device__ void add(const float (&values)[kBatch]) {
    const float before = largest;
    for (int b = 0; b < kBatch; ++b)
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(largest), "f"(values[b]));
    const float base = fabsf(largest) == __int_as_float(0x7f800000) ? 0.0f : largest;  // never inf - inf
    sum *= expf(before - base);
    for (int b = 0; b < kBatch; ++b) sum += expf(values[b] - base);
  }
};
