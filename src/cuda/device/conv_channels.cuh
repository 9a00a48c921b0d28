// What the kernel `conv` does with a warp's sums of products, channel by channel: the sweep's program and
// sinks.

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
