// conv_roll for filters of one depth: a sweep by `wgmma` over strips that are long.
//
// Rows of the products are positions, 64 a warpgroup, their columns the output channels. The input of a
// strip's plane lies in shared memory (device/conv_roll_tile.cuh), and a warpgroup goes through its positions
// in kRounds rounds, without a barrier between them: so products of one warpgroup run beside the program of
// another. Beside each round a piece of the next plane is put into the other stage
// (device/conv_roll_pieces.cuh). The sweep's program and sinks take the sums of a round
// (device/conv_take.cuh, device/conv_roll_positions.cuh). Sums begin at 0, and the bias is added behind
// the products; to a mean, where moments of the convolution are all that is taken.
//
// In strict mode a number is the sum of two tf32 numbers, and three of the four products count. Tensor cores
// cut sums off instead of rounding them: the small products come first.
//
// Before this stand what device/conv_roll_tile.cuh names, the products of warpgroups and
// device/conv_program.cuh; behind it the program of the sweep, the finalise steps and `run_item`, which calls
// what is here; last the kernel, device/conv_roll.cu.

// What is fetched, one after the other: pieces of planes of strips, up to strip `end`.
struct Cursor {
  int tile, end, plane, piece;
  Strip strip;
  const Element* data;

  __device__ Cursor(const Arguments& a, int n, int first, int last)
      : tile(first), end(last), plane(0), piece(0) {
    strip = strip_at(a, first);
    data = plane_of(a, n, strip.depth - kPadD);
  }
  __device__ bool exists() const { return tile < end; }
  __device__ Fetched fetch_piece(const Arguments& a) const { return fetch(a, data, strip, piece); }
  __device__ void advance(const Arguments& a, int n) {
    if (++piece < kPieces) return;
    piece = 0;
    if (++plane == strip.planes) {
      plane = 0;
      if (++tile == end) return;
      strip = strip_at(a, tile);
    }
    data = plane_of(a, n, strip.depth + plane - kPadD);
  }
};

__device__ inline Sites sites_of_round(const Arguments& a, const Strip& strip, int round) {
  Sites sites;
  sites.inside = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const unsigned int p =
        strip.first + first_of(round) + (int)threadIdx.x / 32 % 4 * 16 + i * 8 + (int)threadIdx.x % 32 / 4;
    const int w = (int)(p % kPitch);
    const bool inside =
        w < kTileW && (kOneBand || strip.column + w < (int)a.out_w) && p < (unsigned int)a.out_h * kPitch;
    if (inside) sites.inside |= 1u << i;
    sites.at[i] = {0, inside ? (int)(p / kPitch) : 0, inside ? strip.column + w : strip.column};
  }
  return sites;
}

// Adds the products of one plane, as `multiply` does, to sums that begin at 0. The upper halves of
// descriptors are all the same; `core` has one for each factor, numbers that the compiler does not know, so that
// they stay where products look for them.
#if V_DESC
struct Cores {
  unsigned int rows, weights;

  __device__ explicit Cores(const Arguments& a)
      : rows(8 | (unsigned int)(a.items >> 32)), weights(8 | (unsigned int)(a.tiles >> 32)) {}
};

__device__ inline unsigned long long matrix_of(unsigned int place, unsigned int core) {
  unsigned long long matrix;
  asm("mov.b64 %0, {%1, %2};" : "=l"(matrix) : "r"(place), "r"(core));
  return matrix;
}

__device__ inline void multiply_round(unsigned int rows, unsigned int weights, unsigned int zeros,
                                      const Cores& cores, float (&sums)[kSums]) {
  bool fresh = true;
  auto step = [&](int k, int part_of_rows, int part_of_weights) {
    const unsigned int from = rows + part_of_rows * kStageRows + chunk_offset(2 * k);
    const unsigned int next =
        2 * k + 1 < kChunks ? chunk_offset(2 * k + 1) - chunk_offset(2 * k) : zeros - from;
    const unsigned int by = weights + (part_of_weights * 2 * kSteps + 2 * k) * kWeightRows;
    warpgroup::multiply(sums, matrix_of(from + (next << 16), cores.rows),
                        matrix_of(by + (kWeightRows << 16), cores.weights), fresh ? 0 : 1);
    fresh = false;
  };
  if constexpr (kMode == kStrict) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      if constexpr (kSteps <= 2) step(k, 1, 1);
      step(k, 1, 0);
      step(k, 0, 1);
    }
