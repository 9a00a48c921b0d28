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
