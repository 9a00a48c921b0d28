// slices: sweeps of a block over channels_last tensors, with statistics for each sample and channel, unit by unit.
//
// A unit is a slice of kUnitChannels neighbouring channels of one sample, at all its positions. A team of thread blocks
// works on it. A row is kRowPositions positions of the slice (more than one only where the slice is all channels), in
// memory one run of kSlots elements: kColumns vectors, each a thread's. A thread keeps its column, so that it always has the
// same channels: their parameters and their statistics stay in its registers. Rows of a warp lie one behind the other,
// then those of the block's warps, or rows go on from warp to warp (device/slices_rows_packed.cuh); a chunk is kPieces times
// that. A block has neighbouring chunks, or every team.size-th.
// A chunk is copied into the threads' own columns of shared memory long before its turn, also chunks of the team's next
// unit, and stays there for later passes; of a unit that is larger the last chunks stay, the others are copied again, with
// two passes the last ones first. Where kDealt, the first chunks stay, and those which the second pass copies again are dealt
// out among the team's blocks as these get on, since some multiprocessors are faster than others: a warp draws the next by a
// counter that it shares with the warps of its number in the other blocks. That pass takes no statistics, so that nobody can
// see who had a chunk.
// Statistics are merged lane by lane, warp by warp, block by block, in an order that depends on the shapes alone: a block of
// the team collects those of some channels from all and hands the totals to all; those of groups, where nobody asks for
// channels and there are few of them, every block takes from all (device/slices_groups.cuh).
//
// Before this stand the constants, device/slices_rows.cuh, device/slices_place.cuh, device/slices_thread.cuh, Arguments, Inputs (what
// lies in the ring) and UnitValues; behind it the program of each sweep, the finalise steps, and begin_unit, collect_unit and
// end_unit, which call what is here in the plan's order; last the kernel, device/slices.cu.

// A thread's share of a unit.
struct Shares {
  int chunks;   // of its block
  int kept;     // of these, the last of a pass or where kDealt the first, that stay in the ring for the next
  int apart;    // chunks of the unit from one of these to the next
  Count first;  // row of the block's first chunk
  Count end;    // rows of the unit that have this thread's vector; 0 for a thread that has none
};

__device__ inline Shares shares_of(const Arguments& a, const Team& team, const Place& place) {
  Shares shares = {(int)a.steps, (int)a.kept, kDealt ? team.size : 1,
                   (Count)team.member * (kDealt ? 1 : (Count)a.steps) * kChunkRows + place.row()};
  const Count positions = (Count)a.positions - place.position(0);
  shares.end = place.active ? (positions + kRowPositions - 1) / kRowPositions : 0;
  return shares;
}

// The chunk that a pass visits as its i-th, of those that it shares with no other block. What the pass before has left in the
// ring comes first, in that order.
__device__ inline int chunk_at(const Shares& shares, int pass, int i) {
  if (!kAgain || pass == 0) return i;
  if (kDealt) {
    // Behind those that are kept the slots hold the last ones in turn.
    const int last = shares.chunks - 1;
    return i < shares.kept ? i : last - (last - i) % (kRing - shares.kept);
  }
  if (kPasses == 2) return i < shares.kept ? shares.chunks - shares.kept + i : shares.chunks - 1 - i;
  int chunk = pass * (shares.chunks - shares.kept) + i;
  while (chunk >= shares.chunks) chunk -= shares.chunks;
  return chunk;
}

// A unit in this block.
struct Unit {
  long long n;
  int first_channel;
  UnitValues* values;
};

__device__ inline Unit unit_at(int number, UnitValues* values) {
  constexpr int kInSample = kChannels / kUnitChannels;
  const int n = number / kInSample;
  return {n, (number - n * kInSample) * kUnitChannels, values};
}

