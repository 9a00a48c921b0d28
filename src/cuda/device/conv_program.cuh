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

template <class Sweep>
__device__ inline void take_products(const Arguments& a, const Unit& unit,
                                     const typename Sweep::Channel* channels, const Sites& sites,
                                     const float (&products)[kMTiles][kNTiles][4],
                                     typename Sweep::Kept (&kept)[kColumns], int& count) {
  constexpr unsigned int kAllRows = (1u << kRows) - 1;
  typename Sweep::Places places[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) places[i] = Sweep::places(a, unit, sites.at[i]);
  if constexpr (kOverPositions != 0) {
    auto results_of = [&](int e, typename Sweep::Results(&results)[kRows]) {
      const int c = within(channel_of(e));
      const typename Sweep::Channel channel = channels[c];
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        results[i] =
            Sweep::program(channel, places[i], Sweep::steps(a, c), products[i / 2][e / 2][i % 2 * 2 + e % 2]);
    };
    if constexpr (Sweep::kStatistics) {
      if (__any_sync(0xffffffffu, count == 0)) {
#pragma unroll
        for (int e = 0; e < kColumns; ++e) {
          typename Sweep::Results results[kRows];
          results_of(e, results);
          kept[e].begin(results, count == 0 ? sites.inside : 0);
        }
      }
    }
    // Most groups of a warp have all their positions.
    const bool plain = __all_sync(0xffffffffu, sites.inside == kAllRows);
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      const int c = within(channel_of(e));
      typename Sweep::Results results[kRows];
      results_of(e, results);
      if constexpr (Sweep::kStatistics) {
        if (plain)
          kept[e].add(results, kAllRows);
        else
          kept[e].add(results, sites.inside);
      }
      if (channel_of(e) < kChannels) {
#pragma unroll
        for (int i = 0; i < kRows; ++i)
          if (sites.inside >> i & 1) Sweep::store(places[i], Sweep::steps(a, c), results[i]);
      }
    }
    count += __popc(sites.inside);
  } else {
    unsigned int there = 0;
#pragma unroll
    for (int e = 0; e < kColumns; ++e)
      if (channel_of(e) < kChannels) there |= 1u << e;
    if (kChannels % 8 == 0) there = kAllElements;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      typename Sweep::Results results[kColumns];
#pragma unroll
      for (int e = 0; e < kColumns; ++e) {
        const int c = within(channel_of(e));
        results[e] = Sweep::program(channels[c], places[i], Sweep::steps(a, c),
                                    products[i / 2][e / 2][i % 2 * 2 + e % 2]);
        if ((there >> e & 1) && (sites.inside >> i & 1))
          Sweep::store(places[i], Sweep::steps(a, c), results[e]);
      }
      typename Sweep::Sums total;
      total.clear();
      total.add(results, there);
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
