// rows: sweeps of a block over tensors whose positions lie one behind the other, unit by unit.
//
// A unit is kUnitChannels channels of one sample, in memory one run of kUnitChannels * positions elements. A team of
// thread blocks works on it: every warp has a run of neighbouring chunks of kPieces times 32 vectors, every lane one vector
// of each piece.
// A chunk is copied into the lane's own column of shared memory long before its turn, also chunks of the team's next
// unit, and stays there for the later sweeps of its unit; where a unit is larger than all columns, its first chunks are read
// from memory by each sweep. The first sweep of the next unit goes on beside the last one of a unit, so that memory is
// never waited for by all warps at once. Statistics are merged lane by lane, warp by warp, block by block, in an order that
// depends on the shapes alone.
//
// Before this stand the constants (kThreads, kRing, kUnitChannels, ...), Arguments, Inputs (what lies in the ring) and
// UnitValues; behind it the program of each sweep, the finalise steps and `run_units`, which calls what is here in the
// plan's order; last the kernel, device/rows.cu.

constexpr int kTaken = kCluster > 1 ? 1 : 3;  // parts of a team's list that a lane asks for at once

constexpr int kPiece = 32 * kVector;      // elements of a warp's piece
constexpr int kChunk = kPieces * kPiece;  // and of its chunk

// The warps of a team, or its blocks, that have elements of a channel.
struct Range {
  int first, last;
};

// The units of this kernel and every warp's share of one. Elements of a unit are counted by `Count`.
struct Shares {
  Count positions;  // of a channel
  Count elements;   // of a unit
  int steps;        // chunks of a warp
  int again;        // of these, the first, that are never in the ring
  int lead;  // chunks by which the next unit's first sweep is before this one's last, or behind it (below 0)
  int warp;  // this one, by its number in the team
  int warp_channel;   // the first channel of its share,
  int block_channel;  // and of its block's

  // The first element of a warp's share, by its number in the team.
  __device__ Count begin(int warp) const { return (Count)warp * steps * kChunk; }
  __device__ bool empty(int warp) const { return begin(warp) >= elements; }
  // `share` is what each of them has at most.
  __device__ Range having(int channel, Count share) const {
    const Count first = channel * positions;
    return {(int)(first / share), (int)((first + positions - 1) / share)};
  }
};

__device__ inline Shares shares_of(const Arguments& a, const Team& team) {
  Shares shares = {(Count)a.positions, (Count)(kUnitChannels * a.positions), (int)a.steps, (int)a.again,
                   (int)a.lead};
  shares.warp = team.member * kWarps + (int)threadIdx.x / 32;
  shares.warp_channel = (int)(shares.begin(shares.warp) / shares.positions);
  shares.block_channel = (int)(shares.begin(team.member * kWarps) / shares.positions);
  return shares;
}

// A unit in this block.
struct Unit {
  int n;
  int first_channel;
  long long begin;  // its first element
  UnitValues* values;
};

// The unit that a team takes in a round; statistics of two rounds stand side by side.
__device__ inline Unit unit_of_round(const Shares& shares, const Team& team, int round, Shared& shared) {
  constexpr unsigned int kInSample = kChannels / kUnitChannels;
  const long long number = team.number + round * (long long)team.count;
  const unsigned int n = (unsigned int)number / kInSample;
  return {(int)n, (int)((unsigned int)number - n * kInSample) * kUnitChannels, number * shares.elements,
          &shared.values[round % 2]};
}

// This thread's columns of shared memory: copies in the order of their use, over all units of the team. Slots are counted
// in bytes from the first.
struct Ring {
  char* column;
  int issued;        // the slot of the next copy
  int visited;       // that which a first sweep takes next
  int kept;          // the oldest that waits for later sweeps
  int pending;       // copies under way, and those that a first sweep has not taken yet
  int copies;        // of this unit that are still to come
  int units;         // and units
  Count element;     // of the next copy, in its unit
  long long offset;  // and in the tensors

  __device__ static int next(int slot) { return slot == (kRing - 1) * kRingBytes ? 0 : slot + kRingBytes; }
};

// Begins the next copy, where there is one.
__device__ inline void copy_next(Ring& ring, const Arguments& a, const Shares& shares, const Team& team) {
  if (kRing == 0 || ring.units == 0) return;
  copy_inputs(a, ring.offset, ring.element, shares.elements, ring.column + ring.issued);
  thread::copy_commit();
  ring.issued = Ring::next(ring.issued);
  ++ring.pending;
  ring.element += kChunk;
  ring.offset += kChunk;
  if (--ring.copies > 0) return;
  ring.copies = shares.steps - shares.again;
  --ring.units;
  const Count share = (Count)ring.copies * kChunk;
  ring.element -= share;
  ring.offset += team.count * (long long)shares.elements - share;
}

