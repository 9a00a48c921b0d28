// The passes of the kernel `slices` over a unit, and how statistics go from a thread to its team; see device/slices.cuh.

// Lets statistics know a position of a chunk that will be taken.
template <class Sweep>
__device__ inline void start_sums(const Arguments& a, const Unit& unit, const Place& place, Count row,
                                  const Inputs& inputs, const typename Sweep::Hoisted (&channels)[kVector],
                                  typename Sweep::VectorSums& sums) {
  typename Sweep::Results results[kVector];
#pragma unroll
  for (int v = 0; v < kVector; ++v)
    results[v] = Sweep::program(a, channels[v], inputs, 0, v, unit, place, row);
  sums.start(results);
}

// A pass over the block's share of a unit; a thread's statistics of its channels into `sums`. The last pass lets go of the
// chunks that the others have kept.
template <class Sweep, int kPass>
__device__ inline void sweep(const Arguments& a, const Shares& shares, const Team& team, const Place& place,
                             const Unit& unit, Ring& ring, const typename Sweep::Channel* prepared,
                             typename Sweep::VectorSums& sums) {
  constexpr bool kFirst = kPass == 0;
  constexpr bool kLast = kPass == kPasses - 1;
  typename Sweep::Hoisted channels[kVector];
#pragma unroll
  for (int v = 0; v < kVector; ++v) channels[v] = Sweep::hoisted(prepared, place.channel(v));
  sums.clear();
  const long long begin = begin_of(a, shares, place, unit);
  int slot = kFirst ? ring.visited : ring.oldest;
  bool started = false;
  if (Sweep::kStatistics) {
    const Count row = shares.first + (Count)chunk_at(shares, kPass, 0) * kChunkRows;
    if (kFirst) wait_for(ring.pending - 1);
    started = row < shares.end;
    if (started) start_sums<Sweep>(a, unit, place, row, ring_inputs(ring.first + slot), channels, sums);
  }
#pragma unroll 1
  for (int i = 0; i < shares.chunks; ++i) {
    if (kFirst || (kAgain && i >= shares.kept)) wait_for(--ring.pending);
    const Inputs inputs = ring_inputs(ring.first + slot);
    slot = Ring::next(slot);
    const int chunk = chunk_at(shares, kPass, i);
    const Count row = shares.first + (Count)chunk * kChunkRows;
    const long long offset = begin + chunk * kChunkElements;
    // A later pass may begin with chunks behind the unit's end.
    if (Sweep::kStatistics && kAgain && !kFirst && !started && row < shares.end) {
      start_sums<Sweep>(a, unit, place, row, inputs, channels, sums);
      started = true;
    }
    int taken = kPieces;
    if (row + (kPieces - 1) * kStride < shares.end) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
        visit_piece<Sweep>(a, unit, place, row + piece * kStride, offset + piece * kStrideElements, inputs,
                           piece, channels, sums);
    } else {
      // The unit ends inside the chunk.
      taken = 0;
#pragma unroll
      for (int piece = 0; piece + 1 < kPieces; ++piece) {
        if (row + piece * kStride >= shares.end) continue;
        visit_piece<Sweep>(a, unit, place, row + piece * kStride, offset + piece * kStrideElements, inputs,
                           piece, channels, sums);
        ++taken;
      }
    }
    sums.took(taken);
    if (kLast || i < shares.chunks - shares.kept) {
      ring.oldest = slot;
      copy_next(ring, a, shares, team, place);
    }
  }
  if (kFirst || kAgain) ring.visited = slot;
}

// The statistics of a warp's rows, of each slot one, into the block's list.
template <class VectorSums, class Sums>
__device__ inline void list_rows(const Place& place, VectorSums& sums, Sums* list) {
  sums.finish();
  sums.template merge_rows<kWarpRows, kColumns>(place.warp_row);
  if (!place.active || place.warp_row > 0) return;
#pragma unroll
  for (int v = 0; v < kVector; ++v) list[place.list * kSlots + place.column * kVector + v] = sums.at(v);
}

// Where a team's blocks hand statistics over: for each channel those of every block, then the totals.
template <class Sums>
struct TeamLists {
  uint2* first;
  int size;

  __device__ uint2* part(int channel, int member) const {
    return first + (channel * size + member) * team::kWordsOf<Sums>;
  }
  __device__ uint2* total(int channel) const {
    return part(kUnitChannels, 0) + channel * team::kWordsOf<Sums>;
  }
};

// Two lists in turn: who writes the next but one knows that this one is read.
template <class Sums>
__device__ inline TeamLists<Sums> team_lists(uint2* all, const Team& team, unsigned int round) {
  const long long words = (long long)kUnitChannels * (team.size + 1) * team::kWordsOf<Sums>;
  return {all + (round % 2 * team.count + team.number) * words, team.size};
}

// The statistics of the block's channels out of its list: into the unit's totals where the block is alone, else to the team.
template <class Sums>
__device__ inline void merge_block(const Team& team, const Sums* list, Sums* totals,
                                   const TeamLists<Sums>& lists, unsigned int tag) {
  __syncthreads();
  for (int c = threadIdx.x; c < kUnitChannels; c += kThreads) {
    Sums total = list[c];
#pragma unroll 4
    for (int i = 1; i < kLists * kRowPositions; ++i) total.merge(list[i * kUnitChannels + c]);
    if (team.size == 1)
      totals[c] = total;
    else
      team::give(lists.part(c, team.member), total, tag);
  }
}

// Waits for a value of another block.
template <class Value>
__device__ inline Value await(const uint2* place, unsigned int tag) {
  Value values[1];
  team::take(place, 0, 1, tag, values);
  return values[0];
}

// The totals of this block's channels out of the parts of all blocks, 32 parts a warp, and to the team. `list` is the
// block's, and no longer needed.
template <class Sums>
__device__ inline void collect(const Team& team, Sums* list, const TeamLists<Sums>& lists, unsigned int tag) {
  if (team.size == 1) return;
  const int lane = (int)threadIdx.x % 32;
  const int parts = (team.size + 31) / 32;
  const int mine = (kUnitChannels - team.member + team.size - 1) / team.size;
  __syncthreads();
  for (int i = (int)threadIdx.x / 32; i < mine * parts; i += kWarps) {
    const int member = i % parts * 32 + lane;
    Sums total;
    total.clear();
    if (member < team.size) total = await<Sums>(lists.part(team.member + i / parts * team.size, member), tag);
    total.merge_lanes();
    if (lane == 0) list[i] = total;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < mine; i += kThreads) {
    Sums total = list[i * parts];
    for (int part = 1; part < parts; ++part) total.merge(list[i * parts + part]);
    team::give(lists.total(team.member + i * team.size), total, tag);
  }
}

// The totals of the unit.
template <class Sums>
__device__ inline void take_totals(const Team& team, Sums* totals, const TeamLists<Sums>& lists,
                                   unsigned int tag) {
  if (team.size > 1)
    for (int c = threadIdx.x; c < kUnitChannels; c += kThreads) totals[c] = await<Sums>(lists.total(c), tag);
  __syncthreads();
}
