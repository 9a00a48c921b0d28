// conv: a sweep over a convolution's result, which is in memory only where the sweep stores it.
//
// A work item is a run of tiles of one sample (device/conv_tile.cuh). The next tile's input is copied beside
// the arithmetic on this one where there is room for both (kStages). A warp takes groups of kMTiles * 16
// positions of the tile with all their channels: the source (device/conv_mma.cuh) leaves their sums in the
// lanes' registers, and the sweep's program and sinks take them there (device/conv_program.cuh).
//
// Before this stand what device/conv_tile.cuh names, the source and device/conv_program.cuh; behind it the
// program of the sweep, the finalise steps and `run_item`, which calls what is here; last the kernel,
// device/conv.cu.

// All tiles of an item. Leaves the block's statistics of each channel in `totals`.
template <class Sweep>
__device__ inline void sweep_item(const Arguments& a, const Unit& unit, int first, int end, Shared& shared,
                                  Element* stages, typename Sweep::Sums* totals) {
  const int warp = (int)threadIdx.x / 32;
  typename Sweep::Channel* channels = unit.values->channels0;
  for (int c = (int)threadIdx.x; c < kChannels; c += kThreads) Sweep::read_channel(a, unit, c, channels[c]);
  typename Sweep::Kept kept[kColumns];
  int count = 0;
#pragma unroll
  for (int e = 0; e < kColumns; ++e) kept[e].clear();
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
    for (int group = warp; group < kTileGroups; group += kWarps) {
      const Sites sites = sites_of(a, corner, group);
      float products[kMTiles][kNTiles][4];
#pragma unroll
      for (int m = 0; m < kMTiles; ++m)
#pragma unroll
        for (int i = 0; i < kNTiles * 4; ++i) products[m][i / 4][i % 4] = bias_of<Sweep>(channels, i);
      multiply(reinterpret_cast<const char*>(staged), sites.bases, shared.prepared, products);
      take_products<Sweep>(a, unit, channels, sites, products, kept, count);
    }
    __syncthreads();
    if (kStages == 1 && tile + 1 < end) stage(a, unit.n, corner_of(a, tile + 1), stages);
  }
  if constexpr (Sweep::kStatistics && kOverPositions != 0) merge_kept<Sweep>(kept, count, shared, totals);
}
