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

// Where the blocks of a team put their statistics of a unit.
template <class Sums>
struct TaggedList {
  Sums* totals;          // of the unit
  tagged::Words* words;  // of all its blocks
  unsigned long long tag;
};

template <class Sums>
__device__ inline TaggedList<Sums> list_in_turn(const Arguments& a, Sums* totals, const Team& team,
                                                int round) {
  const int number = team.number * kTeamListsInTurn + round % kTeamListsInTurn;
  return {totals, a.team_list0 + number * team.size * tagged::kCount<Sums>,
          (unsigned long long)a.tag + (unsigned int)round};
}

// Has the team's lists in L2 before anybody asks for them.
template <class Sums>
__device__ inline void fetch_lists(const Arguments& a, const Team& team) {
  constexpr int kOfLine = 128 / sizeof(tagged::Words);
  const int words = kTeamListsInTurn * team.size * tagged::kCount<Sums>;
  if (team.size > 1)
    for (int i = (int)(threadIdx.x % 32) * kOfLine; i < words; i += 32 * kOfLine)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(a.team_list0 + team.number * words + i));
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
                                         const TaggedList<Sums>& to, int round) {
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
    tagged::give(to.words + team.member * tagged::kCount<Sums>, total, to.tag);
  publish(&shared.given, round + 1);
}

// Waits for values of other blocks, `count` of them and at most kCount, `stride` apart, asking again only for what is not
// there yet. All are asked for before the first is looked at.
template <class Value, int kCount>
__device__ inline void take_missing(const tagged::Words* place, int stride, int count, unsigned long long tag,
                                    Value (&values)[kCount]) {
  unsigned int missing = count >= kCount ? (1u << kCount) - 1 : (1u << count) - 1;
  tagged::Loaded<Value> found[kCount];
  while (missing != 0) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (missing >> i & 1) found[i].load(place + i * stride);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (found[i].is_there(tag)) missing &= ~(1u << i);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = found[i].value();
}

// The unit's totals out of the team's list, by a warp, as soon as the other blocks have given theirs.
template <class Sums>
__device__ inline void take_by_warp(const Team& team, const TaggedList<Sums>& from) {
  if (team.size > 1) {
    const int lane = threadIdx.x % 32;
    Sums part;
    part.clear();
    for (int member = lane; member < team.size; member += 32 * kTakenAtOnce) {
      Sums parts[kTakenAtOnce];
      const tagged::Words* words = from.words + member * tagged::kCount<Sums>;
      const int count = (team.size - 1 - member) / 32 + 1;
      take_missing(words, 32 * tagged::kCount<Sums>, count, from.tag, parts);
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

// Loads what tensors give to a unit's channels while there is time: whoever needs it finds it in L1.
template <class Crew, class Sweep>
__device__ inline void touch_parameters(const Arguments& a, const Unit& unit) {
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {
    typename Sweep::Channel channel = {};
    Sweep::parameters(a, unit, c, channel);
    const unsigned int* words = reinterpret_cast<const unsigned int*>(&channel);
#pragma unroll
    for (int i = 0; i < (int)(sizeof(channel) / 4); ++i) asm volatile("" ::"r"(words[i]));
  }
}

// The taker has worked a round's values out.
__device__ inline void publish_values(Shared& shared, int round) {
  __threadfence_block();
  __syncwarp();
  if (threadIdx.x % 32 == 0) publish(&shared.ready, round + 1);
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
  list_sums(first.walk);
  const Unit& unit = first.walk.unit;
  give_by_last_warp(team, shared, first.walk.list, list_in_turn(a, unit.values->totals0, team, first.round),
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
    if (waits && is_at_least(&shared.ready, round + 1)) {
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
