// Statistics of a unit in the kernel `rows` without barriers (device/rows_ahead.cuh): from the lanes of a warp, the warps of a block
// and the blocks of a team to all.

// A block gives the statistics of unit r + kAhead while others, which have begun round r - kAhead, may not yet have taken those of
// unit r + 1 - kAhead: so many lists of the team in turn.
constexpr int kTeamListsInTurn = 2 * kAhead;
// Parts of a team's list that a lane asks for at once: of teams of up to 160 blocks.
constexpr int kTakenAtOnce = 5;

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

// A warp has ended the first sweep of a round's unit: it puts what it has found into the block's list, and the last one gives what
// all have found.
template <class Sweep, class Sums>
__device__ inline void give_by_last_warp(const Walk<Sweep>& walk, const Team& team, Shared& shared,
                                         const TaggedList<Sums>& to, int round) {
  const Sums own = sums_of_running(walk.sums);
  const int lane = threadIdx.x % 32;
  if (lane == 0) walk.list[threadIdx.x / 32] = own;
  if (!shared.handover.is_last(round)) return;
  Sums part;
  part.clear();
  if (lane < kWarps) part = walk.list[lane];
  const Sums total = sums_of_lanes(part);
  if (lane == 0) {
    if (team.size == 1)
      to.totals[0] = total;
    else
      tagged::give(to.words + team.member * tagged::kCount<Sums>, total, to.tag);
  }
  shared.handover.give(round);
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
