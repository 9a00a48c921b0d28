// What the kernel `conv_roll` does with a warp's sums of products: the sweep's program and sinks.
//
// Instructions and their latencies bound it. So what a sweep's statistics take of an element is made for all
// elements of a lane first, then added: neighbouring instructions do not wait for each other.

// The program and the sinks for each channel of a lane's positions. `kWhole`: all of them are there.
template <class Sweep, bool kWhole>
__device__ inline void take_channels(const Arguments& a, const typename Sweep::Channel* channels,
                                     const typename Sweep::Places (&places)[kRows], unsigned int inside,
                                     const float (&products)[kMTiles][kNTiles][4],
                                     typename Sweep::Kept (&kept)[kColumns]) {
  typename Sweep::Taken taken[kColumns][kRows];
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    const int c = within(channel_of(e));
    const typename Sweep::Channel channel = channels[c];
    const typename Sweep::Steps steps = Sweep::steps(a, c);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const typename Sweep::Results results =
          Sweep::program(channel, places[i], steps, products[i / 2][e / 2][i % 2 * 2 + e % 2]);
      taken[e][i] = kept[e].taken(results);
      if (channel_of(e) < kChannels && (kWhole || (inside >> i & 1))) Sweep::store(places[i], steps, results);
    }
  }
  if constexpr (Sweep::kStatistics) {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) kept[e].add(taken[e], kWhole ? kAllRows : inside);
  }
}
