// Sweeps of a block whose warps wait for no barrier, where the ring holds kAhead units and a few chunks more.
//
// In round r a warp's last sweep over unit r goes on beside its first sweep over unit r + kAhead, so that a unit's
// statistics have kAhead - 1 rounds to come from the other warps and blocks. The last warp that ends a unit's first sweep
// gives the block's statistics to the team. The first that is in the middle of round r takes the team's of unit r + 1, while
// the others go on; where kAhead is 1, the first that is at its end, or begins the next.
//
// What stands side by side in turn. A warp is in round r when the values of unit r are there, for which all warps of all blocks
// have ended the first sweep of unit r, in round r - kAhead or before the first. So at the same time
// - warps of a block end first sweeps of units r + 1 to r + kAhead: kAhead lists of warps;
// - one takes the statistics of unit r + 1, which all have given in round r + 1 - kAhead, where some may still be: values
//   of units r + 1 - kAhead to r + 1, kAhead + 1 of them;
// - a block gives the statistics of unit r + kAhead, while others, which have begun round r - kAhead, may not yet have
//   taken those of unit r + 1 - kAhead: 2 * kAhead lists of the team.

constexpr int kValuesInTurn = kAhead + 1, kWarpListsInTurn = kAhead, kTeamListsInTurn = 2 * kAhead;
// Parts of a team's list that a lane asks for at once: of teams of up to 160 blocks.
constexpr int kTakenAtOnce = 5;

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
__device__ inline Ring ring_ahead(const Arguments& a, const SharesAhead& shares, const Team& team, int rounds,
                                  const char* column) {
  Ring ring = {};
  // Held in a register: the compiler would work it out anew at each use.
  asm volatile("mov.u32 %0, %1;" : "=r"(ring.column) : "r"((unsigned int)__cvta_generic_to_shared(column)));
  ring.copies = shares.chunks - shares.again;
  ring.units = ring.copies > 0 ? rounds : 0;
  ring.copied = shares.first + shares.again * shares.distance + (Count)(threadIdx.x % 32) * kVector;
  ring.offset = team.number * (long long)shares.elements + ring.copied;
#pragma unroll 1
  for (int i = 0; i < kRing; ++i) copy_ahead(ring, a, shares, team);
  return ring;
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

// Statistics of a warp's lanes, of a block's warps and of a team's blocks: all of them wait for these, so that moments are
// merged in few steps, as sums around the mean that the first part has. That is a mean of some of the elements, so where it is
// far from the mean of all, so is the variance large of which it is a part.
template <class Number>
__device__ inline Moments<Number> around_first(Number pivot, Number sum, Number squares, Number count) {
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    squares += __shfl_xor_sync(0xffffffffu, squares, distance);
    count += __shfl_xor_sync(0xffffffffu, count, distance);
  }
  if (count == 0) return {0, 0, 0};
  const Number mean = quotient(sum, count), rest = squares - sum * mean;
  return {pivot + mean, rest < 0 ? (Number)0 : rest, count};
}
template <class Statistic>
__device__ inline Statistic of_lanes(Statistic part) {
  part.merge_lanes();
  return part;
}
template <class Number>
__device__ inline Moments<Number> of_lanes(const Moments<Number>& part) {
  const Number pivot = __shfl_sync(0xffffffffu, part.first, 0), distance = part.first - pivot;
  const Number sum = part.count == 0 ? (Number)0 : part.count * distance;
  return around_first(pivot, sum, part.second + sum * distance, part.count);
}
// The same of what lanes are taking.
template <class Statistic>
__device__ inline Statistic of_running(const Running<Statistic>& running) {
  return of_lanes(running.settled());
}
template <class Number>
__device__ inline Moments<Number> of_running(const Running<Moments<Number>>& running) {
  const Number pivot = __shfl_sync(0xffffffffu, running.pivot, 0), distance = running.pivot - pivot;
  const Number own = sum_of(running.sums), count = (Number)running.count;
  const Number sum = running.count == 0 ? (Number)0 : own + count * distance;
  // The squares of (element - own pivot) + distance.
  const Number squares = running.count == 0 ? (Number)0 : sum_of(running.squares) + distance * (own + sum);
  return around_first(pivot, sum, squares, count);
}

// A count in shared memory that only grows: who finds it sees what was written before it grew.
__device__ inline void publish(int* count, int value) {
  asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"((unsigned int)__cvta_generic_to_shared(count)),
               "r"(value)
               : "memory");
}
__device__ inline void wait_until(const int* count, int value) {
  int found = 0;
  do {
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
                 : "=r"(found)
                 : "r"((unsigned int)__cvta_generic_to_shared(count))
                 : "memory");
  } while (found < value);
}

__device__ inline void begin_rounds(Shared& shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < kWarpListsInTurn; ++i) shared.arrived[i] = 0;
    shared.given = shared.asked = shared.ready = 0;
  }
  __syncthreads();
}

__device__ inline Unit unit_in_turn(const Shares& shares, const Team& team, int round, Shared& shared) {
  Unit unit = unit_of_round(shares, team, round, shared);
  unit.values = &shared.values[round % kValuesInTurn];
  return unit;
}

template <class Sums>
__device__ inline TeamList<Sums> list_in_turn(Sums* totals, uint2* lists, const Team& team, int round) {
  const int number = team.number * kTeamListsInTurn + round % kTeamListsInTurn;
  return {totals, lists + number * (Sums::kChannels + team.size) * team::kWordsOf<Sums>, round + 1u};
}

