// conv: a sweep over a convolution's result, which is in memory only where the sweep stores it.
//
// A work item is a run of tiles of one sample (device/conv_tile.cuh). The next tile's input is copied beside
// the arithmetic on this one where there is room for both (kStages). A warp takes groups of kMTiles * 16
// positions of the tile with all their channels: the source (device/conv_mma.cuh) leaves their sums in the
// lanes' registers, and the sweep's program and sinks take them there. A lane has kRows positions and
// kColumns channels of a group. Statistics of each channel are kept over all of an item (without their count,
// which is the same for all channels), then merged lane by lane, warp by warp, and item by item of the
// sample, by the block that ends the sample's last one, in an order that depends on the shapes alone.
// Statistics of each position are merged over the four lanes that have its channels.
//
// Before this stand what device/conv_tile.cuh names, the source and device/conv_sums.cuh; behind it the
// program of the sweep, the finalise steps and `run_item`, which calls what is here; last the kernel,
// device/conv.cu.

// A lane's channel, by its number among kColumns.
__device__ inline int channel_of(int e) { return e / 2 * 8 + (int)threadIdx.x % 4 * 2 + e % 2; }
__device__ inline int within(int channel) {
  return kChannels % 8 == 0 || channel < kChannels ? channel : kChannels - 1;
}

// One group of a tile.
template <class Sweep>
__device__ inline void visit(const Arguments& a, const Unit& unit, const typename Sweep::Channel* channels,
                             const Corner& corner, int group, const Element* staged, const Prepared& prepared,
                             typename Sweep::Kept (&sums)[kColumns], real& count) {
  const Sites sites = sites_of(a, corner, group);
  float products[kMTiles][kNTiles][4];
#pragma unroll
  for (int n = 0; n < kNTiles; ++n)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float bias = Sweep::bias(channels[within(channel_of(2 * n + j))]);
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) products[m][n][j] = products[m][n][2 + j] = bias;
    }
  multiply(reinterpret_cast<const char*>(staged), sites.bases, prepared, products);

  if constexpr (kOverPositions != 0) {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      const int c = within(channel_of(e));
      const typename Sweep::Channel channel = channels[c];
      typename Sweep::Results results[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        results[i] = Sweep::program(channel, Sweep::places(a, unit, sites.at[i]), Sweep::steps(a, c),
                                    products[i / 2][e / 2][i % 2 * 2 + e % 2]);
      if constexpr (Sweep::kStatistics) {
        typename Sweep::Sums total = Sweep::whole(sums[e], count);
        if (sites.inside == (1u << kRows) - 1)
          total.add(results, (1u << kRows) - 1);
        else
          total.add(results, sites.inside);
        sums[e] = Sweep::kept(total);
      }
      if (channel_of(e) < kChannels) {
#pragma unroll
        for (int i = 0; i < kRows; ++i)
          if (sites.inside >> i & 1)
            Sweep::store(Sweep::places(a, unit, sites.at[i]), Sweep::steps(a, c), results[i]);
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
        results[e] = Sweep::program(channels[c], Sweep::places(a, unit, sites.at[i]), Sweep::steps(a, c),
                                    products[i / 2][e / 2][i % 2 * 2 + e % 2]);
        if ((there >> e & 1) && (sites.inside >> i & 1))
          Sweep::store(Sweep::places(a, unit, sites.at[i]), Sweep::steps(a, c), results[e]);
      }
      typename Sweep::Sums total;
      total.clear();
      total.add(results, there);
      total.merge_lanes();
      if (threadIdx.x % 4 == 0 && (sites.inside >> i & 1)) Sweep::end(a, unit, sites.at[i], total);
    }
  }
}

// All tiles of an item. Leaves the block's statistics of each channel in `totals`.
template <class Sweep>
__device__ inline void sweep_item(const Arguments& a, const Unit& unit, int first, int end, Shared& shared,
                                  Element* stages, typename Sweep::Sums* totals) {
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
  typename Sweep::Channel* channels = unit.values->channels0;
  for (int c = (int)threadIdx.x; c < kChannels; c += kThreads) Sweep::read_channel(a, unit, c, channels[c]);
  typename Sweep::Kept sums[kColumns];
  real count = 0;
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    typename Sweep::Sums nothing;
    nothing.clear();
    sums[e] = Sweep::kept(nothing);
  }
  stage(a, unit.n, corner_of(a, first), stages);
#pragma unroll 1
  for (int tile = first; tile < end; ++tile) {
    const Corner corner = corner_of(a, tile);
    Element* staged = stages + (kStages == 2 ? (tile - first) % 2 * kStageElements : 0);
    if (kStages == 2 && tile + 1 < end) {
      stage(a, unit.n, corner_of(a, tile + 1), stages + (tile + 1 - first) % 2 * kStageElements);
      thread::copy_wait_constant<1>();
    } else {
      thread::copy_wait_constant<0>();
    }
    if (kMode == kTf32) round_staged(corner, staged);
    __syncthreads();
#pragma unroll 1
    for (int group = warp; group < kTileGroups; group += kWarps)
      visit<Sweep>(a, unit, channels, corner, group, staged, shared.prepared, sums, count);
    __syncthreads();
    if (kStages == 1 && tile + 1 < end) stage(a, unit.n, corner_of(a, tile + 1), stages);
  }
  if constexpr (Sweep::kStatistics && kOverPositions != 0) {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      typename Sweep::Sums total = Sweep::whole(sums[e], count);
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
}

// Joins the statistics of a sample's items, which lie in `list` item by item: true in the block that comes last, with
// the sample's own in `totals`. `arrived` is zero at the start of the launch.
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
