// Sweeps of a block whose warps wait for no barrier, where the ring holds kAhead units and some chunks more.
//
// A warp's last sweep goes over one unit after the other, as soon as their statistics are there, and its first sweep beside it,
// kAhead units and up to a.lead chunks before it, so that statistics have that time to come from the other warps and
// blocks (device/rows_ahead_statistics.cuh). The last warp of a block that ends a unit's first sweep gives the block's statistics to the
// team. One warp more, the taker, has no part in the sweeps: it takes the team's statistics and works out what the last sweep needs
// of them. What they wait for of each other is in `Handover`.

// Steps in which a copy arrives.
constexpr int kDelay = 2;

// The warp behind those of the sweeps.
__device__ inline bool is_taker() { return threadIdx.x >= kThreads; }

// A warp's share of a unit: where kApart is 1, chunks as far apart as the team's warps have together, so that at any time the
// team reads and writes one part of memory.
struct SharesAhead : Shares {
  Count first;     // element of this warp
  Count distance;  // of its chunks
};

__device__ inline SharesAhead shares_ahead(const Arguments& a, const Team& team) {
  SharesAhead shares;
  static_cast<Shares&>(shares) = shares_of(a, team);
  shares.first = shares.begin(shares.warp);
  shares.distance = kChunk;
  if (kApart) {
    const int warps = team.size * kWarps, all = (int)((shares.elements + kChunk - 1) / kChunk);
    shares.chunks = (all - 1 - shares.warp + warps) / warps;
    shares.first = (Count)shares.warp * kChunk;
    shares.distance = (Count)warps * kChunk;
    shares.warp_channel = (int)(shares.first / shares.positions);
  }
  return shares;
}

// Where kBegun is less than kRing, copies into the other slots begin one by one as the first sweep gets on: the more of them
// are on their way at the start, the later the first unit is there, and not equally late on all multiprocessors.
struct RingAhead : Ring {
  int later;  // slots that no copy has had yet
};

// As `copy_next` and `ring_of_thread`, for such shares.
__device__ inline void copy_ahead(Ring& ring, const Arguments& a, const SharesAhead& shares,
                                  const Team& team) {
  if (ring.units == 0) return;
  copy_inputs(a, ring.offset, ring.copied, shares.elements, ring.column + ring.issued);
  thread::copy_commit();
  ring.issued = Ring::next(ring.issued);
  ++ring.pending;
  ring.copied += shares.distance;
  ring.offset += shares.distance;
  if (--ring.copies > 0) return;
  ring.copies = shares.chunks - shares.again;
  --ring.units;
  const Count share = (Count)ring.copies * shares.distance;
  ring.copied -= share;
  ring.offset += team.count * (long long)shares.elements - share;
}
__device__ inline RingAhead ring_ahead(const Arguments& a, const SharesAhead& shares, const Team& team,
                                       int rounds, const char* column) {
  RingAhead ring = {};
  // Held in a register: the compiler would work it out anew at each use.
  asm volatile("mov.u32 %0, %1;" : "=r"(ring.column) : "r"((unsigned int)__cvta_generic_to_shared(column)));
  ring.copies = shares.chunks - shares.again;
  ring.units = ring.copies > 0 && !is_taker() ? rounds : 0;
  ring.copied = shares.first + shares.again * shares.distance + (Count)(threadIdx.x % 32) * kVector;
  ring.offset = team.number * (long long)shares.elements + ring.copied;
#pragma unroll 1
  for (int i = 0; i < kBegun; ++i) copy_ahead(ring, a, shares, team);
  ring.later = kRing - kBegun;
  return ring;
}

// The last sweep lets go of the oldest chunk, and the next copy begins in its place.
__device__ inline void release_ahead(RingAhead& ring, const Arguments& a, const SharesAhead& shares,
                                     const Team& team) {
  ring.kept = Ring::next(ring.kept);
  copy_ahead(ring, a, shares, team);
}

// What a first sweep takes, and one more copy in its place while the ring has slots that none has had yet.
__device__ inline Inputs take_visited_ahead(RingAhead& ring, const Arguments& a, const SharesAhead& shares,
                                            const Team& team) {
  const Inputs inputs = take_visited(ring);
  if (ring.later > 0) {
    --ring.later;
    copy_ahead(ring, a, shares, team);
  }
  return inputs;
}

// As `begin_walk` and `visit`.
template <class Sweep>
__device__ inline Walk<Sweep> begin_ahead(const SharesAhead& shares, const Unit& unit,
                                          const typename Sweep::Channel* channels,
                                          typename Sweep::Sums* list) {
  Walk<Sweep> walk = begin_walk<Sweep>(shares, unit, channels, list);
  walk.element = shares.first;
  walk.offset = unit.begin + shares.first + (Count)(threadIdx.x % 32) * kVector;
  return walk;
}
template <class Sweep>
__device__ inline void visit_ahead(const Arguments& a, const SharesAhead& shares, Walk<Sweep>& walk,
                                   const Inputs& inputs) {
  visit(a, shares, walk, inputs);
  if (kApart) {
    walk.element += shares.distance - kChunk;
    walk.offset += shares.distance - kChunk;
  }
}

