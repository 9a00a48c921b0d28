// What kernels over convolutions with few channels do with a warp's sums of products: the sweep's program and
// sinks.
//
// A lane has kRows positions and kColumns channels. Statistics of each channel are kept over all of an item
// (without their count, which is the same for all channels), then merged lane by lane, warp by warp, and item
// by item of the sample, by the block that ends the sample's last one, in an order that depends on the shapes
// alone. Statistics of each position are merged over the four lanes that have its channels.
//
// Before this stand Shared, Unit and the struct Sites: where a lane's positions are (`at`), and which of them
// are there (`inside`).

// A lane's channel, by its number among kColumns.
__device__ inline int channel_of(int e) { return e / 2 * 8 + (int)threadIdx.x % 4 * 2 + e % 2; }
__device__ inline int within(int channel) {
  return kChannels % 8 == 0 || channel < kChannels ? channel : kChannels - 1;
}

// What sum i of a lane's sums starts at.
template <class Sweep>
__device__ inline float bias_of(const typename Sweep::Channel* channels, int i) {
  return Sweep::bias(channels[within(channel_of(i / 4 * 2 + i % 2))]);
}

constexpr unsigned int kAllRows = (1u << kRows) - 1;

// The program and the sinks for each channel of a lane's positions. `kWhole`: all of them are there.
template <class Sweep, bool kWhole>
__device__ inline void take_channels(const Arguments& a, const typename Sweep::Channel* channels,
                                     const typename Sweep::Places (&places)[kRows], unsigned int inside,
                                     const float (&products)[kMTiles][kNTiles][4],
                                     typename Sweep::Kept (&kept)[kColumns]) {
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    const int c = within(channel_of(e));
    const typename Sweep::Channel channel = channels[c];
    const typename Sweep::Steps steps = Sweep::steps(a, c);
    typename Sweep::Results results[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      results[i] = Sweep::program(channel, places[i], steps, products[i / 2][e / 2][i % 2 * 2 + e % 2]);
    if constexpr (Sweep::kStatistics) kept[e].add(results, kWhole ? kAllRows : inside);
    if (channel_of(e) < kChannels) {
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (kWhole || (inside >> i & 1)) Sweep::store(places[i], steps, results[i]);
    }
  }
}

template <class Sweep>
__device__ inline void take_products(const Arguments& a, const Unit& unit,
                                     const typename Sweep::Channel* channels, const Sites& sites,
                                     const float (&products)[kMTiles][kNTiles][4],
                                     typename Sweep::Kept (&kept)[kColumns], int& count) {
  typename Sweep::Places places[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) places[i] = Sweep::places(a, unit, sites.at[i]);
  if constexpr (kOverPositions != 0) {
    if constexpr (Sweep::kStatistics) {
      if (__any_sync(0xffffffffu, count == 0)) {
#pragma unroll
        for (int e = 0; e < kColumns; ++e) {
          const int c = within(channel_of(e));
          typename Sweep::Results results[kRows];
#pragma unroll
          for (int i = 0; i < kRows; ++i)
            results[i] = Sweep::program(channels[c], places[i], Sweep::steps(a, c),
                                        products[i / 2][e / 2][i % 2 * 2 + e % 2]);
          kept[e].begin(results, count == 0 ? sites.inside : 0);
        }
      }
    }
    // Most groups of a warp have all their positions; channels are then taken without a branch between them.
    if (__all_sync(0xffffffffu, sites.inside == kAllRows))
      take_channels<Sweep, true>(a, channels, places, kAllRows, products, kept);
    else
      take_channels<Sweep, false>(a, channels, places, sites.inside, products, kept);
    count += __popc(sites.inside);
  } else {
    unsigned int there = 0;
#pragma unroll
    for (int e = 0; e < kColumns; ++e)
      if (channel_of(e) < kChannels) there |= 1u << e;
    if (kChannels % 8 == 0) there = kAllElements;
    typename Sweep::Results results[kRows][kColumns];
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      const int c = within(channel_of(e));
      const typename Sweep::Channel channel = channels[c];
      const typename Sweep::Steps steps = Sweep::steps(a, c);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        results[i][e] = Sweep::program(channel, places[i], steps, products[i / 2][e / 2][i % 2 * 2 + e % 2]);
        if ((there >> e & 1) && (sites.inside >> i & 1)) Sweep::store(places[i], steps, results[i][e]);
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      typename Sweep::Sums total;
      total.clear();
      total.add(results[i], there);
      total.merge_lanes();
      if (threadIdx.x % 4 == 0 && (sites.inside >> i & 1)) Sweep::end(a, unit, sites.at[i], total);
    }
  }
}

// Leaves the statistics of all lanes and warps in `totals`.
template <class Sweep>
__device__ inline void merge_kept(const typename Sweep::Kept (&kept)[kColumns], int count, Shared& shared,
                                  typename Sweep::Sums* totals) {
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    typename Sweep::Sums total = kept[e].whole(count);
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) {
      const typename Sweep::Sums other = from_lane_at(total, distance);
      total.merge(other);
    }
    if (lane < 4 && channel_of(e) < kChannels) shared.list0[warp][channel_of(e)] = total;
  }
  __syncthreads();
  for (int c = (int)threadIdx.x; c < kChannels; c += kThreads) {
    typename Sweep::Sums total = shared.list0[0][c];
#pragma unroll 1
    for (int i = 1; i < kWarps; ++i) total.merge(shared.list0[i][c]);
    totals[c] = total;
  }
  __syncthreads();
}

// Joins the statistics of a sample's items, which lie in `list` item by item: true in the block that comes
// last, with the sample's own in `totals`. `arrived` is zero at the start of the launch.
template <class Sums>
__device__ inline bool join_items(const Arguments& a, int item, Sums* list, unsigned int* arrived,
                                  Sums* totals) {
  const int items = (int)a.sample_items;
  if (items == 1) return true;
  __shared__ bool last;
  for (int c = (int)threadIdx.x; c < kChannels; c += kThreads) list[item * kChannels + c] = totals[c];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(arrived, 1u) == (unsigned int)items - 1;
  __syncthreads();
  if (!last) return false;
  __threadfence();
  for (int c = (int)threadIdx.x; c < kChannels; c += kThreads) {
    Sums total;
    total.clear();
#pragma unroll 1
    for (int i = 0; i < items; ++i) total.merge(read_of_other_block(list + i * kChannels + c));
    totals[c] = total;
  }
  __syncthreads();
  return true;
}
