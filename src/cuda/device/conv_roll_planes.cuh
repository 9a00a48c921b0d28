// conv_roll for filters of several depths and few columns, where moments of each channel are all that is
// taken: a sweep by `wgmma` whose products have the input in registers.
//
// It goes as device/conv_roll.cuh does, with the same sums and rotations of weights. The input of a plane
// lies in shared memory as pairs of 16-bit numbers (device/conv_roll_taps.cuh), and lanes read what a product
// takes of it. A block has squads of threads, which take strips of a sample by themselves and share its
// weights. Where moments of the convolution itself are taken, sums are moved before they begin, by a value
// near to their mean, the same for a channel in all of a squad: so nothing is subtracted from an element.
//
// In strict mode the products of a plane are summed by themselves, the small ones first, and added rounded,
// with the powers of two that their factors have. In other modes sums seldom have any; those that do begin at
// 0, and the bias comes with the power. A sample whose elements are out of range is taken again with other
// powers.
//
// Before this stand what device/conv_roll_taps.cuh names, the products of warpgroups and
// device/conv_program.cuh; behind it the program of the sweep, the finalise steps and `run_item`, which calls
// what is here; last the kernel, device/conv_roll.cu.

// What sums begin at lies in shared memory, by channels, and but for strict mode, which has no registers for
// it, in each lane's registers, by its columns: shared memory has enough to do.
constexpr bool kHoldsStarts = kMode != kStrict;
constexpr int kHeldStarts = kHoldsStarts ? kColumns : 1;

// Sums of a depth that begins.
template <int kFirst, int kEnd>
__device__ inline void begin_sums(unsigned int starts, const float (&held)[kHeldStarts],
                                  float (&sums)[kSums]) {
  if constexpr (kFirst < kEnd) {
    if constexpr (kHoldsStarts) {
      sums[kFirst] = held[kFirst % kBlockSums / 4 * 2];
      sums[kFirst + 1] = held[kFirst % kBlockSums / 4 * 2 + 1];
    } else {
      read_pair<kFirst % kBlockSums / 4 * 32>(starts, sums[kFirst], sums[kFirst + 1]);
    }
    begin_sums<kFirst + 2, kEnd>(starts, held, sums);
  }
}

// Moves sums by their mean in the first product of the squad's first warp, of the depth that is done first.
// Behind the first product those of the last depth are yet to begin; they and all others begin with it.
template <int kProducts>
__device__ inline void move_sums(int squad, Starts& starts, unsigned int inside, float (&held)[kHeldStarts],
                                 float (&sums)[kProducts][kSums]) {
  squad::sync(squad);  // all have begun with what there was
  if (squad::thread() < 32) {
    float count = __popc(inside);
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2)
      count += __shfl_xor_sync(0xffffffffu, count, distance);
    const float part = count == 0 ? 0 : share(1.0f, count);
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kRows; ++i)
        if (inside >> i & 1) sum += sums[0][e / 2 * 4 + i * 2 + e % 2];
#pragma unroll
      for (int distance = 4; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
      if (squad::thread() < 4) {
        starts.moved[channel_of(e)] = sum * part;
        starts.of[channel_of(e)] -= sum * part;
      }
    }
  }
  squad::sync(squad);
#pragma unroll
  for (int e = 0; kHoldsStarts && e < kHeldStarts; ++e) held[e] = starts.of[channel_of(e)];
#pragma unroll
  for (int m = 0; m < kProducts; ++m)
#pragma unroll
    for (int i = 0; i < (m == 0 ? kSums : kSums - kBlockSums); ++i)
      sums[m][i] -= starts.moved[channel_of(i % kBlockSums / 4 * 2 + i % 2)];
}

// Before the first elements are added: moments of a channel are around the same element in all of a warp, its
// first that is there.
template <class Sweep>
__device__ inline void begin_kept(const Arguments& a, const typename Sweep::Channel* channels,
                                  const typename Sweep::Places (&places)[kRows],
                                  const float (&products)[1][kNTiles][4], unsigned int inside,
                                  typename Sweep::Kept (&kept)[kColumns]) {
  const int lane = __ffs((int)__ballot_sync(0xffffffffu, inside != 0)) - 1 + (int)threadIdx.x % 4;
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    const int c = within(channel_of(e));
    float value = 0;
#pragma unroll
    for (int i = kRows - 1; i >= 0; --i)
      if (inside >> i & 1) value = products[0][e / 2][i * 2 + e % 2];
    value = __shfl_sync(0xffffffffu, value, lane);
    kept[e].begin(Sweep::program(channels[c], places[0], Sweep::steps(a, c), value));
  }
}

