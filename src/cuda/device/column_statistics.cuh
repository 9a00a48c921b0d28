// Statistics of kVector neighbouring channels, taken by the threads of a warp that have the same channels: those of
// device/vector_statistics.cuh, where `start` gets the values of the first of these threads, `took` is called once and what they take is
// one tile.

template <class Statistic>
struct OfColumn : OfVector<Statistic> {};

// Moments: sums and squares of the distances from those values, which are the same for all of the column, so that they are
// added up.
template <class Number>
struct OfColumn<Moments<Number>> {
  Number pivot[kVector], sums[kVector], squares[kVector];
  Number count;

  __device__ void clear() {
#pragma unroll
    for (int v = 0; v < kVector; ++v) pivot[v] = sums[v] = squares[v] = 0;
    count = 0;
  }
  __device__ void start(const Number (&values)[kVector]) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) pivot[v] = values[v];
  }
  __device__ void add(const Number (&values)[kVector]) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      const Number distance = values[v] - pivot[v];
      sums[v] += distance;
      squares[v] += distance * distance;
    }
  }
  __device__ void took(int taken) { count = taken; }
  __device__ void finish() {}
  template <int kRows, int kApart>
  __device__ void merge_rows(int row) {
#pragma unroll
    for (int distance = kHalfOf<kRows>; distance > 0; distance /= 2) {
      const bool joins = row + distance < kRows;
      const Number coming = __shfl_down_sync(0xffffffffu, count, distance * kApart);
      if (joins) count += coming;
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        const Number sum = __shfl_down_sync(0xffffffffu, sums[v], distance * kApart);
        const Number square = __shfl_down_sync(0xffffffffu, squares[v], distance * kApart);
        if (!joins) continue;
        sums[v] += sum;
        squares[v] += square;
      }
    }
  }
  __device__ Moments<Number> at(int v) const {
    if (count == 0) return {0, 0, 0};
    const Number distance = sums[v] * share((Number)1, count);
    return {pivot[v] + distance, squares[v] - sums[v] * distance, count};
  }
};