// Puts what a warp's first sweep has found into the block's list.
template <class Sweep>
__device__ inline void list_sums(const Walk<Sweep>& walk) {
  const typename Sweep::Sums total = sums_of_running(walk.sums);
  if (threadIdx.x % 32 == 0) walk.list[threadIdx.x / 32] = total;
}

// A warp has ended the first sweep of a round's unit: the last one gives what all of the block's have found.
template <class Sums>
__device__ inline void give_by_last_warp(const Team& team, Shared& shared, const Sums* list,
                                         const TeamList<Sums>& to, int round) {
  int before = 0;
  if (threadIdx.x % 32 == 0) {
    int* arrived = &shared.arrived[round % kWarpListsInTurn];
    __threadfence_block();
    before = atomicAdd(arrived, 1);
    // Nobody comes to this list again before the values of this round are there.
    if (before == kWarps - 1) *arrived = 0;
    __threadfence_block();
  }
  if (__shfl_sync(0xffffffffu, before, 0) != kWarps - 1) return;
  Sums part;
  part.clear();
  if (threadIdx.x % 32 < kWarps) part = list[threadIdx.x % 32];
  const Sums total = sums_of_lanes(part);
  if (threadIdx.x % 32 != 0) return;
  if (team.size == 1)
    to.totals[0] = total;
  else
    team::give(to.words + team.member * team::kWordsOf<Sums>, total, to.tag);
  publish(&shared.given, round + 1);
}

// The unit's totals out of the team's list, by a warp, as soon as the other blocks have given theirs.
template <class Sums>
__device__ inline void take_by_warp(const Team& team, const TeamList<Sums>& from) {
  if (team.size > 1) {
    const int lane = threadIdx.x % 32;
    Sums part;
    part.clear();
    for (int member = lane; member < team.size; member += 32 * kTakenAtOnce) {
      Sums parts[kTakenAtOnce];
      team::take(from.words + member * team::kWordsOf<Sums>, 32 * team::kWordsOf<Sums>,
                 (team.size - 1 - member) / 32 + 1, from.tag, parts);
#pragma unroll
      for (int i = 0; i < kTakenAtOnce; ++i)
        if (member + 32 * i < team.size) part.merge(parts[i]);
    }
    __syncwarp();
    const Sums total = sums_of_lanes(part);
    if (lane == 0) from.totals[0] = total;
  }
  __syncwarp();
}

// Whether this warp is the first that asks for a round's values: it works them out, when its block's part is given.
__device__ inline bool is_first_to_ask(Shared& shared, int round) {
  int before = 0;
  if (threadIdx.x % 32 == 0) before = atomicMax(&shared.asked, round + 1);
  if (__shfl_sync(0xffffffffu, before, 0) > round) return false;
  wait_until(&shared.given, round + 1);
  __syncwarp();
  return true;
}

// It has worked them out.
__device__ inline void publish_values(Shared& shared, int round) {
  __threadfence_block();
  __syncwarp();
  if (threadIdx.x % 32 == 0) publish(&shared.ready, round + 1);
}

// A unit's first sweep, by itself.
template <class Sweep>
__device__ inline void sweep_first_ahead(const Arguments& a, const SharesAhead& shares, Ring& ring,
                                         Walk<Sweep>& walk) {
#pragma unroll 1
  for (int step = 0; step < shares.chunks; ++step)
    visit_ahead(a, shares, walk,
                kAgain && step < shares.again ? read_next(a, shares, walk) : take_visited(ring));
  list_sums(walk);
}

// The last sweep of a round's unit, and beside it the first of a later one, as `sweep_last` has them. In the middle of both,
// `Values` works the next round's out.
template <class Values, class Last, class First>
__device__ inline void sweep_round(const Arguments& a, const SharesAhead& shares, const Team& team,
                                   Ring& ring, Shared& shared, Walk<Last>& last, Walk<First>& next,
                                   const TeamList<typename First::Sums>& next_list, int round, int rounds) {
  const bool has_next = round + kAhead < rounds;
  const int lead = has_next ? shares.lead : 0;
  const unsigned int chunks = (unsigned int)shares.chunks;
  const unsigned int next_chunks = has_next ? chunks : 0;
  const int next_last = has_next ? shares.steps - 1 : -1;
  const int begin = lead > 0 ? -lead : 0;
  const int end = lead < 0 ? shares.steps - lead : shares.steps;
  // Behind the first sweep's end where that is what is asked for.
  const int asks = kAhead > 1 ? begin + (end - begin) / 2 : lead > 0 ? end - 1 : end;
#pragma unroll 1
  for (int i = begin; i < end; ++i) {
    if (i == asks && round + 1 < rounds) Values::work_out(a, shares, team, shared, round + 1);
    if ((unsigned int)i < chunks) {
      visit_ahead(
          a, shares, last,
          kAgain && i < shares.again ? read_next(a, shares, last) : ring_inputs(ring.column + ring.kept));
      if (!kAgain || i >= shares.again) {
        ring.kept = Ring::next(ring.kept);
        copy_ahead(ring, a, shares, team);
      }
    }
    const int step = i + lead;
    if ((unsigned int)step < next_chunks)
      visit_ahead(a, shares, next,
                  kAgain && step < shares.again ? read_next(a, shares, next) : take_visited(ring));
    if (step != next_last || step < 0) continue;
    list_sums(next);
    give_by_last_warp(team, shared, next.list, next_list, round + kAhead);
  }
}
