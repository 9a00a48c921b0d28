// conv_roll for filters of several depths and few columns, where statistics of each channel are all that is
// taken: a sweep by `wgmma` whose products have the input in registers.
//
// It goes as device/conv_roll.cuh does, with the same sums and rotations of weights; the input of a plane lies
// in shared memory as it is (device/conv_roll_taps.cuh), and lanes read what a product takes of it. Where what
// is taken are moments of the convolution itself, sums are moved by a value near to their mean, the same for a
// channel in all of a squad, before they begin: so nothing is subtracted from an element.
//
// In strict mode the products of a plane are summed by themselves, the small ones first, and added rounded.
//
// Before this stand what device/conv_roll_taps.cuh names, the products of warpgroups and
// device/conv_program.cuh; behind it the program of the sweep, the finalise steps and `run_item`, which calls
// what is here; last the kernel, device/conv_roll.cu.

// Two neighbours in shared memory. Each time they are read anew: a load for both is less than a move for each.
__device__ inline void read_pair(const float* from, float& first, float& second) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(first), "=f"(second)
               : "r"((unsigned int)__cvta_generic_to_shared(from)));
}

// Moves sums by their mean in the first product of the squad's first warp, of the depth that is done first.
// Behind the first product those of the last depth are yet to begin; they and all others begin with it.
template <class Sweep>
__device__ inline void move_sums(Starts& starts, unsigned int inside, float (&sums)[kTiles][kSums]) {
  if (squad::thread() < 32) {
    float count = __popc(inside);
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) count += __shfl_xor_sync(0xffffffffu, count, distance);
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (inside >> i & 1) sum += sums[0][e / 2 * 4 + i * 2 + e % 2];
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      if (squad::thread() < 4) {
        starts.moved[channel_of(e)] = count == 0 ? 0 : sum / count;
        starts.of[channel_of(e)] -= starts.moved[channel_of(e)];
      }
    }
  }
  squad::sync();
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int i = 0; i < (m == 0 ? kSums : kSums - kBlockSums); ++i)
      sums[m][i] -= starts.moved[channel_of(i % kBlockSums / 4 * 2 + i % 2)];
}

// Before the first elements are added.
template <class Sweep>
__device__ inline void begin_kept(const Arguments& a, const typename Sweep::Channel* channels,
                                  const typename Sweep::Places (&places)[kRows],
                                  const float (&products)[1][kNTiles][4], unsigned int inside,
                                  typename Sweep::Kept (&kept)[kColumns]) {
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    const int c = within(channel_of(e));
    typename Sweep::Results results[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      results[i] =
          Sweep::program(channels[c], places[i], Sweep::steps(a, c), products[0][e / 2][i * 2 + e % 2]);
    kept[e].begin(results, inside);
  }
}

// All strips of an item. Leaves the block's statistics of each channel in `totals`.
template <class Sweep>
__device__ inline void sweep_item(const Arguments& a, const Unit& unit, int item_first, int item_end,
                                  Shared& shared, char* memory, typename Sweep::Sums* totals) {
  static_assert(Sweep::kStatistics && kOverPositions != 0, "statistics of each channel");
  float* stages = reinterpret_cast<float*>(memory) + squad::number() * (2 * kStageFloats);
  typename Sweep::Channel* channels = unit.values->channels0;
  Starts& starts = shared.starts[squad::number()];
  for (int c = (int)threadIdx.x; c < kChannels; c += kThreads) Sweep::read_channel(a, unit, c, channels[c]);
  __syncthreads();
  for (int c = squad::thread(); c < kNTiles * 8; c += kSquadThreads) {
    starts.of[c] = c < kChannels ? Sweep::bias(channels[c]) : 0;
    starts.moved[c] = 0;
  }
  typename Sweep::Kept kept[kColumns];
  int count = 0;
  bool begun = false;
#pragma unroll
  for (int e = 0; e < kColumns; ++e) kept[e].clear();
  const unsigned int weights = place_of(shared.prepared.weights);
  const Taps taps = taps_of_lane(stages);

  // The squad's own strips, of which there may be none.
  const int strips = item_end - item_first;
  const int first = item_first + strips * squad::number() / kSquads;
  const int end = item_first + strips * (squad::number() + 1) / kSquads;

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
    fetched = fetch(next_data, kPadD == 0 || (plane >= 0 && plane < (int)a.in_d), rows);
    next_data += input_steps(a).d;
  };
  if (first < end) {
    fetch_next();
    put(fetched, stages);
    fetch_next();
  }
  int slot = 0;
