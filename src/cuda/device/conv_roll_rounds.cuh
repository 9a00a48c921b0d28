// conv_roll for filters of one depth: a sweep by `wgmma` over strips that are long.
//
// Rows of the products are positions, 64 a warpgroup, their columns the output channels. The input of a
// strip's plane lies in shared memory (device/conv_roll_tile.cuh), and a warpgroup goes through its positions
// in kRounds rounds, without a barrier between them, of 16 bits not even between planes
// (device/conv_roll_barriers.cuh): so products of one warpgroup run beside the program of another. Beside
// rounds pieces of the next plane are put into the other stage (device/conv_roll_pieces.cuh,
// device/conv_roll_flat.cuh). The sweep's program and sinks take the sums of a round
// (device/conv_take.cuh, device/conv_roll_positions.cuh). Sums begin at 0, and the bias is added behind
// the products; to a mean, where moments of the convolution are all that is taken. Where products bring along
// what sums begin at (device/conv_roll_starts.cuh), that is the bias, or moments are around it and it is near to
// the channel's mean, so that nothing is subtracted from an element.
//
// In strict mode a number is the sum of two tf32 numbers, and three of the four products count. Tensor cores
// cut sums off instead of rounding them: the small products come first.
//
// Before this stand what device/conv_roll_tile.cuh names, the products of warpgroups, device/conv_program.cuh
// and device/conv_roll_round.cuh; behind it the program of the sweep, the finalise steps and `run_item`,
// which calls what is here; last the kernel, device/conv_roll.cu.

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

// Pieces that are fetched at once, of the first plane: of 64 words a thread, or one.
constexpr int kWords = (int)(sizeof(Words) / 4);
constexpr int kAtOnce = kWords > 32 ? 1 : 64 / kWords < kPieces ? 64 / kWords : kPieces;

// Whether stages are handed over by arrivals, and not at a barrier of the block. An H200 took for
// `conv2d_gn_tanh_hardswish_residual_lse` 189 us so in place of 206 in bf16, and no less in tf32 and strict,
// where warpgroups take turns.
constexpr bool kArrives = kMode == k16Bits;
// The round in which the first piece of the next plane is put: the second, if that can be, since in the first
// others may still read the stage.
constexpr int kFirstPut = kArrives && kPieces * kEvery < kRounds ? 1 : 0;
static_assert((kPieces - 1) * kEvery + kFirstPut < kRounds, "a plane is put beside the rounds of one");

// Launches that begin beside the one before them in the stream.
namespace launch {

template <class Nothing = void>
__device__ inline void let_next_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
// Until what the launch before this one has written is there. What was read until then is the caller's own.
template <class Nothing = void>
__device__ inline void wait_for_last() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace launch

// Whether moments are taken around what sums begin at.
template <class Sweep>
__device__ constexpr bool moves_sums() {
  if constexpr (kStarts)
    return Sweep::kMoves;
  else
    return false;
}

// Has sums begin near to the mean of the first positions, those of the first warp, from their first round:
// `stage`, `weights` and `zeros` are places in shared memory, `inside` says which of a lane's positions are
// there. Leaves how far sums are moved in `moved`. By all threads, between barriers of the block.
template <class Sweep>
__device__ inline void move_sums(const Arguments& a, Prepared& prepared, unsigned int stage,
                                 unsigned int weights, unsigned int zeros, unsigned int inside,
                                 float* moved) {
  if ((int)threadIdx.x >= 128) return;
  float sums[kSums];
  warpgroup::begin();
  multiply_round(a, stage, weights, zeros, sums);
  warpgroup::commit();
  warpgroup::wait(0);
  warpgroup::hold(sums);
  if ((int)threadIdx.x >= 32) return;
  float count = __popc(inside);
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2) count += __shfl_xor_sync(0xffffffffu, count, distance);
#pragma unroll
  for (int e = 0; e < kColumns; ++e) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (inside >> i & 1) sum += sums[e / 2 * 4 + i * 2 + e % 2];
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x < 4 && channel_of(e) < kChannels)
      moved[channel_of(e)] = -starts::put_near(prepared, channel_of(e), count == 0 ? 0 : -share(sum, count));
  }
}