// Where a thread's vector of the block's first chunk lies in the tensors.
__device__ inline long long begin_of(const Arguments& a, const Shares& shares, const Place& place,
                                     const Unit& unit) {
  return (unit.n * a.positions + (long long)shares.first * kRowPositions) * kChannels + unit.first_channel +
         place.column * kVector;
}

// This thread's columns of shared memory: copies in the order of their use, over all units of the team.
struct Ring {
  unsigned int first;  // where they begin
  int issued;          // the slot of the next copy, in bytes behind the first
  int visited;         // that which a first pass takes next
  int oldest;          // that which is still needed
  int pending;         // copies under way, and those that nobody has waited for yet
  int pass;            // of the next copy: its unit's pass,
  int index;           // its place there,
  int unit;            // its unit,
  long long begin;     // and begin_of that
  // Where kDealt:
  int base;            // the slot of its unit's first chunk
  unsigned int drawn;  // lane 0's next number of the counter
  int dealt;           // chunks that this warp has drawn
  int held;            // lane i: the chunk that was drawn for the ring's slot i

  __device__ static int after(int slot, int chunks) {
    slot += chunks * kRingBytes;
    return slot < kRing * kRingBytes ? slot : slot - kRing * kRingBytes;
  }
  __device__ static int next(int slot) { return slot == (kRing - 1) * kRingBytes ? 0 : slot + kRingBytes; }
};

// Draws a number for the warp, which is there when the next chunk is copied.
__device__ inline void draw(Ring& ring, const Arguments& a) {
  if (threadIdx.x % 32 == 0)
    ring.drawn = atomicAdd(a.dealt + ((long long)ring.unit * kWarps + threadIdx.x / 32) * kCounterWords, 1u);
}

__device__ inline void begin_copies(Ring& ring, const Arguments& a, const Shares& shares, const Place& place,
                                    int unit) {
  ring.pass = ring.index = 0;
  ring.unit = unit;
  ring.begin = begin_of(a, shares, place, unit_at(unit, (UnitValues*)0));
  ring.base = ring.issued;
}

// The chunk that the warp has drawn, from the block's first; false where none is left. They go from the last of those that are in
// no ring to the first.
__device__ inline bool take_drawn(Ring& ring, const Arguments& a, const Shares& shares, const Team& team,
                                  int& chunk) {
  const int left = (shares.chunks - kRing) * shares.apart - 1 - (int)__shfl_sync(0xffffffffu, ring.drawn, 0);
  if (left < 0) return false;
  chunk = shares.kept * shares.apart + left - team.member;
  if ((int)threadIdx.x % 32 * kRingBytes == ring.issued) ring.held = chunk;
  ++ring.dealt;
  draw(ring, a);
  return true;
}

// Begins the next copy, where there is one.
__device__ inline void copy_next(Ring& ring, const Arguments& a, const Shares& shares, const Team& team,
                                 const Place& place) {
  int chunk;
  bool drawn = false;
  if (kDealt && ring.pass > 0) {
    drawn = take_drawn(ring, a, shares, team, chunk);
    if (!drawn) begin_copies(ring, a, shares, place, ring.unit + team.count);
  }
  if (ring.unit >= (int)a.units) return;
  if (!drawn) chunk = chunk_at(shares, ring.pass, ring.index) * shares.apart;
  copy_inputs(a, ring.begin + chunk * kChunkElements, shares.first + (Count)chunk * kChunkRows, shares.end,
              ring.first + ring.issued);
  thread::copy_commit();
  ring.issued = Ring::next(ring.issued);
  ++ring.pending;
  if (drawn) return;
  if (++ring.index < shares.chunks) {
    if (kDealt && ring.issued == ring.base) ring.issued = Ring::after(ring.base, shares.kept);
    return;
  }
  if (kAgain && ring.pass + 1 < kPasses) {
    ++ring.pass;
    ring.index = shares.kept;
    if (kDealt) {
      ring.issued = ring.base;
      ring.dealt = 0;
      draw(ring, a);
    }
    return;
  }
  begin_copies(ring, a, shares, place, ring.unit + team.count);
}

