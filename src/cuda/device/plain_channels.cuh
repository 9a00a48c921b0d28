// Reductions over the channels of a sample, position by position: a thread has kWidth neighbouring positions and takes
// kBatch of their channels at a time.

// The largest of the values, and the sum of exp(value - largest).
struct ExpSum {
  float largest = -3.4028235e38f,
        sum = 0;  // the least number: nothing else is below it but what counts for nothing
  __device__ void add(const float (&values)[kBatch]) {
    const float before = largest;
    for (int b = 0; b < kBatch; ++b)
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(largest) : "f"(largest), "f"(values[b]));
    // Infinities are not subtracted from each other.
    const float base = fabsf(largest) == __int_as_float(0x7f800000) ? 0.0f : largest;
    sum *= expf(before - base);
    for (int b = 0; b < kBatch; ++b) sum += expf(values[b] - base);
  }
};

// Takes the channels of a thread's positions: `program` gets the elements of the inputs at one of them, and what it returns
// is added to the position's sum.
template <int kInputs, class Program>
__device__ inline void sweep_channels(const float* const (&inputs)[kInputs], long long positions,
                                      ExpSum (&sums)[kWidth], Program program) {
  for (int first = 0; first < kChannels; first += kBatch) {
    alignas(16) float loaded[kBatch][kInputs][kWidth], values[kWidth][kBatch], in[kInputs];
    for (int b = 0; b < kBatch; ++b)
      for (int k = 0; k < kInputs; ++k) {
        if (kChannels % kBatch != 0 && first + b >= kChannels) break;
        if (kWidth == 4) *(float4*)loaded[b][k] = *(const float4*)(inputs[k] + (first + b) * positions);
        if (kWidth == 1) loaded[b][k][0] = inputs[k][(first + b) * positions];
      }
    __syncwarp();  // all loads have begun before the first is used
    for (int b = 0; b < kBatch; ++b)
      for (int i = 0; i < kWidth; ++i) {
        for (int k = 0; k < kInputs; ++k) in[k] = loaded[b][k][i];
        const bool behind = kChannels % kBatch != 0 && first + b >= kChannels;
        values[i][b] = behind ? -__int_as_float(0x7f800000) : program(first + b, in);
      }
    for (int i = 0; i < kWidth; ++i) sums[i].add(values[i]);
  }
}
