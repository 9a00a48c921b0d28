// The sweeps of a unit: who takes which chunk, from the ring or from memory, and who lets go of it.

// The inputs of a walk's next chunk from memory.
template <class Sweep>
__device__ inline Inputs read_next(const Arguments& a, const Shares& shares, const Walk<Sweep>& walk) {
  return read_inputs(a, walk.offset, walk.element + (Count)(threadIdx.x % 32) * kVector, shares.elements);
}

// A chunk that came into the ring: the first sweep of its unit takes it when its copy has ended.
__device__ inline Inputs take_visited(Ring& ring) {
  thread::copy_wait(--ring.pending);
  const Inputs inputs = ring_inputs(ring.column + ring.visited);
  ring.visited = Ring::next(ring.visited);
  return inputs;
}

// The last sweep lets go of the oldest chunk, and the next copy begins in its place.
__device__ inline void release_kept(Ring& ring, const Arguments& a, const Shares& shares, const Team& team) {
  ring.kept = Ring::next(ring.kept);
  copy_next(ring, a, shares, team);
}

// A unit's first sweep, by itself. Where it is the only one (`kOnly`), nothing stays in the ring.
template <bool kOnly, class Sweep>
__device__ inline void sweep_first(const Arguments& a, const Shares& shares, const Team& team, Ring& ring,
                                   Walk<Sweep>& walk) {
#pragma unroll 1
  for (int step = 0; step < shares.chunks; ++step) {
    visit(a, shares, walk, kAgain && step < shares.again ? read_next(a, shares, walk) : take_visited(ring));
    if (kOnly && (!kAgain || step >= shares.again)) release_kept(ring, a, shares, team);
  }
  if (shares.chunks > 0) flush(shares, walk);
}

// A sweep between the first and the last.
template <class Sweep>
__device__ inline void sweep_between(const Arguments& a, const Shares& shares, const Ring& ring,
                                     Walk<Sweep>& walk) {
  int slot = ring.kept;
#pragma unroll 1
  for (int step = 0; step < shares.chunks; ++step) {
    if (kAgain && step < shares.again) {
      visit(a, shares, walk, read_next(a, shares, walk));
    } else {
      visit(a, shares, walk, ring_inputs(ring.column + slot));
      slot = Ring::next(slot);
    }
  }
  if (shares.chunks > 0) flush(shares, walk);
}

// The last sweep of a unit, and beside it the first of the team's next one, `shares.lead` chunks before it or behind it.
// When that has ended, its statistics are given to the team.
template <class Last, class First>
__device__ inline void sweep_last(const Arguments& a, const Shares& shares, const Team& team, Ring& ring,
                                  Walk<Last>& last, Walk<First>& next, bool has_next,
                                  const TeamList<typename First::Sums>& next_list) {
  const int lead = has_next ? shares.lead : 0;
  const unsigned int chunks = (unsigned int)shares.chunks;
  const unsigned int next_chunks = has_next ? chunks : 0;
  const int next_last = has_next && First::kStatistics ? shares.steps - 1 : -1;
  const int end = lead < 0 ? shares.steps - lead : shares.steps;
#pragma unroll 1
  for (int i = lead > 0 ? -lead : 0; i < end; ++i) {
    if ((unsigned int)i < chunks) {
      visit(a, shares, last,
            kAgain && i < shares.again ? read_next(a, shares, last) : ring_inputs(ring.column + ring.kept));
      if (!kAgain || i >= shares.again) release_kept(ring, a, shares, team);
    }
    const int step = i + lead;
    if ((unsigned int)step < next_chunks)
      visit(a, shares, next, kAgain && step < shares.again ? read_next(a, shares, next) : take_visited(ring));
    if (step != next_last || step < 0) continue;
    if (shares.chunks > 0) flush(shares, next);
    if constexpr (First::kStatistics) give_by_block(shares, team, next.list, next_list);
  }
  if (shares.chunks > 0) flush(shares, last);
}
