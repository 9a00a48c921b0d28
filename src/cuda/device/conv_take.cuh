// What the kernels `conv` and `conv_roll` do with a warp's sums of products: the sweep's program and sinks, by channels
// (device/conv_channels.cuh, device/conv_roll_channels.cuh) or by positions.

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
