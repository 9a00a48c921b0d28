// Statistics while a thread takes elements one after the other; `settled` gives what is merged.

template <class Statistic>
struct Running : Statistic {
  // `begins`: perhaps the first elements of all.
  __device__ void add(const real (&values)[kElements], unsigned int taken, bool begins) {
    Statistic::add(values, taken);
  }
  __device__ Statistic settled() const { return *this; }
};

// Sums around one of the thread's own elements, or the mean of its first ones: where that is far from the mean of all, so
// is the variance large of which they are a part, so that nothing is lost to the difference of two large numbers.
template <class Number>
struct Running<Moments<Number>> {
  Number pivot;
  Number sums[kChains], squares[kChains];
  int count;

  __device__ void clear() {
    pivot = 0;
    count = 0;
#pragma unroll
    for (int i = 0; i < kChains; ++i) sums[i] = squares[i] = 0;
  }
  __device__ void add(const Number (&values)[kElements], unsigned int taken, bool begins) {
    if (begins && count == 0) {
#pragma unroll
      for (int i = kElements - 1; i >= 0; --i)
        if (taken >> i & 1) pivot = values[i];
      if (taken == kAllElements) {
        Number rest = 0;
#pragma unroll
        for (int i = 1; i < kElements; ++i) rest += values[i] - pivot;
        pivot += rest * ((Number)1 / kElements);
      }
    }
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      if (!(taken >> i & 1)) continue;
      const Number distance = values[i] - pivot;
      sums[i % kChains] += distance;
      squares[i % kChains] += distance * distance;
    }
    count += __popc(taken);
  }
  __device__ Moments<Number> settled() const {
    if (count == 0) return Moments<Number>{0, 0, 0};
    const Number mean = quotient(sum_of(sums), (Number)count);
    const Number squared = sum_of(squares) - sum_of(sums) * mean;
    return Moments<Number>{pivot + mean, squared < 0 ? (Number)0 : squared, (Number)count};
  }
};