__device__ inline Ring ring_of_thread(const Arguments& a, const Shares& shares, const Team& team, int rounds,
                                      char* column) {
  Ring ring = {column};
  ring.copies = shares.steps - shares.again;
  ring.units = shares.empty(shares.warp) ? 0 : rounds;
  ring.element =
      shares.begin(shares.warp) + (Count)shares.again * kChunk + (Count)(threadIdx.x % 32) * kVector;
  ring.offset = team.number * (long long)shares.elements + ring.element;
#pragma unroll 1
  for (int i = 0; i < kRing; ++i) copy_next(ring, a, shares, team);
  return ring;
}

// Where the blocks of a team put their statistics of one sweep and round.
template <class Sums>
struct TeamList {
  Sums* totals;  // of the unit
  Sums* shared;  // of this block, where the team is a cluster: one place for each channel
  uint2* words;  // of all its blocks, where it is not: one place for each pair of block and channel
  unsigned int tag;
};

// The statistics of the block's channels out of its warps' list, one warp a channel: into the unit's totals where the
// block is alone, else into the team's list. All of the block's warps have ended their sweep where a single one does this.
template <class Crew, class Sums>
__device__ inline void give_statistics(const Shares& shares, const Team& team, const Sums* list,
                                       const TeamList<Sums>& to) {
  const int lane = threadIdx.x % 32;
  const int first_warp = team.member * kWarps;
  Crew::sync();
  const Count end = shares.begin(first_warp + kWarps);
  for (int channel = shares.block_channel + Crew::warp();
       channel < kUnitChannels && channel * shares.positions < end; channel += Crew::kCrewWarps) {
    const Range warps = shares.having(channel, (Count)shares.steps * kChunk);
    Sums total;
    total.clear();
    if (lane < kWarps && warps.first <= first_warp + lane && first_warp + lane <= warps.last)
      total.merge(list[channel - shares.block_channel + lane]);
    total.merge_lanes();
    if (lane != 0) continue;
    if (team.size == 1)
      to.totals[channel] = total;
    else if (kCluster > 1)
      to.shared[channel] = total;
    else
      team::give(to.words + (channel + team.member) * team::kWordsOf<Sums>, total, to.tag);
  }
  if constexpr (kCluster > 1) cluster::arrive();
}

// The team's statistics of a channel, in every lane of a warp.
template <class Sums>
__device__ inline Sums of_team(const Shares& shares, const TeamList<Sums>& from, int channel) {
  const Range blocks = shares.having(channel, shares.begin(kWarps));
  Sums total;
  total.clear();
  for (int member = blocks.first + (int)threadIdx.x % 32; member <= blocks.last; member += 32 * kTaken) {
    Sums parts[kTaken];
    if constexpr (kCluster > 1)
      parts[0] = cluster::read(from.shared + channel, member);
    else
      team::take(from.words + (channel + member) * team::kWordsOf<Sums>, 32 * team::kWordsOf<Sums>,
                 (blocks.last - member) / 32 + 1, from.tag, parts);
#pragma unroll
    for (int i = 0; i < kTaken; ++i)
      if (member + 32 * i <= blocks.last) total.merge(parts[i]);
  }
  total.merge_lanes();
  return total;
}

// The unit's totals out of the team's list, one warp a channel, as soon as the other blocks have given theirs.
template <class Crew, class Sums>
__device__ inline void take_statistics(const Shares& shares, const Team& team, const TeamList<Sums>& from) {
  if constexpr (kCluster > 1) cluster::wait();
  if (team.size > 1) {
    for (int channel = Crew::warp(); channel < kUnitChannels; channel += Crew::kCrewWarps) {
      const Sums total = of_team(shares, from, channel);
      if (threadIdx.x % 32 == 0) from.totals[channel] = total;
    }
  }
  Crew::sync();
}

// What a sweep takes for each channel of a unit, worked out once: what the tensors give, while other blocks are waited
// for, then the statistics.
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

// Where a warp is in a sweep over its share of a unit.
template <class Sweep>
struct Walk {
  Unit unit;
  const typename Sweep::Channel* channels;  // what the program takes for each channel of the unit, or 0
  typename Sweep::Sums* list;               // of the block's statistics, or 0
  Count element;                            // the warp's next
  int channel;
  Count channel_end;  // first element of the next channel
  typename Sweep::Channel values;
  typename Sweep::Sums sums;
};

template <class Sweep>
__device__ inline Walk<Sweep> begin_walk(const Shares& shares, const Unit& unit,
                                         const typename Sweep::Channel* channels,
                                         typename Sweep::Sums* list) {
  Walk<Sweep> walk;
  walk.unit = unit;
  walk.channels = channels;
  walk.list = list;
  walk.element = shares.begin(shares.warp);
  walk.channel = shares.warp_channel;
  walk.channel_end = (walk.channel + 1) * shares.positions;
  if (channels && !shares.empty(shares.warp)) walk.values = channels[walk.channel];
  walk.sums.clear();
  return walk;
}

// Adds the warp's statistics of a channel to the block's list: one place for each pair of warp and channel.
template <class Sweep>
__device__ inline void flush(const Shares& shares, Walk<Sweep>& walk) {
  if (!Sweep::kStatistics) return;
  const typename Sweep::Sums total = warp::merge(walk.sums);
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) walk.list[walk.channel - shares.block_channel + warp] = total;
  walk.sums.clear();
}

