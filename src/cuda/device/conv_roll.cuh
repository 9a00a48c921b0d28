// conv_roll: a sweep over a convolution of stride 1 with few channels, by `wgmma`; its result is in memory
// only where the sweep stores it.
//
// A work item is a run of strips of one sample (device/conv_roll_tile.cuh). A block goes through a strip
// plane by plane of the input; the next plane is fetched beside the products of this one. Rows of the
// products are positions, 64 a warpgroup. Their columns are the filter's depths with all output channels:
// what a plane gives to kFilterD depths of the result is one product, so that rows are read once for all of
// them. The sums of a depth stay where they are while the planes pass, and the weights' columns rotate
// instead: sums of depth z are block z % kFilterD. The last plane of a depth done, the sweep's program and
// sinks take its sums (device/conv_take.cuh).
//
// In strict mode a number is the sum of two tf32 numbers, and three of the four products count. Tensor cores
// cut sums off instead of rounding them: there the products of a plane are summed by themselves, the small
// ones first, and added rounded.
//
// Before this stand what device/conv_roll_tile.cuh names, the products of warpgroups and
// device/conv_program.cuh; behind it the program of the sweep, the finalise steps and `run_item`, which calls
// what is here; last the kernel, device/conv_roll.cu.

// All strips of an item. Leaves the block's statistics of each channel in `totals`.
template <class Sweep>
__device__ inline void sweep_item(const Arguments& a, const Unit& unit, int first, int end, Shared& shared,
                                  char* stages, typename Sweep::Sums* totals) {
  typename Sweep::Channel* channels = unit.values->channels0;
  for (int c = (int)threadIdx.x; c < kChannels; c += kThreads) Sweep::read_channel(a, unit, c, channels[c]);
  __syncthreads();
  typename Sweep::Kept kept[kColumns];
  int count = 0;
#pragma unroll
  for (int e = 0; e < kColumns; ++e) kept[e].clear();
  const unsigned int staged = place_of(stages);
  const unsigned int weights = place_of(shared.prepared.weights);
  const unsigned int zeros = place_of(shared.prepared.zeros);

  // Planes are fetched two ahead: this one is in shared memory, the next in registers, on its way there.
  int next_tile = first, next_plane = 0;
  Strip next_strip = strip_of(a, first);
  Rows rows = rows_of(a, next_strip);
  const Element* next_data = input_data(a) + input_offset(a, unit.n, next_strip.depth - kPadD);
  Fetched fetched;
  auto fetch_next = [&] {
    if (next_plane == next_strip.planes) {
      if (next_tile + 1 == end) return;
      next_plane = 0;
      next_strip = strip_of(a, ++next_tile);
      rows = rows_of(a, next_strip);
      next_data = input_data(a) + input_offset(a, unit.n, next_strip.depth - kPadD);
    }
    // Planes of padding lie beyond the tensor.
    const int plane = next_strip.depth + next_plane++ - kPadD;
    fetched = fetch(a, next_data, kPadD == 0 || (plane >= 0 && plane < (int)a.in_d), rows);
    next_data += input_steps(a).d;
  };
  fetch_next();
  put(fetched, rows, stages);
  fetch_next();
  int slot = 0;
#pragma unroll 1
  for (int tile = first; tile < end; ++tile) {
    const Strip strip = strip_of(a, tile);
    Sites sites[kTiles];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) sites[m] = sites_of(a, strip, m);
    float sums[kTiles][kSums];
    auto step = [&](int plane, int rotation) {
      float some[kTiles][kSums];
      float(&taken)[kTiles][kSums] = kMode == kStrict ? some : sums;
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
          if (i / kBlockSums == rotation) sums[m][i] = bias_of<Sweep>(channels, i % kBlockSums);
        }
        warpgroup::hold(taken[m]);
      }
      block::publish_rows();
      warpgroup::begin();
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        multiply(staged + slot * (kStageBytes / kRowBytes) + first_of(m), weights, zeros, rotation,
                 kMode == kStrict, taken[m]);
        warpgroup::commit();
      }
      slot = 1 - slot;
      if (plane + 1 < strip.planes || tile + 1 < end) put(fetched, rows, stages + slot * kStageBytes);
      fetch_next();
      // The program runs on a product's sums beside the products behind it.
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        warpgroup::wait(kTiles - 1 - m);
        warpgroup::hold(taken[m]);
        if constexpr (kMode == kStrict) {
#pragma unroll
          for (int i = 0; i < kSums; ++i) sums[m][i] += some[m][i];
        }
        if (plane < kFilterD - 1) continue;
        float products[1][kNTiles][4];
#pragma unroll
        for (int i = 0; i < kBlockSums; ++i)
          products[0][i / 4][i % 4] = sums[m][(rotation + 1) % kFilterD * kBlockSums + i];
#pragma unroll
        for (int i = 0; i < kRows; ++i) sites[m].at[i].d = strip.depth + plane - (kFilterD - 1);
        take_products<Sweep>(a, unit, channels, sites[m], products, kept, count);
      }
    };
#pragma unroll 1
    for (int turn = 0; turn < strip.planes; turn += kFilterD) {
#pragma unroll
      for (int rotation = 0; rotation < kFilterD; ++rotation)
        if (turn + rotation < strip.planes) step(turn + rotation, rotation);
    }
  }
  if constexpr (Sweep::kStatistics && kOverPositions != 0) merge_kept<Sweep>(kept, count, shared, totals);
}