// All strips of an item. Leaves the block's statistics of each channel in `totals`.
template <class Sweep>
__device__ inline void sweep_item(const Arguments& a, const Unit& unit, int first, int end, Shared& shared,
                                  char* stages, typename Sweep::Sums* totals) {
  static_assert(kFilterD == 1, "a plane gives to one depth of the result");
  // Whether warpgroups take turns at products, and how long: until they are done, or under way. Products of
  // several at once end together, and then their programs run together. An H200 took for the launches of
  // `conv2d_gn_tanh_hardswish_residual_lse` 158 us so in place of 179 (the second in tf32, before it had
  // tangents), 164 in place of 169 (the first in strict) and 82 in place of 84 (in tf32); in bf16 3 us more.
  constexpr bool kTurnsDone = has_tangents<Sweep>() && kMode == kTf32 && kThreads > 128;
  constexpr bool kTurnsBegun = Sweep::kBiasLater && kMode != k16Bits && kThreads > 128;
  constexpr bool kTurns = kTurnsDone || kTurnsBegun;
  constexpr bool kBiasLater = Sweep::kBiasLater || has_tangents<Sweep>();
  // Whether a piece is fetched behind the program of a round, where a lane has registers for its elements, and not
  // before it. An H200 took for the second launch of `conv2d_gn_tanh_hardswish_residual_lse` 107 us so in place
  // of 118 in bf16; in tf32 11 us more.
  constexpr bool kLate = kMode == k16Bits && kOverPositions == 0;
  constexpr bool kMoves = moves_sums<Sweep>(), kKeepsForms = keeps_forms<Sweep>();
  launch::let_next_begin();
  if (kArrives) shared.barriers.begin();
  typename Sweep::Channel* channels = unit.values->channels0;
  typename Sweep::Kept kept[kColumns];
  int count = 0;
#pragma unroll
  for (int e = 0; e < kColumns; ++e) kept[e].clear();
  const unsigned int staged = place_of(stages);
  const unsigned int weights = place_of(shared.prepared.weights);
  const unsigned int zeros = place_of(shared.prepared.zeros);
  // As first_of counts, and the same in all lanes, so that the compiler knows it.
  const int group = warp::from_first((int)threadIdx.x / 128);

  // The first plane is put whole; then the next piece is always on its way. What a channel has may be of the
  // launch before this one.
  Cursor next(a, unit.n, first, end);
#pragma unroll 1
  for (int piece = 0; piece < kPieces; piece += kAtOnce) {
    Words some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (piece + i >= kPieces) continue;
      some[i] = next.fetch_piece(a).words();
      next.advance(a, unit.n);
    }
    if (piece == 0) {
      launch::wait_for_last();
      for (int c = (int)threadIdx.x; c < kChannels; c += kThreads) {
        Sweep::read_channel(a, unit, c, channels[c]);
        if constexpr (has_tangents<Sweep>()) prepare_tangent<Sweep>(channels[c], Sweep::tangents(unit)[c]);
        if constexpr (kKeepsForms) starts::put(shared.prepared, c, Sweep::bias(channels[c]));
        if constexpr (kMoves) starts::put(shared.prepared, c, 0);
      }
      if constexpr (kMoves || kKeepsForms) starts::begin(shared.prepared);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (piece + i < kPieces) put(some[i], piece + i, stages);
  }
  Fetched fetched;
  if (next.exists()) fetched = next.fetch_piece(a);
  int slot = 0;
  float base = 0;
  if (kArrives) block::publish_rows();
  if constexpr (kMoves) {
    move_sums<Sweep>(a, shared.prepared, staged + group * 64, weights, zeros,
                     sites_of_round(a, strip_at(a, first), 0, 0).inside, shared.moved);
    block::publish_rows();
  }
  const auto forms = [&] {
    if constexpr (has_tangents<Sweep>())
      return Forms<Sweep, kKeepsForms>(Sweep::tangents(unit));
    else
      return NoForms();
  }();
  if (kTurns) turns::begin(group);
#pragma unroll 1
  for (int tile = first; tile < end; ++tile) {
    const Strip strip = strip_at(a, tile);
#pragma unroll 1
    for (int plane = 0; plane < strip.planes; ++plane) {
      if (kArrives)
        shared.barriers.wait_staged(slot);
      else
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
        if (kTurns) turns::wait(group);
        warpgroup::begin();
        multiply_round(a, stage + round * (kThreads / 2), weights, zeros, sums);
        warpgroup::commit();
        if (kTurnsBegun) turns::pass_on(group);
        bool fetches = false;
        if (next.exists() && round >= kFirstPut && round < kFirstPut + kPieces * kEvery &&
            (round - kFirstPut) % kEvery == 0) {
          if (kArrives && round == kFirstPut) shared.barriers.wait_taken(slot);
          put(fetched.words(), next.piece, stages + slot * kStageBytes);
          next.advance(a, unit.n);
          if (kArrives && round == kFirstPut + (kPieces - 1) * kEvery) shared.barriers.say_staged();
          fetches = next.exists();
        }
        if (fetches && !kLate) fetched = next.fetch_piece(a);
        const Sites sites = sites_of_round(a, strip, round, strip.depth + plane);
        warpgroup::wait(0);
        warpgroup::hold(sums);
        if (kArrives && round == rounds - 1) shared.barriers.say_taken();
        if (kTurnsDone) turns::pass_on(group);
        float products[1][kNTiles][4];
#pragma unroll
        for (int i = 0; i < kSums; ++i)
          products[0][i / 4][i % 4] = kBiasLater ? sums[i] : sums[i] + bias_of<Sweep>(channels, i);
        if constexpr (kMoves) {
          typename Sweep::Places places[kRows];
#pragma unroll
          for (int i = 0; i < kRows; ++i) places[i] = Sweep::places(a, unit, sites.at[i]);
          if (__all_sync(0xffffffffu, sites.inside == kAllRows))
            take_channels<Sweep, true>(a, channels, places, kAllRows, products, kept);
          else
            take_channels<Sweep, false>(a, channels, places, sites.inside, products, kept);
          count += __popc(sites.inside);
        } else if constexpr (kOverPositions != 0)
          take_products<Sweep>(a, unit, channels, sites, products, kept, count);
        else if constexpr (Sweep::kExponentials)
          take_exponentials<Sweep>(
              a, unit, channels, forms, sites,
              site_at(a, strip, first_position(strip, round) + (int)threadIdx.x % 2 * 8, strip.depth + plane),
              products, base);
        else
          take_positions<Sweep>(a, unit, channels, sites, products);
        if (fetches && kLate) fetched = next.fetch_piece(a);
      }
    }
  }
  if (kTurns) turns::end(group);
  if (kArrives) {
    __syncthreads();
    shared.barriers.end();
  }
  if constexpr (kMoves) {
#pragma unroll
    for (int e = 0; e < kColumns; ++e) kept[e].move(shared.moved[within(channel_of(e))]);
  }
  if constexpr (Sweep::kStatistics && kOverPositions != 0) merge_kept<Sweep>(kept, count, shared, totals);
}
