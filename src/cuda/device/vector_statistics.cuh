// Statistics of kVector neighbouring channels, taken by one thread position by position: those of device/statistics.cuh, one
// for each channel.
//   clear()        nothing is taken yet
//   start(values)  those of a position that will be taken; nothing is taken
//   add(values)    takes a position, a value for each channel
//   took(count)    so many positions were added since this was called last
//   finish()       behind the last position
//   merge_rows<kRows, kApart>(row)  joins those of kRows threads, kApart lanes apart, in the first; `row` is this one's number
//   at(v)          the statistic of a channel

// The largest power of two below `count`.
template <int kCount>
constexpr int kHalfOf = kCount > 16  ? 16
                        : kCount > 8 ? 8
                        : kCount > 4 ? 4
                        : kCount > 2 ? 2
                                     : kCount - 1;

template <class Statistic>
struct OfVector {
  Statistic of[kVector];

  __device__ void clear() {
#pragma unroll
    for (int v = 0; v < kVector; ++v) of[v].clear();
  }
  __device__ void start(const real (& /*values*/)[kVector]) {}
  __device__ void add(const real (&values)[kVector]) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      const real one[1] = {values[v]};
      of[v].add(one, 1u);
    }
  }
  __device__ void took(int /*count*/) {}
  __device__ void finish() {}
  template <int kRows, int kApart>
  __device__ void merge_rows(int row) {
#pragma unroll
    for (int distance = kHalfOf<kRows>; distance > 0; distance /= 2) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        const Statistic other = warp::shuffle_down(of[v], distance * kApart);
        if (row + distance < kRows) of[v].merge(other);
      }
    }
  }
  __device__ Statistic at(int v) const { return of[v]; }
};

// Positions of a tile of moments. The sums of a tile lose at most so many roundings of its variance.
constexpr int kTilePositions = 64;

// Moments tile by tile. Inside a tile sums and squares are taken of the distances from one of the channel's own values in
// the first tile, then from the mean of the tiles before; a tile is merged by Chan's formula.
template <class Number>
struct OfVector<Moments<Number>> {
  Number mean[kVector], squares[kVector];  // of the tiles before
  Number count;
  Number sums[kVector], sum_squares[kVector];  // of this tile, around `mean`
  int tile;                                    // its positions

  __device__ void clear() {
#pragma unroll
    for (int v = 0; v < kVector; ++v) mean[v] = squares[v] = sums[v] = sum_squares[v] = 0;
    count = 0;
    tile = 0;
  }
  __device__ void start(const Number (&values)[kVector]) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) mean[v] = values[v];
  }
  __device__ void add(const Number (&values)[kVector]) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      const Number distance = values[v] - mean[v];
      sums[v] += distance;
      sum_squares[v] += distance * distance;
    }
  }
  __device__ void took(int taken) {
    tile += taken;
    if (tile >= kTilePositions) merge_tile();
  }
  __device__ void finish() {
    if (tile > 0) merge_tile();
  }
  __device__ void merge_tile() {
    const Number part = share((Number)tile, count + tile);
    const Number one = share((Number)1, (Number)tile);
    const Number weight = count * part;
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      const Number distance = sums[v] * one;
      squares[v] += sum_squares[v] - sums[v] * distance + distance * distance * weight;
      mean[v] += distance * part;
      sums[v] = sum_squares[v] = 0;
    }
    count += tile;
    tile = 0;
  }
  // By Chan's formula; what a row counts beside another is the same for all channels.
  template <int kRows, int kApart>
  __device__ void merge_rows(int row) {
#pragma unroll
    for (int distance = kHalfOf<kRows>; distance > 0; distance /= 2) {
      const Number coming = __shfl_down_sync(0xffffffffu, count, distance * kApart);
      const bool joins = row + distance < kRows && coming > 0;
      const Number part = share(coming, count + coming);
      const Number weight = count * part;
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        const Number away = __shfl_down_sync(0xffffffffu, mean[v], distance * kApart) - mean[v];
        const Number others = __shfl_down_sync(0xffffffffu, squares[v], distance * kApart);
        if (!joins) continue;
        squares[v] += others + away * away * weight;
        mean[v] += away * part;
      }
      if (joins) count += coming;
    }
  }
  __device__ Moments<Number> at(int v) const { return {mean[v], squares[v], count}; }
};