// Whether the plane behind the one that is fetched is asked for in L2: with filters of three depths a plane
// is done before it comes (conv3d_hardswish_gn_mean_k3 183 in place of 192 us), with four it was 2 % slower.
constexpr bool kAsksAhead = kLinear != 0 && kMode != kStrict && kFilterD < 4;

// The planes of a squad's strips, one after the other: fetched two ahead, this one is in shared memory, the
// next in registers, on its way there. Behind the last strip others are fetched, which nobody takes.
struct Planes {
  int plane;
  Strip strip;
  Rows rows;
  Fetched fetched;
  long long bytes;  // from a plane to the next

  __device__ Planes(const Arguments& a, int n, int tile)
      : strip(strip_of(a, tile)), bytes(input_steps(a).d * (long long)sizeof(Element)) {
    begin_strip(a, n);
    fetch_next(a, n);
  }
  __device__ void begin_strip(const Arguments& a, int n) {
    plane = 0;
    rows = rows_of(a, strip, input_data(a) + input_offset(a, n, strip.depth - kPadD));
  }
  __device__ void fetch_next(const Arguments& a, int n) {
    if (plane == strip.planes) {
      strip.move(a);
      begin_strip(a, n);
    }
    // Planes of padding lie beyond the tensor.
    const int depth = strip.depth + plane++ - kPadD;
    fetched = fetch(kPadD == 0 || (depth >= 0 && depth < (int)a.in_d), rows);
    rows.first = reinterpret_cast<const Element*>(reinterpret_cast<const char*>(rows.first) + bytes);
    if (kAsksAhead) {
#pragma unroll
      for (int i = 0; i < 2 * kFetches; ++i) ask_for(rows.first + rows.behind[i / 2][i % 2]);
    }
  }
};

constexpr int kHeldPowers = kMode == kStrict ? kColumns : 1;

// A squad at its strips: what it keeps of all of them, and where it is.
template <class Of>
struct Walk {
  typedef Of Sweep;
  const Arguments& a;
  const Unit& unit;
  const typename Sweep::Channel* channels;
  Starts& starts;
  int squad;
  unsigned int weights, starts_place;
  Planes next;
  unsigned int* place;  // of a thread's first words in the first stage
  Taps taps;
  const Scales& scales;
  Staging staging;
  bool is_scaled;  // powers of two are not the usual ones, but for strict mode
  float held[kHeldStarts];
  float powers[kHeldPowers];  // that sums are multiplied by
  typename Sweep::Kept kept[kColumns];
  int count;
  bool begun;  // moments are around an element, in all of a warp
};

// Begins product kProduct of a plane, for kDepths depths of which it is the first, or for all. In strict mode
// sums begin where the product ends.
template <int kRotation, int kDepths, int kProduct, class Walk>
__device__ inline void begin_product(const Walk& walk, float (&sums)[kSums], float (&taken)[kSums]) {
  if constexpr (kMode != kStrict)
    begin_sums<kRotation * kBlockSums, (kRotation + 1) * kBlockSums>(walk.starts_place, walk.held, sums);
  Factors factors;
  read_factors<0, kProduct, kRotation % kStages, 0>(walk.taps, factors);
  auto& some = reinterpret_cast<float(&)[kDepths * kBlockSums]>(taken);
  warpgroup::hold(some);
  if constexpr (kMode == kStrict) {
    Factors small;
    read_factors<0, kProduct, kRotation % kStages, 1>(walk.taps, small);
    warpgroup::begin();
    multiply(small, walk.weights, kRotation, true, some);
    multiply(factors, walk.weights + kSlots * kWeightRows, kRotation, false, some);
  } else {
    warpgroup::begin();
  }
  multiply(factors, walk.weights, kRotation, false, some);
  warpgroup::commit();
}

// The program and the statistics of a depth that is done, of one product and its positions `inside`;
// statistics begin where `begins`.
template <class Walk>
__device__ inline void take(Walk& walk, float* done, unsigned int inside, bool begins) {
  typedef typename Walk::Sweep Sweep;
  typename Sweep::Places places[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) places[i] = Sweep::places(walk.a, walk.unit, position_at(0, 0, 0));
  if (kMayScale && walk.is_scaled) {
    const float2* undone = walk.scales.undone + seldom_thread() % 4 * 2;
#pragma unroll
    for (int i = 0; i < kBlockSums; i += 4) {
      const float4 two = *reinterpret_cast<const float4*>(undone + i / 4 * 8);  // of two channels
      done[i] = fmaf(done[i], two.x, two.y);
      done[i + 1] = fmaf(done[i + 1], two.z, two.w);
      done[i + 2] = fmaf(done[i + 2], two.x, two.y);
      done[i + 3] = fmaf(done[i + 3], two.z, two.w);
    }
  }
  float products[1][kNTiles][4];
#pragma unroll
  for (int i = 0; i < kBlockSums; ++i) products[0][i / 4][i % 4] = done[i];
  if constexpr (!Sweep::kMoves) {
    if (begins && !walk.begun && __any_sync(0xffffffffu, inside != 0)) {
      begin_kept<Sweep>(walk.a, walk.channels, places, products, inside, walk.kept);
      walk.begun = true;
    }
  }
  take_channels<Sweep, false>(walk.a, walk.channels, places, inside, products, walk.kept);
}