// Waits until at most `pending` copies are under way, or a few fewer where that is many.
template <int kFirst, int kCount>
__device__ inline void wait_among(int pending) {
  if constexpr (kCount == 1) {
    thread::copy_wait_constant<kFirst>();
  } else {
    if (pending < kFirst + kCount / 2)
      wait_among<kFirst, kCount / 2>(pending);
    else
      wait_among<kFirst + kCount / 2, kCount / 2>(pending);
  }
}
__device__ inline void wait_for(int pending) {
  if (pending < 8)
    wait_among<0, 8>(pending);
  else if (pending < 16)
    thread::copy_wait_constant<8>();
  else
    thread::copy_wait_constant<16>();
}

// What a sweep takes for each channel of a unit: what the tensors give, then the statistics.
template <class Sweep>
__device__ inline void prepare_parameters(const Arguments& a, const Unit& unit,
                                          typename Sweep::Channel* channels) {
  for (int c = threadIdx.x; c < kUnitChannels; c += kThreads) Sweep::parameters(a, unit, c, channels[c]);
}
template <class Sweep>
__device__ inline void prepare_statistics(const Arguments& a, const Unit& unit,
                                          typename Sweep::Channel* channels) {
  for (int c = threadIdx.x; c < kUnitChannels; c += kThreads) Sweep::statistics(a, unit, c, channels[c]);
  __syncthreads();
}

// One piece of a chunk: a row's vector.
template <class Sweep>
__device__ inline void visit_piece(const Arguments& a, const Unit& unit, const Place& place, Count row,
                                   long long offset, const Inputs& inputs, int piece,
                                   const typename Sweep::Hoisted (&channels)[kVector],
                                   typename Sweep::VectorSums& sums) {
  typename Sweep::Results results[kVector];
#pragma unroll
  for (int v = 0; v < kVector; ++v)
    results[v] = Sweep::program(a, channels[v], inputs, piece, v, unit, place, row);
  sums.add(results);
  Sweep::store(a, offset, results);
}

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
  static_assert(!kDealt || (kPasses == 2 && kRing <= 32 && !(kLast && Sweep::kStatistics)),
                "a chunk's block is for nobody to see");
  const long long begin = begin_of(a, shares, place, unit);
  int slot = kFirst || kDealt ? ring.visited : ring.oldest;
  const int first_slot = slot;
  bool started = false;
  if (Sweep::kStatistics) {
    const Count row = shares.first + (Count)chunk_at(shares, kPass, 0) * shares.apart * kChunkRows;
    if (kFirst) wait_for(ring.pending - 1);
    started = row < shares.end;
    if (started) start_sums<Sweep>(a, unit, place, row, ring_inputs(ring.first + slot), channels, sums);
  }
#pragma unroll 1
  for (int i = 0; i < (kDealt && kLast ? kRing + ring.dealt : shares.chunks); ++i) {
    if (kFirst || (kAgain && i >= (kDealt ? kRing : shares.kept))) wait_for(--ring.pending);
    const Inputs inputs = ring_inputs(ring.first + slot);
    const int chunk = kDealt && kLast && i >= kRing
                          ? __shfl_sync(0xffffffffu, ring.held, (unsigned int)slot / kRingBytes)
                          : chunk_at(shares, kPass, i) * shares.apart;
    slot = Ring::next(slot);
    if (kDealt && kFirst && slot == first_slot) slot = Ring::after(slot, shares.kept);
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
    if (kLast || (kDealt ? i >= shares.kept && i + kRing - shares.kept < shares.chunks
                         : i < shares.chunks - shares.kept)) {
      ring.oldest = slot;
      copy_next(ring, a, shares, team, place);
    }
  }
  if (kDealt ? kLast : kFirst || kAgain) ring.visited = slot;
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