template <class Sweep>
__device__ inline void next_channel(const Shares& shares, Walk<Sweep>& walk) {
  flush(shares, walk);
  ++walk.channel;
  walk.channel_end += shares.positions;
  if (walk.channels && walk.channel < kUnitChannels) walk.values = walk.channels[walk.channel];
}

// Where the lane's element i lies behind its first.
__device__ constexpr int place(int i) { return i / kVector * kPiece + i % kVector; }

// The elements of the walk's next chunk.
template <class Sweep>
__device__ inline void visit(const Arguments& a, const Shares& shares, Walk<Sweep>& walk,
                             const Inputs& inputs) {
  const Count element = walk.element;
  walk.element += kChunk;
  if (element >= shares.elements) return;
  const Count mine = element + (Count)(threadIdx.x % 32) * kVector;
  const long long offset = walk.unit.begin + mine;
  while (walk.channel_end <= element) next_channel(shares, walk);
  typename Sweep::Results results[kElements];
  if (element + kChunk <= walk.channel_end) {
    const Count position = mine - (walk.channel_end - shares.positions);
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      results[i] = Sweep::program(a, walk.values, inputs, i, walk.unit, walk.channel, position + place(i));
    walk.sums.add(results, kAllElements);
    Sweep::template store<true>(a, shares, walk.unit, mine, offset, results);
  } else {
    // Channels end inside the chunk, or the unit does.
    const Count end = element + kChunk < shares.elements ? element + kChunk : shares.elements;
    while (true) {
      const Count begin = walk.channel_end - shares.positions;
      unsigned int taken = 0;
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        if (mine + place(i) < begin || mine + place(i) >= walk.channel_end) continue;
        taken |= 1u << i;
        results[i] =
            Sweep::program(a, walk.values, inputs, i, walk.unit, walk.channel, mine + place(i) - begin);
      }
      walk.sums.add(results, taken);
      if (walk.channel_end >= end) break;
      next_channel(shares, walk);
    }
    Sweep::template store<false>(a, shares, walk.unit, mine, offset, results);
  }
}

// The inputs of a walk's next chunk from memory.
template <class Sweep>
__device__ inline Inputs read_next(const Arguments& a, const Shares& shares, const Walk<Sweep>& walk) {
  const Count mine = walk.element + (Count)(threadIdx.x % 32) * kVector;
  return read_inputs(a, walk.unit.begin + mine, mine, shares.elements);
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
  if (shares.empty(shares.warp)) return;
#pragma unroll 1
  for (int step = 0; step < shares.steps; ++step) {
    visit(a, shares, walk, kAgain && step < shares.again ? read_next(a, shares, walk) : take_visited(ring));
    if (kOnly && (!kAgain || step >= shares.again)) release_kept(ring, a, shares, team);
  }
  flush(shares, walk);
}

// A sweep between the first and the last.
template <class Sweep>
__device__ inline void sweep_between(const Arguments& a, const Shares& shares, const Ring& ring,
                                     Walk<Sweep>& walk) {
  if (shares.empty(shares.warp)) return;
  int slot = ring.kept;
#pragma unroll 1
  for (int step = 0; step < shares.steps; ++step) {
    if (kAgain && step < shares.again) {
      visit(a, shares, walk, read_next(a, shares, walk));
    } else {
      visit(a, shares, walk, ring_inputs(ring.column + slot));
      slot = Ring::next(slot);
    }
  }
  flush(shares, walk);
}

// The last sweep of a unit, and beside it the first of the team's next one, `shares.lead` chunks before it or behind it.
// When that has ended, its statistics are given to the team.
template <class Last, class First>
__device__ inline void sweep_last(const Arguments& a, const Shares& shares, const Team& team, Ring& ring,
                                  Walk<Last>& last, Walk<First>& next, bool has_next,
                                  const TeamList<typename First::Sums>& next_list) {
  const bool empty = shares.empty(shares.warp);
  const int lead = has_next ? shares.lead : 0;
#pragma unroll 1
  for (int i = lead > 0 ? -lead : 0; i < (lead < 0 ? shares.steps - lead : shares.steps); ++i) {
    if (!empty && i >= 0 && i < shares.steps) {
      visit(a, shares, last,
            kAgain && i < shares.again ? read_next(a, shares, last) : ring_inputs(ring.column + ring.kept));
      if (!kAgain || i >= shares.again) release_kept(ring, a, shares, team);
    }
    const int step = i + lead;
    if (!has_next || step < 0 || step >= shares.steps) continue;
    if (!empty)
      visit(a, shares, next, kAgain && step < shares.again ? read_next(a, shares, next) : take_visited(ring));
    if (step + 1 < shares.steps) continue;
    if (!First::kStatistics) continue;
    if (!empty) flush(shares, next);
    give_statistics<Block>(shares, team, next.list, next_list);
  }
  if (!empty) flush(shares, last);
}
