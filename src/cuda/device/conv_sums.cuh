// What kernels over convolutions have of a sample, and how their lanes hand statistics to each other.

// The statistics of one sample.
struct Unit {
  int n;
  int first_channel;
  UnitValues* values;
};

// The value of the lane at `distance`.
template <class Value>
__device__ inline Value from_lane_at(const Value& value, int distance) {
  Value result;
  const unsigned int* from = reinterpret_cast<const unsigned int*>(&value);
  unsigned int* to = reinterpret_cast<unsigned int*>(&result);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(Value) / 4); ++i) to[i] = __shfl_xor_sync(0xffffffffu, from[i], distance);
  return result;
}

// A statistic that another block has written, as it stands in memory.
template <class Value>
__device__ inline Value read_of_other_block(const Value* from) {
  Value value;
  unsigned int* words = reinterpret_cast<unsigned int*>(&value);
  const unsigned int* places = reinterpret_cast<const unsigned int*>(from);
#pragma unroll
  for (int k = 0; k < (int)(sizeof(Value) / 4); ++k)
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(words[k]) : "l"(places + k) : "memory");
  return value;
}