// Waits for a product's sums.
template <int kRotation, int kDepths, class Walk>
__device__ inline void end_product(const Walk& walk, float (&sums)[kSums], float (&taken)[kSums]) {
  warpgroup::wait(0);
  warpgroup::hold(reinterpret_cast<float(&)[kDepths * kBlockSums]>(taken));
  if constexpr (kMode == kStrict) {
    begin_sums<kRotation * kBlockSums, (kRotation + 1) * kBlockSums>(walk.starts_place, walk.held, sums);
#pragma unroll
    for (int i = 0; i < kDepths * kBlockSums; ++i)
      sums[i] = fmaf(taken[i], walk.powers[(i % kBlockSums / 4 * 2 + i % 2) % kHeldPowers], sums[i]);
  }
}

// Planes of a strip that have products of fewer depths: all before the first with which a depth is done. In
// strict mode the compiler has no registers for products of several sizes.
constexpr int kFirstPlanes = kMode == kStrict ? 0 : kFilterD - 1;

// Whether the program runs on the sums of a plane's last product beside the first product of the next plane.
// In other modes that was slower: a plane's code is longer by a program.
constexpr bool kTakesLater = kMode == kStrict;

// Ends the products of a plane from kProduct on: the program runs on one's sums beside the next.
template <int kRotation, int kProduct, int kProducts, class Walk>
__device__ inline void end_products(Walk& walk, int plane, bool is_first, bool is_last,
                                    const unsigned int (&there)[kProducts], float (&sums)[kProducts][kSums],
                                    float (&taken)[kProducts][kSums]) {
  if constexpr (kProduct < kProducts) {
    end_product<kRotation, kFilterD>(walk, sums[kProduct], taken[kProduct]);
    const bool begins = kRotation == kFilterD - 1 && plane == kRotation;
    if constexpr (Walk::Sweep::kMoves && kProduct == 0)
      if (begins && is_first) move_sums<kProducts>(walk.squad, walk.starts, there[0], walk.held, sums);
    if constexpr (kProduct + 1 < kProducts)
      begin_product<kRotation, kFilterD, kProduct + 1>(walk, sums[kProduct + 1], taken[kProduct + 1]);
    // Where that is always so the compiler does not know it: else it puts the program before the product that
    // it should run beside.
    const bool now = kProduct + 1 < kProducts || !kTakesLater || is_last;
    if (now && plane >= kFilterD - 1)
      take(walk, sums[kProduct] + (kRotation + 1) % kFilterD * kBlockSums, there[kProduct], begins);
    end_products<kRotation, kProduct + 1, kProducts>(walk, plane, is_first, is_last, there, sums, taken);
  }
}

// The next plane into its stage, and the one behind it on its way. A strip begins with the first stage.
template <int kRotation, class Walk>
__device__ inline void stage_next(Walk& walk, bool is_last) {
  constexpr int kNext = (kRotation + 1) % kStages * kStageWords;
  put(walk.next.fetched, walk.scales, walk.is_scaled, walk.staging, walk.place + (is_last ? 0 : kNext));
  walk.next.fetch_next(walk.a, walk.unit.n);
}

// The products of one of the first planes, with which no depth is done.
template <int kPlane, int kProduct, int kProducts, class Walk>
__device__ inline void end_first(Walk& walk, float (&sums)[kProducts][kSums]) {
  if constexpr (kProduct < kProducts) {
    end_product<kPlane, kPlane + 1>(walk, sums[kProduct], sums[kProduct]);
    if constexpr (kProduct + 1 < kProducts)
      begin_product<kPlane, kPlane + 1, kProduct + 1>(walk, sums[kProduct + 1], sums[kProduct + 1]);
    end_first<kPlane, kProduct + 1, kProducts>(walk, sums);
  }
}
template <int kPlane, int kProducts, class Walk>
__device__ inline void walk_first(Walk& walk, float (&sums)[kProducts][kSums]) {
  if constexpr (kPlane < kFirstPlanes) {
    squad::sync(walk.squad);
    begin_product<kPlane, kPlane + 1, 0>(walk, sums[0], sums[0]);
    stage_next<kPlane>(walk, false);
    end_first<kPlane, 0, kProducts>(walk, sums);
    walk_first<kPlane + 1, kProducts>(walk, sums);
  }
}