#pragma unroll 1
  for (int tile = first; tile < end; ++tile) {
    const Strip strip = strip_of(a, tile);
    unsigned int inside[kTiles];
    bool whole[kTiles], first_whole[kTiles];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      inside[m] = inside_of(a, strip, m);
      whole[m] = __all_sync(0xffffffffu, inside[m] == kAllRows);
      first_whole[m] = __all_sync(0xffffffffu, (inside[m] & 1) != 0);
    }
    float sums[kTiles][kSums];
    auto step = [&](int plane, int rotation) {
      float some[kTiles][kSums];
      float(&taken)[kTiles][kSums] = kMode == kStrict ? some : sums;
      squad::sync();
      auto begin = [&](int m) {
#pragma unroll
        for (int i = rotation * kBlockSums; i < (rotation + 1) * kBlockSums; i += 2)
          read_pair(starts.of + i % kBlockSums / 4 * 8 + threadIdx.x % 4 * 2, sums[m][i], sums[m][i + 1]);
        const Factors factors = factors_of(taps, slot * kStageFloats, m);
        warpgroup::hold(taken[m]);
        if constexpr (kMode == kStrict) {
          const Factors small = factors_of(taps, slot * kStageFloats + kPartStep, m);
          warpgroup::begin();
          multiply(small, weights, rotation, true, taken[m]);
          multiply(factors, weights + kSlots * kWeightRows, rotation, false, taken[m]);
        } else {
          warpgroup::begin();
        }
        multiply(factors, weights, rotation, false, taken[m]);
        warpgroup::commit();
      };
      // Of a depth that is done; the first of an item and of a strip are where statistics begin.
      auto take = [&](int m) {
        typename Sweep::Places places[kRows];
#pragma unroll
        for (int i = 0; i < kRows; ++i) places[i] = Sweep::places(a, unit, position_at(0, 0, 0));
        float products[1][kNTiles][4];
#pragma unroll
        for (int i = 0; i < kBlockSums; ++i)
          products[0][i / 4][i % 4] = sums[m][(rotation + 1) % kFilterD * kBlockSums + i];
        if constexpr (!Sweep::kMoves) {
          if (rotation == kFilterD - 1 && plane == rotation && __any_sync(0xffffffffu, !begun)) {
            begin_kept<Sweep>(a, channels, places, products, begun ? 0 : inside[m], kept);
            begun = begun || inside[m] != 0;
          }
        }
        if (whole[m])
          take_channels<Sweep, true>(a, channels, places, kAllRows, products, kept);
        else if (first_whole[m])
          take_channels<Sweep, false>(a, channels, places, inside[m] | 1u, products, kept);
        else
          take_channels<Sweep, false>(a, channels, places, inside[m], products, kept);
      };
      begin(0);
      if (plane + 1 < strip.planes || tile + 1 < end) put(fetched, stages + (1 - slot) * kStageFloats);
      fetch_next();
      // The program runs on a product's sums beside the products behind it.
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        warpgroup::wait(0);
        warpgroup::hold(taken[m]);
        if constexpr (kMode == kStrict) {
#pragma unroll
          for (int i = 0; i < kSums; ++i) sums[m][i] += some[m][i];
        }
        if constexpr (Sweep::kMoves)
          if (m == 0 && rotation == kFilterD - 1 && plane == rotation && tile == first)
            move_sums<Sweep>(starts, inside[0], sums);
        if (m + 1 < kTiles) begin(m + 1);
        if (plane >= kFilterD - 1) take(m);
      }
      slot = 1 - slot;
    };
#pragma unroll 1
    for (int turn = 0; turn < strip.planes; turn += kFilterD) {
#pragma unroll
      for (int rotation = 0; rotation < kFilterD; ++rotation)
        if (turn + rotation < strip.planes) step(turn + rotation, rotation);
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) count += __popc(inside[m]) * (strip.planes - (kFilterD - 1));
  }
  if constexpr (Sweep::kMoves) {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) kept[e].move(starts.moved[channel_of(e)]);
  }
  merge_kept<Sweep>(kept, count, shared, totals);
}
