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
  int chunks;         // that it has, fewer than `steps` at the unit's end
  int warp_channel;   // the first channel of its share,
  int block_channel;  // and of its block's

  // The first element of a warp's share, by its number in the team.
  __device__ Count begin(int warp) const { return (Count)warp * steps * kChunk; }
  // What one statistic is taken of: a channel, or the unit.
  template <class Sums>
  __device__ Count span() const {
    return Sums::kChannels == 1 ? elements : positions;
  }
  // The first statistic that the block has a part of.
  template <class Sums>
  __device__ int first_span() const {
    return Sums::kChannels == 1 ? 0 : block_channel;
  }
  // Those that have elements of a span; `share` is what each of them has at most.
  __device__ Range having(int number, Count span, Count share) const {
    const Count first = number * span;
    return {(int)(first / share), (int)((first + span - 1) / share)};
  }
};

__device__ inline Shares shares_of(const Arguments& a, const Team& team) {
  Shares shares = {(Count)a.positions, (Count)(kUnitChannels * a.positions), (int)a.steps, (int)a.again,
                   (int)a.lead};
  shares.warp = team.member * kWarps + (int)threadIdx.x / 32;
  const Count left = shares.elements - shares.begin(shares.warp);
  const Count chunks = left <= 0 ? 0 : (left + kChunk - 1) / kChunk;
  shares.chunks = chunks < shares.steps ? (int)chunks : shares.steps;
  shares.warp_channel = (int)(shares.begin(shares.warp) / shares.positions);
  shares.block_channel = (int)(shares.begin(team.member * kWarps) / shares.positions);
  return shares;
}

// Of a sweep that takes no statistics, and of one that takes nothing of channels.
struct NoSums {
  static constexpr int kChannels = kUnitChannels;
};
struct NoChannel {};

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
  unsigned int column;  // where they begin
  int issued;           // the slot of the next copy
  int visited;          // that which a first sweep takes next
  int kept;             // the oldest that waits for later sweeps
  int pending;          // copies under way, and those that a first sweep has not taken yet
  int copies;           // of this unit that are still to come
  int units;            // and units
  Count copied;         // the element of the next copy, in its unit
  long long offset;     // and in the tensors

  __device__ static int next(int slot) { return slot == (kRing - 1) * kRingBytes ? 0 : slot + kRingBytes; }
};

// Begins the next copy, where there is one.
__device__ inline void copy_next(Ring& ring, const Arguments& a, const Shares& shares, const Team& team) {
  if (kRing == 0 || ring.units == 0) return;
  copy_inputs(a, ring.offset, ring.copied, shares.elements, ring.column + ring.issued);
  thread::copy_commit();
  ring.issued = Ring::next(ring.issued);
  ++ring.pending;
  ring.copied += kChunk;
  ring.offset += kChunk;
  if (--ring.copies > 0) return;
  ring.copies = shares.chunks - shares.again;
  --ring.units;
  const Count share = (Count)ring.copies * kChunk;
  ring.copied -= share;
  ring.offset += team.count * (long long)shares.elements - share;
}

__device__ inline Ring ring_of_thread(const Arguments& a, const Shares& shares, const Team& team, int rounds,
                                      const char* column) {
  Ring ring = {};
  // Held in a register: the compiler would work it out anew at each use.
  asm volatile("mov.u32 %0, %1;" : "=r"(ring.column) : "r"((unsigned int)__cvta_generic_to_shared(column)));
  ring.copies = shares.chunks - shares.again;
  ring.units = ring.copies > 0 ? rounds : 0;
  const Count element =
      shares.begin(shares.warp) + (Count)shares.again * kChunk + (Count)(threadIdx.x % 32) * kVector;
  ring.copied = element;
  ring.offset = team.number * (long long)shares.elements + element;
#pragma unroll 1
  for (int i = 0; i < kRing; ++i) copy_next(ring, a, shares, team);
  return ring;
}

// Where the blocks of a team put their statistics of one sweep and round: those of each channel, or of the unit.
template <class Sums>
struct TeamList {
  Sums* totals;      // of the unit
  uint2* words;      // of all its blocks: one place for each pair of block and channel
  unsigned int tag;  // beside each word
  Sums* shared;  // of this block, in place of words where the team is a cluster: one place for each channel
};

// Lists in turn: who writes the next but one knows that this one is read.
template <class Sums>
__device__ inline TeamList<Sums> team_list(Sums* totals, uint2* lists, const Team& team, int round) {
  uint2* words = lists + (team.number * 2 + round % 2) * (Sums::kChannels + team.size) * team::kWordsOf<Sums>;
  return {totals, words, round + 1u};
}
template <class Sums>
__device__ inline TeamList<Sums> cluster_list(Sums* totals, Sums* shared) {
  return {totals, 0, 0, shared};
}