// kFilterD planes from `turn` on, or as many as there are.
template <int kStep, int kProducts, class Walk>
__device__ inline void walk_planes(Walk& walk, const Strip& strip, int turn, bool is_first,
                                   const unsigned int (&there)[kProducts], float (&sums)[kProducts][kSums]) {
  if constexpr (kStep < kFilterD) {
    constexpr int kRotation = (kFirstPlanes + kStep) % kFilterD;
    const int plane = turn + kStep;
    if (plane >= strip.planes) return;
    const bool is_last = plane + 1 == strip.planes;
    // Where the last plane is in the first stage itself, the next strip's waits until all have read it.
    const bool waits = kRotation % kStages == 0 && is_last;
    float some[kProducts][kSums];
    float(&taken)[kProducts][kSums] = kMode == kStrict ? some : sums;
    squad::sync(walk.squad);
    begin_product<kRotation, kFilterD, 0>(walk, sums[0], taken[0]);
    // What the plane before has left: the depth whose sums begin anew.
    if (kTakesLater && plane > kFilterD - 1)
      take(walk, sums[kProducts - 1] + kRotation * kBlockSums, there[kProducts - 1],
           kRotation == 0 && plane == kFilterD);
    if (!waits) stage_next<kRotation>(walk, is_last);
    end_products<kRotation, 0, kProducts>(walk, plane, is_first, is_last, there, sums, taken);
    if (waits) {
      squad::sync(walk.squad);
      stage_next<kRotation>(walk, is_last);
    }
    walk_planes<kStep + 1, kProducts>(walk, strip, turn, is_first, there, sums);
  }
}

// All planes of a strip, of which `kProducts` products have positions.
template <int kProducts, class Walk>
__device__ inline void walk_strip(Walk& walk, bool is_first) {
  const Strip strip = walk.next.strip;
  unsigned int there[kProducts];
#pragma unroll
  for (int m = 0; m < kProducts; ++m) there[m] = inside_of(walk.a, strip, m);
  float sums[kProducts][kSums];
  walk_first<0, kProducts>(walk, sums);
  int turn = kFirstPlanes;
  asm volatile("" : "+r"(turn)::"memory");
#pragma unroll 1
  for (; turn < strip.planes; turn += kFilterD)
    walk_planes<0, kProducts>(walk, strip, turn, is_first, there, sums);
#pragma unroll
  for (int m = 0; m < kProducts; ++m) walk.count += __popc(there[m]) * (strip.planes - (kFilterD - 1));
}

// How many neighbouring threads merge the warps' statistics of a channel: a power of two.
__device__ constexpr int mergers() {
  int number = 1;
  while (number < 32 && number < kWarps && 2 * number * kChannels <= kThreads) number *= 2;
  return number;
}

// Leaves the statistics of all lanes and warps in `totals`.
template <class Sweep>
__device__ inline void merge_warps(typename Sweep::Kept (&kept)[kColumns], int count, Shared& shared,
                                   typename Sweep::Sums* totals) {
  const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2) {
    count += __shfl_xor_sync(0xffffffffu, count, distance);
#pragma unroll
    for (int e = 0; e < kColumns; ++e) kept[e].add_lane_at(distance);
  }
  if (lane < 4) {
#pragma unroll
    for (int e = 0; e < kColumns; ++e)
      if (channel_of(e) < kChannels) shared.list0[warp][channel_of(e)] = kept[e];
    shared.counts[warp] = count;
  }
  __syncthreads();
  constexpr int kMergers = mergers();
#pragma unroll 1
  for (int first = 0; first < kChannels; first += kThreads / kMergers) {
    const int c = first + (int)threadIdx.x / kMergers, list = (int)threadIdx.x % kMergers;
    typename Sweep::Sums total;
    total.clear();
    if (c < kChannels)
#pragma unroll 1
      for (int i = list; i < kWarps; i += kMergers) total.merge(shared.list0[i][c].whole(shared.counts[i]));
#pragma unroll
    for (int distance = 1; distance < kMergers; distance *= 2) total.merge(from_lane_at(total, distance));
    if (c < kChannels && list == 0) totals[c] = total;
  }
  __syncthreads();
}

