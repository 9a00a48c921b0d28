// rows: sweeps of a block over tensors whose positions lie one behind the other, unit by unit.
//
// A unit is kUnitChannels channels of one sample, in memory one run of kUnitChannels * positions elements. A team of
// thread blocks works on it: every warp has a run of neighbouring chunks of kPieces times 32 vectors, every lane one vector
// of each piece.
// A chunk is copied into the lane's own column of shared memory long before its turn, also chunks of the team's next
// units, and stays there for the later sweeps of its unit; those of a unit that is larger are read again. Statistics are
// merged lane by lane, warp by warp, block by block, in an order that depends on the shapes alone.
//
// Before this stand the constants (kThreads, kRing, kUnitChannels, ...), Arguments, Inputs (what lies in the ring) and
// UnitValues; behind it the program of each sweep, the finalise steps and `run_unit`, which calls what is here in the
// plan's order; last the kernel, device/rows.cu.

constexpr int kPiece = 32 * kVector;      // elements of a warp's piece
constexpr int kChunk = kPieces * kPiece;  // and of its chunk

// The units of this kernel and every warp's share of one. Elements of a unit are counted by `Count`.
struct Shares {
  Count positions;    // of a channel
  Count elements;     // of a unit
  int steps;          // chunks of a warp
  int kept;           // of these, the last, that stay in the ring for later sweeps
  int warp;           // this one, by its number in the team
  int warp_channel;   // the first channel of its share,
  int block_channel;  // and of its block's

  // The first element of a warp's share, by its number in the team.
  __device__ Count begin(int warp) const { return (Count)warp * steps * kChunk; }
  __device__ bool empty(int warp) const { return begin(warp) >= elements; }
};

__device__ inline Shares shares_of(const Arguments& a, const Team& team) {
  Shares shares = {(Count)a.positions, (Count)(kUnitChannels * a.positions), (int)a.steps, (int)a.kept};
  shares.warp = team.member * kWarps + (int)threadIdx.x / 32;
  shares.warp_channel = (int)(shares.begin(shares.warp) / shares.positions);
  shares.block_channel = (int)(shares.begin(team.member * kWarps) / shares.positions);
  return shares;
}

// The warps of a team, or its blocks, that have elements of a channel; `share` is what each of them has at most.
struct Range {
  int first, last;
};
__device__ inline Range having(const Shares& shares, int channel, Count share) {
  const Count begin = channel * shares.positions;
  return {(int)(begin / share), (int)((begin + shares.positions - 1) / share)};
}

// A unit in this block.
struct Unit {
  long long n;
  int first_channel;
  long long begin;  // its first element
  UnitValues* values;
};

__device__ inline Unit unit_at(const Shares& shares, long long number, UnitValues* values) {
  constexpr unsigned int kInSample = kChannels / kUnitChannels;
  const unsigned int n = (unsigned int)number / kInSample;
  return {n, (int)((unsigned int)number - n * kInSample) * kUnitChannels, number * shares.elements, values};
}

// This thread's columns of shared memory: copies in the order of their use, over all units of the team.
struct Ring {
  char* first;
  char* issued;         // the slot of the next copy
  char* visited;        // that which a first sweep takes next
  char* kept;           // the oldest that waits for later sweeps
  int pending;          // copies under way, and those that a first sweep has not taken yet
  Count element;        // of the next copy, in its unit
  Count end;            // of the warp's share
  long long offset;     // of the next copy, in the tensors
  long long next_unit;  // from the end of the share in one unit to its begin in the team's next
  int copies;           // that are still to come, over all units

  __device__ static char* next(char* slot, char* first) {
    char* following = slot + kRingBytes;
    return following == first + kRing * kRingBytes ? first : following;
  }
};

