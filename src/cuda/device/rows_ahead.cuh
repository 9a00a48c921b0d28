// Sweeps of a block whose warps wait for no barrier, where the ring holds kAhead units and some chunks more.
//
// A warp's last sweep goes over one unit after the other, as soon as their statistics are there, and its first sweep beside it,
// kAhead units and up to a.lead chunks before it, so that statistics have that time to come from the other warps and
// blocks. The last warp of a block that ends a unit's first sweep gives the block's statistics to the team. One warp more, the
// taker, has no part in the sweeps: it takes the team's statistics and works out what the last sweep needs of them.
//
// What stands side by side in turn. A warp is in round r when the values of unit r are there, for which all warps of all blocks
// have ended the first sweep of unit r, in round r - kAhead or before the first: `lead` is less than a unit. So at the same time
// - warps of a block end first sweeps of units r + 1 to r + kAhead: kAhead lists of warps;
// - the taker has the values of unit r + kAhead at most, for which all warps of its block are in round r: kAhead + 1 of them;
// - a block gives the statistics of unit r + kAhead, while others, which have begun round r - kAhead, may not yet have
//   taken those of unit r + 1 - kAhead: 2 * kAhead lists of the team.

constexpr int kValuesInTurn = kAhead + 1, kWarpListsInTurn = kAhead, kTeamListsInTurn = 2 * kAhead;
// Parts of a team's list that a lane asks for at once: of teams of up to 160 blocks.
constexpr int kTakenAtOnce = 5;
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
  ring.units = ring.copies > 0 && !is_taker() ? rounds : 0;
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

// The same in all lanes.
__device__ inline bool is_at_least(const int* count, int value) {
  int found;
  asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
               : "=r"(found)
               : "r"((unsigned int)__cvta_generic_to_shared(count))
               : "memory");
  return __all_sync(0xffffffffu, found >= value);
}

__device__ inline void begin_rounds(Shared& shared) {
  if (threadIdx.x == 0) {
    for (int i = 0; i < kWarpListsInTurn; ++i) shared.arrived[i] = 0;
    shared.given = shared.ready = 0;
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

// As team::take, asking again only for what is not there yet.
template <class Value, int kCount>
__device__ inline void take_missing(const uint2* place, int stride, int count, unsigned int tag,
                                    Value (&values)[kCount]) {
  constexpr int kWords = team::kWordsOf<Value>;
  unsigned int missing = count >= kCount ? (1u << kCount) - 1 : (1u << count) - 1;
  while (true) {
    unsigned int found[kCount][kWords];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      unsigned int* words = reinterpret_cast<unsigned int*>(&values[i]);
#pragma unroll
      for (int k = 0; k < kWords; ++k)
        if (missing >> i & 1)
          asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                       : "=r"(words[k]), "=r"(found[i][k])
                       : "l"(place + i * stride + k)
                       : "memory");
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      bool there = true;
#pragma unroll
      for (int k = 0; k < kWords; ++k) there = there && found[i][k] == tag;
      if ((missing >> i & 1) && there) missing &= ~(1u << i);
    }
    if (missing == 0) return;
  }
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
      const uint2* words = from.words + member * team::kWordsOf<Sums>;
      const int count = (team.size - 1 - member) / 32 + 1;
      take_missing(words, 32 * team::kWordsOf<Sums>, count, from.tag, parts);
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

// The taker has worked a round's values out.
__device__ inline void publish_values(Shared& shared, int round) {
  __threadfence_block();
  __syncwarp();
  if (threadIdx.x % 32 == 0) publish(&shared.ready, round + 1);
}

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
__device__ inline void lead_on(const Arguments& a, const SharesAhead& shares, const Team& team, Ring& ring,
                               Shared& shared, int rounds, Leading<Sweep>& first) {
  if (first.step < shares.chunks)
    visit_ahead(a, shares, first.walk, first.step < kHeld ? first.held.at(first.step) : take_visited(ring));
  if (++first.step < shares.steps) return;
  list_sums(first.walk);
  const Unit& unit = first.walk.unit;
  give_by_last_warp(team, shared, first.walk.list,
                    list_in_turn(unit.values->totals0, a.team_list0, team, first.round), first.round);
  ++first.round;
  first.before = first.held;
  begin_leading(a, shares, team, shared, rounds, first);
}

// Whether the chunk of a first sweep's step is there, as far as the number of copies behind it tells. Where some are in registers, the
// last sweep begins a unit without letting go of chunks in the ring.
__device__ inline bool has_arrived(const Ring& ring, int step) {
  return kHeld == 0 || step < kHeld || ring.pending > kDelay || ring.units == 0;
}

// All rounds of a warp. Its first sweep is at most `lead` chunks more than kAhead units before its last one, or so many fewer
// (below 0): farther whenever a unit's statistics are waited for. Before a unit's last sweep begins, its first one has ended.
// `Values` works out what the last sweep takes of a unit.
template <class Values, class Last, class First>
__device__ inline void sweep_rounds(const Arguments& a, const SharesAhead& shares, const Team& team,
                                    Ring& ring, Shared& shared, int rounds) {
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
    if (waits && is_at_least(&shared.ready, round + 1)) {
      waits = false;
      const Unit unit = unit_in_turn(shares, team, round, shared);
      last = begin_ahead<Last>(shares, unit, Values::channels(unit), (NoSums*)0);
    }
    if (!waits) {
      if (step < shares.chunks) {
        visit_ahead(a, shares, last,
                    step < kHeld ? first.before.at(step) : ring_inputs(ring.column + ring.kept));
        if (step >= kHeld) {
          ring.kept = Ring::next(ring.kept);
          copy_ahead(ring, a, shares, team);
        }
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