// The block's statistics out of its warps' list, one warp a channel: into the unit's totals where the block is alone, else
// into the team's list. All of the block's warps have ended their sweep.
template <class Crew, class Sums>
__device__ inline void give_statistics(const Shares& shares, const Team& team, const Sums* list,
                                       const TeamList<Sums>& to) {
  const int lane = threadIdx.x % 32;
  const int first_warp = team.member * kWarps;
  const Count span = shares.span<Sums>();
  const int first = shares.first_span<Sums>();
  const Count end = shares.begin(first_warp + kWarps);
  for (int channel = first + Crew::warp(); channel < Sums::kChannels && channel * span < end;
       channel += Crew::kCrewWarps) {
    const Range warps = shares.having(channel, span, (Count)shares.steps * kChunk);
    Sums total;
    total.clear();
    if (lane < kWarps && warps.first <= first_warp + lane && first_warp + lane <= warps.last)
      total.merge(list[channel - first + lane]);
    total.merge_lanes();
    if (lane != 0) continue;
    if (team.size == 1)
      to.totals[channel] = total;
    else if (kCluster > 1)
      to.shared[channel] = total;
    else
      team::give(to.words + (channel + team.member) * team::kWordsOf<Sums>, total, to.tag);
  }
}

// The same by all of the block, where its warps may still be at their sweep: by the first warp where there is one
// statistic.
template <class Sums>
__device__ inline void give_by_block(const Shares& shares, const Team& team, const Sums* list,
                                     const TeamList<Sums>& to) {
  __syncthreads();
  if constexpr (Sums::kChannels > 1)
    give_statistics<Block>(shares, team, list, to);
  else if (is_first_warp())
    give_statistics<Warp>(shares, team, list, to);
  if constexpr (kCluster > 1) cluster::arrive();
}

// The team's statistics of a channel, in every lane of a warp.
template <class Sums>
__device__ inline Sums of_team(const Shares& shares, const TeamList<Sums>& from, int channel) {
  const Range blocks = shares.having(channel, shares.span<Sums>(), shares.begin(kWarps));
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
  __syncwarp();
  total.merge_lanes();
  return total;
}

// The unit's totals out of the team's list, one warp a channel, as soon as the other blocks have given theirs. A cluster has
// waited for them.
template <class Crew, class Sums>
__device__ inline void take_statistics(const Shares& shares, const Team& team, const TeamList<Sums>& from) {
  if (team.size > 1) {
    for (int channel = Crew::warp(); channel < Sums::kChannels; channel += Crew::kCrewWarps) {
      const Sums total = of_team(shares, from, channel);
      if (threadIdx.x % 32 == 0) from.totals[channel] = total;
    }
  }
  Crew::sync();
}

// What a sweep takes for each channel of a unit, worked out once: what the tensors give, before the statistics are there,
// and what these give. A thread of the crew works on the same channels in both and in the finalise steps between them.
template <class Crew, class Sweep>
__device__ inline void prepare_parameters(const Arguments& a, const Unit& unit,
                                          typename Sweep::Channel* channels) {
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads)
    Sweep::parameters(a, unit, c, channels[c]);
}
template <class Crew, class Sweep>
__device__ inline void prepare_statistics(const Arguments& a, const Unit& unit,
                                          typename Sweep::Channel* channels) {
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads)
    Sweep::statistics(a, unit, c, channels[c]);
}

// Where a warp is in a sweep over its share of a unit.
template <class Sweep>
struct Walk {
  Unit unit;
  const typename Sweep::Channel* channels;  // what the program takes for each channel of the unit, or 0
  const typename Sweep::Channel* at;        // of these, that of the walk's channel
  typename Sweep::Sums* list;               // of the block's statistics, or 0
  Count element;                            // the warp's next
  long long offset;                         // the lane's next, in the tensors
  int channel;
  Count channel_end;  // first element of the next channel
  typename Sweep::Channel values;
  typename Sweep::Running sums;
};

// What a walk goes over at a stretch: a channel, or the unit where channels make no difference to the sweep.
template <class Sweep>
__device__ inline Count stretch(const Shares& shares) {
  return Sweep::kByChannel ? shares.positions : shares.elements;
}

template <class Sweep>
__device__ inline Walk<Sweep> begin_walk(const Shares& shares, const Unit& unit,
                                         const typename Sweep::Channel* channels,
                                         typename Sweep::Sums* list) {
  Walk<Sweep> walk;
  walk.unit = unit;
  walk.channels = channels;
  walk.list = list;
  walk.element = shares.begin(shares.warp);
  walk.offset = unit.begin + walk.element + (Count)(threadIdx.x % 32) * kVector;
  walk.channel = Sweep::kByChannel ? shares.warp_channel : 0;
  walk.channel_end = (walk.channel + 1) * stretch<Sweep>(shares);
  walk.at = channels + walk.channel;
  if (channels && shares.chunks > 0) walk.values = *walk.at;
  if constexpr (Sweep::kStatistics) walk.sums.clear();
  return walk;
}

// Adds the warp's statistics of a channel to the block's list: one place for each pair of warp and channel.
template <class Sweep>
__device__ inline void flush(const Shares& shares, Walk<Sweep>& walk) {
  if constexpr (Sweep::kStatistics) {
    typedef typename Sweep::Sums Sums;
    const Sums total = warp::merge(walk.sums.settled());
    const int number = Sums::kChannels == 1 ? 0 : walk.channel - shares.block_channel;
    if (threadIdx.x % 32 == 0) walk.list[number + (int)threadIdx.x / 32] = total;
    walk.sums.clear();
  }
}

template <class Sweep>
__device__ inline void next_channel(const Shares& shares, Walk<Sweep>& walk) {
  if (Sweep::Sums::kChannels > 1) flush(shares, walk);
  ++walk.channel;
  walk.channel_end += shares.positions;
  // By a place that moves: of `channels[channel]` ptxas 13.0 makes code that takes the channel behind it.
  if (walk.channels && walk.channel < kUnitChannels) walk.values = *++walk.at;
}