// Begins the next copy, where there is one.
__device__ inline void copy_next(Ring& ring, const Arguments& a, const Shares& shares, Count begin) {
  if (kRing == 0 || ring.copies == 0) return;
  copy_inputs(a, ring.offset, ring.element, shares.elements, ring.issued);
  thread::copy_commit();
  ring.issued = Ring::next(ring.issued, ring.first);
  ++ring.pending;
  --ring.copies;
  ring.element += kChunk;
  ring.offset += kChunk;
  if (ring.element >= ring.end) {
    ring.element = begin;
    ring.offset += ring.next_unit;
  }
}

// Where a warp is in its unit.
template <class Sweep>
struct Cursor {
  int channel;
  Count channel_end;  // first element of the next channel
  typename Sweep::Channel values;
};

// Adds the warp's statistics of a channel to the block's list: one place for each pair of warp and channel.
template <class Sums>
__device__ inline void flush(Sums& sums, Sums* list, int first_channel, int channel) {
  const Sums total = warp::merge(sums);
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) list[channel - first_channel + warp] = total;
  sums.clear();
}

// What a sweep takes for each channel of a unit, worked out once: what the tensors give, while a barrier is waited for,
// then the statistics.
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

template <class Sweep>
__device__ inline void next_channel(const Shares& shares, Cursor<Sweep>& cursor,
                                    const typename Sweep::Channel* channels, typename Sweep::Sums& sums,
                                    typename Sweep::Sums* list, int list_channel) {
  if (Sweep::kStatistics) flush(sums, list, list_channel, cursor.channel);
  ++cursor.channel;
  cursor.channel_end += shares.positions;
  if (channels && cursor.channel < kUnitChannels) cursor.values = channels[cursor.channel];
}

// Where the lane's element i lies behind its first.
__device__ constexpr int place(int i) { return i / kVector * kPiece + i % kVector; }

// The elements of one chunk, `element` being the warp's first, `mine` the lane's, `offset` where that lies in the tensors.
template <class Sweep>
__device__ inline void visit_chunk(const Arguments& a, const Shares& shares, const Unit& unit, Count element,
                                   Count mine, long long offset, const Inputs& inputs, Cursor<Sweep>& cursor,
                                   const typename Sweep::Channel* channels, typename Sweep::Sums& sums,
                                   typename Sweep::Sums* list, int list_channel) {
  while (cursor.channel_end <= element)
    next_channel<Sweep>(shares, cursor, channels, sums, list, list_channel);
  typename Sweep::Results results[kElements];
  if (element + kChunk <= cursor.channel_end) {
    const Count position = mine - (cursor.channel_end - shares.positions);
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      results[i] = Sweep::program(a, cursor.values, inputs, i, unit, cursor.channel, position + place(i));
    sums.add(results, kAllElements);
    Sweep::template store<true>(a, shares, unit, mine, offset, results);
  } else {
    // Channels end inside the chunk, or the unit does.
    const Count end = element + kChunk < shares.elements ? element + kChunk : shares.elements;
    while (true) {
      const Count begin = cursor.channel_end - shares.positions;
      unsigned int taken = 0;
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        if (mine + place(i) < begin || mine + place(i) >= cursor.channel_end) continue;
        taken |= 1u << i;
        results[i] =
            Sweep::program(a, cursor.values, inputs, i, unit, cursor.channel, mine + place(i) - begin);
      }
      sums.add(results, taken);
      if (cursor.channel_end >= end) break;
      next_channel<Sweep>(shares, cursor, channels, sums, list, list_channel);
    }
    Sweep::template store<false>(a, shares, unit, mine, offset, results);
  }
}