__device__ inline void begin_rounds(Shared& shared) {
  if (threadIdx.x == 0) shared.handover.begin();
  __syncthreads();
}

// Whether a step's chunk is in registers. Where none is, the compiler must see that: it would choose between both each time.
__device__ inline bool is_held(int step) { return kHeld > 0 && step < kHeld; }

// The first chunks of a unit (kHeld), which are in registers and not in the ring.
struct Held {
  Inputs chunks[kHeld > 0 ? kHeld : 1];

  __device__ void read(const Arguments& a, const SharesAhead& shares, const Unit& unit) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const Count element = shares.first + i * shares.distance + (Count)(threadIdx.x % 32) * kVector;
      if (i < shares.chunks) chunks[i] = read_inputs(a, unit.begin + element, element, shares.elements);
    }
  }
  __device__ Inputs at(int step) const {
    Inputs inputs = chunks[0];
#pragma unroll
    for (int i = 1; i < kHeld; ++i)
      if (step == i) inputs = chunks[i];
    return inputs;
  }
};

// A warp's first sweep, which goes on from unit to unit.
template <class Sweep>
struct Leading {
  Walk<Sweep> walk;
  int round;  // of its unit
  int step;   // the next chunk there
  Held held;
  Held before;  // of the unit before, whose last sweep comes next
};

template <class Sweep>
__device__ inline void begin_leading(const Arguments& a, const SharesAhead& shares, const Team& team,
                                     Shared& shared, int rounds, Leading<Sweep>& first) {
  if (first.round >= rounds) return;
  const Unit unit = unit_in_turn(shares, team, first.round, shared);
  first.step = 0;
  first.walk = begin_ahead<Sweep>(shares, unit, (NoChannel*)0, shared.list0[first.round % kWarpListsInTurn]);
  first.held.read(a, shares, unit);
}

// Its next chunk. Behind a unit's last one the team gets the statistics.
template <class Sweep>
__device__ inline void lead_on(const Arguments& a, const SharesAhead& shares, const Team& team,
                               RingAhead& ring, Shared& shared, int rounds, Leading<Sweep>& first) {
  if (first.step < shares.chunks)
    visit_ahead(a, shares, first.walk,
                is_held(first.step) ? first.held.at(first.step) : take_visited_ahead(ring, a, shares, team));
  if (++first.step < shares.steps) return;
  const Unit& unit = first.walk.unit;
  give_by_last_warp(first.walk, team, shared, list_in_turn(a, unit.values->totals0, team, first.round),
                    first.round);
  ++first.round;
  first.before = first.held;
  begin_leading(a, shares, team, shared, rounds, first);
}

// Whether the chunk of a first sweep's step is there, as far as the number of copies behind it tells. Where some are in registers, the
// last sweep begins a unit without letting go of chunks in the ring.
__device__ inline bool has_arrived(const Ring& ring, int step) {
  return kHeld == 0 || is_held(step) || ring.pending > kDelay || ring.units == 0;
}

// All rounds of a warp. Its first sweep is at most `lead` chunks more than kAhead units before its last one, or so many fewer
// (below 0): farther whenever a unit's statistics are waited for. Before a unit's last sweep begins, its first one has ended.
// Where no chunks are in registers, a slot takes the next copy as soon as the last sweep has read its vectors, before it works on
// them: what cp.async does is ordered after prior instructions of its thread (PTX ISA, Memory Consistency Model, Asynchronous
// Operations).
// `Values` works out what the last sweep takes of a unit.
template <class Values, class Last, class First>
__device__ inline void sweep_rounds(const Arguments& a, const SharesAhead& shares, const Team& team,
                                    RingAhead& ring, Shared& shared, int rounds) {
  Leading<First> first;
  first.round = 0;
  begin_leading(a, shares, team, shared, rounds, first);
  Walk<Last> last;
  const int most = kAhead * shares.steps + shares.lead;
  int distance = 0;  // of the first sweep from the last one
  int round = 0, step = 0;
  bool waits = true;  // for the statistics of the round's unit
#pragma unroll 1
  for (; first.round < rounds && distance < most && has_arrived(ring, first.step); ++distance)
    lead_on(a, shares, team, ring, shared, rounds, first);
#pragma unroll 1
  while (round < rounds) {
    if (waits && shared.handover.has_values(round)) {
      waits = false;
      const Unit unit = unit_in_turn(shares, team, round, shared);
      last = begin_ahead<Last>(shares, unit, Values::channels(unit), (NoSums*)0);
    }
    if (!waits) {
      if (step < shares.chunks) {
        const bool held = is_held(step);
        const Inputs inputs = held ? first.before.at(step) : ring_inputs(ring.column + ring.kept);
        if (kHeld == 0) release_ahead(ring, a, shares, team);
        visit_ahead(a, shares, last, inputs);
        if (kHeld > 0 && !held) release_ahead(ring, a, shares, team);
      }
      ++step;
      --distance;
    }
    if (first.round < rounds &&
        (first.round <= round || (distance < most && has_arrived(ring, first.step)))) {
      lead_on(a, shares, team, ring, shared, rounds, first);
      ++distance;
    }
    if (step == shares.steps) {
      waits = true;
      ++round;
      step = 0;
    }
  }
}