#if V_DESC == 2
    rows += cores.rows >> 4, weights += cores.weights >> 4;
#endif
  }
#pragma unroll
  for (int k = 0; k < kSteps; ++k) step(k, 0, 0);
}
#endif

// All strips of an item. Leaves the block's statistics of each channel in `totals`.
template <class Sweep>
__device__ inline void sweep_item(const Arguments& a, const Unit& unit, int first, int end, Shared& shared,
                                  char* stages, typename Sweep::Sums* totals) {
  static_assert(kFilterD == 1, "a plane gives to one depth of the result");
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
  // As first_of counts, and the same in all lanes, so that the compiler knows it.
  const int group = warp::from_first((int)threadIdx.x / 128);

  // The first plane is put whole; then the next piece is always on its way.
  Cursor next(a, unit.n, first, end);
#pragma unroll 1
  for (int piece = 0; piece < kPieces; ++piece) {
    put(next.fetch_piece(a), piece, stages);
    next.advance(a, unit.n);
  }
  Fetched fetched;
  if (next.exists()) fetched = next.fetch_piece(a);
#if V_DESC
  const Cores cores(a);
#endif
  int slot = 0;
  float base = 0;
#if V_ORDER
  if (group == kThreads / 128 - 1) asm volatile("bar.arrive 1, 256;" ::: "memory");
#endif
#pragma unroll 1
  for (int tile = first; tile < end; ++tile) {
    const Strip strip = strip_at(a, tile);
#pragma unroll 1
    for (int plane = 0; plane < strip.planes; ++plane) {
      block::publish_rows();
      const unsigned int stage = staged + slot * (kStageBytes / kRowBytes) + group * 64;
      slot = 1 - slot;
      // Nothing is put beside the last rounds of all, which may have no position.
      const int rounds = next.exists()
                             ? kRounds
                             : min(kRounds, ((int)a.out_h * kPitch - strip.first - 1) / (kThreads / 2) + 1);
#pragma unroll 1
      for (int round = 0; round < rounds; ++round) {
        float sums[kSums];
#if V_ORDER
        asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
#endif
        warpgroup::begin();
#if V_DESC
        multiply_round(stage + round * (kThreads / 2), weights, zeros, cores, sums);
#else
        multiply(stage + round * (kThreads / 2), weights, zeros, 0, true, sums);
#endif
        warpgroup::commit();
#if V_ORDER == 1
        asm volatile("bar.arrive %0, 256;" ::"r"(1 + (group + 1) % (kThreads / 128)) : "memory");
#endif
        if (next.exists() && (kPieces == kRounds || round < kPieces)) {
          put(fetched, next.piece, stages + slot * kStageBytes);
          next.advance(a, unit.n);
          if (next.exists()) fetched = next.fetch_piece(a);
        }
        #if V_OWN
        Sites sites = sites_of_round(a, strip, round);
#else
        Sites sites = sites_of(a, strip, round);
#endif
#pragma unroll
        for (int i = 0; i < kRows; ++i) sites.at[i].d = strip.depth + plane;
        warpgroup::wait(0);
        warpgroup::hold(sums);
#if V_ORDER == 2
        asm volatile("bar.arrive %0, 256;" ::"r"(1 + (group + 1) % (kThreads / 128)) : "memory");
#endif
        float products[1][kNTiles][4];
#pragma unroll
        for (int i = 0; i < kSums; ++i)
          products[0][i / 4][i % 4] = Sweep::kBiasLater ? sums[i] : sums[i] + bias_of<Sweep>(channels, i);
        if constexpr (kOverPositions != 0)
          take_products<Sweep>(a, unit, channels, sites, products, kept, count);
        else if constexpr (Sweep::kExponentials)
          take_exponentials<Sweep>(a, unit, channels, sites, products, base
#if V_OWN
          , strip, round, strip.depth + plane
#endif
          );
        else
          take_positions<Sweep>(a, unit, channels, sites, products);
      }
    }
  }
#if V_ORDER
  if (group == 0) asm volatile("bar.sync 1, 256;" ::: "memory");
#endif
  if constexpr (Sweep::kStatistics && kOverPositions != 0) merge_kept<Sweep>(kept, count, shared, totals);
}