// One sweep over the block's share of a unit. The first sweep takes the ring's next chunks, later ones find the last
// `kept` of them there; the last sweep lets go of them.
template <class Sweep, bool kFirst, bool kLast>
__device__ inline void sweep(const Arguments& a, const Shares& shares, const Team& team, const Unit& unit,
                             Ring& ring, typename Sweep::Sums* list,
                             const typename Sweep::Channel* channels) {
  if (shares.empty(shares.warp)) return;
  const int list_channel = shares.block_channel;
  const Count begin = shares.begin(shares.warp);
  const Count mine_begin = begin + (Count)(threadIdx.x % 32) * kVector;
  typename Sweep::Sums sums;
  sums.clear();
  Cursor<Sweep> cursor;
  cursor.channel = shares.warp_channel;
  cursor.channel_end = (cursor.channel + 1) * shares.positions;
  if (channels) cursor.values = channels[cursor.channel];
  const int again = kRing == 0 ? shares.steps : kFirst || !kAgain ? 0 : shares.steps - shares.kept;

  // What is not in the ring is read one step ahead.
  Inputs ahead;
  if (0 < again) ahead = read_inputs(a, unit.begin + mine_begin, mine_begin, shares.elements);
  char* slot = kFirst ? ring.visited : ring.kept;
  Count element = begin;
  Count mine = mine_begin;
  long long offset = unit.begin + mine_begin;
#pragma unroll 1
  for (int step = 0; step < shares.steps; ++step, element += kChunk, mine += kChunk, offset += kChunk) {
    Inputs inputs = ahead;
    if (step < again) {
      if (step + 1 < again) ahead = read_inputs(a, offset + kChunk, mine + kChunk, shares.elements);
    } else {
      if (kFirst) thread::copy_wait(--ring.pending);
      inputs = ring_inputs(slot);
      slot = Ring::next(slot, ring.first);
    }
    if (element < shares.elements)
      visit_chunk<Sweep>(a, shares, unit, element, mine, offset, inputs, cursor, channels, sums, list,
                         list_channel);
    if (kLast ? step >= again : kFirst && kAgain && step < shares.steps - shares.kept) {
      if (!kLast) ring.kept = slot;
      copy_next(ring, a, shares, mine_begin);
    }
  }
  if (kFirst) ring.visited = slot;
  if (kLast) ring.kept = slot;
  if (Sweep::kStatistics) flush(sums, list, list_channel, cursor.channel);
}

// The statistics of the block's channels out of its warps' list, one warp a channel: into the unit's totals where the
// block is alone, else into the team's list in memory, one place for each pair of block and channel.
template <class Sums>
__device__ inline void merge_block(const Shares& shares, const Team& team, const Sums* list, Sums* totals,
                                   uint2* team_list, unsigned int tag) {
  const int lane = threadIdx.x % 32;
  const int first_warp = team.member * kWarps;
  __syncthreads();
  if (shares.empty(first_warp)) return;
  const Count end = shares.begin(first_warp + kWarps);
  for (int channel = shares.block_channel + threadIdx.x / 32; channel < kUnitChannels; channel += kWarps) {
    if (channel * shares.positions >= end) break;
    const Range warps = having(shares, channel, (Count)shares.steps * kChunk);
    Sums total;
    total.clear();
    if (lane < kWarps && warps.first <= first_warp + lane && first_warp + lane <= warps.last)
      total.merge(list[channel - shares.block_channel + lane]);
    total.merge_lanes();
    if (lane != 0) continue;
    if (team.size == 1)
      totals[channel] = total;
    else
      team::give(team_list + (channel + team.member) * team::kWordsOf<Sums>, total, tag);
  }
}

// The unit's totals out of the team's list, one warp a channel, as soon as the other blocks have given theirs.
template <class Sums>
__device__ inline void merge_team(const Shares& shares, const uint2* team_list, Sums* totals,
                                  unsigned int tag) {
  const int lane = threadIdx.x % 32;
  for (int channel = threadIdx.x / 32; channel < kUnitChannels; channel += kWarps) {
    const Range blocks = having(shares, channel, shares.begin(kWarps));
    Sums total;
    total.clear();
    for (int member = blocks.first + lane; member <= blocks.last; member += 32)
      total.merge(team::take<Sums>(team_list + (channel + member) * team::kWordsOf<Sums>, tag));
    total.merge_lanes();
    if (lane == 0) totals[channel] = total;
  }
}