// All strips of an item, with the powers of two as they are. Leaves the block's statistics of each channel in
// `totals`.
template <class Sweep>
__device__ inline void walk_item(const Arguments& a, const Unit& unit, const Run& run, Shared& shared,
                                 char* memory, typename Sweep::Sums* totals) {
  // The squad's own strips, of which there may be none.
  const int squad = squad::number();
  const int first = first_of_squad(run, squad), end = first_of_squad(run, squad + 1);
  unsigned int* stages = reinterpret_cast<unsigned int*>(memory) + squad * (kStages * kStageWords);
  Starts& starts = shared.starts[squad];
  Scales& scales = shared.prepared.scales;
  const typename Sweep::Channel* channels = unit.values->channels0;
  Walk<Sweep> walk = {a,
                      unit,
                      channels,
                      starts,
                      squad,
                      place_of(shared.prepared.weights),
                      (unsigned int)__cvta_generic_to_shared(starts.of + threadIdx.x % 4 * 2),
                      Planes(a, unit.n, min(first, (int)a.tiles - 1)),
                      stages + place_in_stage(0),
                      taps_of_lane(stages),
                      scales};
  if (kRanged != 0) walk.staging.begin(scales);
  walk.is_scaled = kMayScale && scales.are_others;
  walk.count = 0;
  walk.begun = false;
#pragma unroll
  for (int e = 0; e < kColumns; ++e) walk.kept[e].clear();
#pragma unroll
  for (int e = 0; kMode == kStrict && e < kHeldPowers; ++e) walk.powers[e] = scales.sums[channel_of(e)];
#pragma unroll 1
  for (int c = squad::thread(); c < kNTiles * 8; c += kSquadThreads) {
    const float bias = c < kChannels ? Sweep::bias(channels[c]) : 0;
    starts.of[c] = walk.is_scaled ? 0 : bias;
    starts.moved[c] = 0;
    if (kMayScale) scales.undone[c] = make_float2(scales.sums[c], bias);  // the same in all squads
  }
#pragma unroll
  for (int e = 0; kHoldsStarts && e < kHeldStarts; ++e)
    walk.held[e] = walk.is_scaled ? 0 : Sweep::bias(channels[within(channel_of(e))]);
  put(walk.next.fetched, scales, walk.is_scaled, walk.staging, walk.place);
  walk.next.fetch_next(a, unit.n);
#pragma unroll 1
  for (int tile = first; tile < end; ++tile) {
    // The last strip of a band has no positions for half of the products.
    constexpr int kHalf = kHalfStrips != 0 ? kTiles / 2 : kTiles;
    if (kHalf < kTiles && walk.next.strip.first + kSquadThreads / 2 * kHalf >= (int)a.out_h * kPitch)
      walk_strip<kHalf>(walk, tile == first);
    else
      walk_strip<kTiles>(walk, tile == first);
  }
  if constexpr (Sweep::kMoves) {
#pragma unroll
    for (int e = 0; e < kColumns; ++e)
      walk.kept[e].move(starts.moved[channel_of(e)] * (walk.is_scaled ? scales.sums[channel_of(e)] : 1));
  }
  if (kRanged != 0) walk.staging.end(scales);
  merge_warps<Sweep>(walk.kept, walk.count, shared, totals);
}

// Powers of two for a sample. A call: what it needs in registers is not kept beside the walk.
__device__ __noinline__ void fit_scales(const Arguments& a, int n, Prepared& prepared) {
  if (look_through(a, n, prepared.scales)) prepare_weights(a, prepared);
}

// All strips of an item. Leaves the block's statistics of each channel in `totals`.
template <class Sweep>
__device__ inline void sweep_item(const Arguments& a, const Unit& unit, const Run& run, Shared& shared,
                                  char* memory, typename Sweep::Sums* totals) {
  static_assert(Sweep::kStatistics && kOverPositions != 0, "statistics of each channel");
  Scales& scales = shared.prepared.scales;
#pragma unroll 1
  for (int c = (int)threadIdx.x; c < kChannels; c += kThreads)
    Sweep::read_channel(a, unit, c, unit.values->channels0[c]);
  __syncthreads();
  bool looks = kRanged != 0 && scales.looks;
#pragma unroll 1
  for (;;) {
    if (looks) fit_scales(a, unit.n, shared.prepared);
    if (kRanged != 0 && (int)threadIdx.x < kInChannels) scales.largest[threadIdx.x] = 0;
    __syncthreads();
    walk_item<Sweep>(a, unit, run, shared, memory, totals);
    const bool fits = kRanged == 0 || looks || are_in_range(scales);
    if (kRanged != 0) __syncthreads();  // all have seen it
    if (fits) break;
    looks = true;
  }
}
