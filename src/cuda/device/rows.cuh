// rows: sweeps of a block over tensors whose positions lie one behind the other, unit by unit.
//
// A unit is kUnitChannels channels of one sample, in memory one run of kUnitChannels * positions elements. A team of
// thread blocks works on it: every warp has a run of neighbouring chunks of 32 vectors, every lane one vector of each.
// A chunk is copied into the lane's own column of shared memory long before its turn, also chunks of the team's next
// units, and stays there for the later sweeps of its unit; those of a unit that is larger are read again. Statistics are
// merged lane by lane, warp by warp, block by block, in an order that depends on the shapes alone.
//
// Before this stand the constants (kThreads, kRing, kUnitChannels, ...), Arguments, Inputs (what lies in the ring) and
// UnitValues; behind it the program of each sweep, the finalise steps and `run_unit`, which calls what is here in the
// plan's order; last the kernel, device/rows.cu.

constexpr int kChunk = 32 * kVector;  // elements of a warp's chunk

// The units of this kernel and this warp's share of each.
struct Shares {
  long long positions;  // of a channel
  long long elements;   // of a unit
  int steps;            // chunks of a warp
  int kept;             // of these, the last, that stay in the ring for later sweeps
  int lane;

  // The first element of a warp's share, by its number in the team.
  __device__ long long begin(int warp) const { return (long long)warp * steps * kChunk; }
  __device__ bool empty(int warp) const { return begin(warp) >= elements; }
  __device__ int first_channel(int warp) const { return (int)(begin(warp) / positions); }
  __device__ int last_channel(int warp) const {
    const long long end = begin(warp + 1);
    return (int)(((end < elements ? end : elements) - 1) / positions);
  }
};

// Which channels the warps [first, first + count) of the team have between them; empty where last < first.
struct ChannelRange {
  int first, last;
};
__device__ inline ChannelRange channels_of(const Shares& shares, int first, int count) {
  if (shares.empty(first)) return {0, -1};
  int last = first + count - 1;
  while (shares.empty(last)) --last;
  return {shares.first_channel(first), shares.last_channel(last)};
}

// A unit in this block.
struct Unit {
  long long number;
  long long n;
  int first_channel;
  long long begin;  // its first element
  UnitValues* values;
};

__device__ inline Unit unit_at(const Arguments& a, const Shares& shares, long long number, UnitValues* values) {
  const long long in_sample = kChannels / kUnitChannels;
  return {number, number / in_sample, (int)(number % in_sample) * kUnitChannels, number * shares.elements, values};
}

// This thread's columns of shared memory: copies in the order of their use, over all units of the team.
struct Ring {
  char* column;
  int issued, released;  // copies
  int slot_issued, slot_taken;
  long long unit;  // of the next copy
  int step;

  __device__ char* slot(int number) const { return column + number * kRingBytes; }
};

__device__ inline int next_slot(int slot) { return slot + 1 == kRing ? 0 : slot + 1; }

// Begins copies while there is room.
__device__ inline void fill(Ring& ring, const Arguments& a, const Shares& shares, const Team& team, int warp) {
  if (kRing == 0) return;
  while (ring.issued < ring.released + kRing && ring.unit < a.units) {
    const long long element = shares.begin(warp) + (long long)ring.step * kChunk + shares.lane * kVector;
    if (element < shares.elements)
      copy_inputs(a, ring.unit * shares.elements + element, ring.slot(ring.slot_issued));
    thread::copy_commit();
    ++ring.issued;
    ring.slot_issued = next_slot(ring.slot_issued);
    if (++ring.step == shares.steps) {
      ring.step = 0;
      ring.unit += team.count;
    }
  }
}

// Where a warp is in its unit.
struct Cursor {
  int channel;
  long long channel_end;  // first element of the next channel
};

// Adds the warp's statistics of a channel to the block's list: one place for each pair of warp and channel.
template <class Sums>
__device__ inline void flush(Sums& sums, Sums* list, int first_channel, int channel) {
  const Sums total = warp::merge(sums);
  const int warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) list[channel - first_channel + warp] = total;
  sums.clear();
}

// The elements of one chunk, `element` being the warp's first.
template <class Sweep>
__device__ inline void visit_chunk(const Arguments& a, const Shares& shares, const Unit& unit, long long element,
                                   const Inputs& inputs, Cursor& cursor, typename Sweep::Sums& sums,
                                   typename Sweep::Sums* list, int list_channel) {
  while (cursor.channel_end <= element) {
    if (Sweep::kStatistics) flush(sums, list, list_channel, cursor.channel);
    ++cursor.channel;
    cursor.channel_end += shares.positions;
  }
  typename Sweep::Results results[kVector];
  const long long mine = element + shares.lane * kVector;
  if (element + kChunk <= cursor.channel_end) {
    const typename Sweep::Channel channel = Sweep::channel(a, unit, cursor.channel);
    const long long position = mine - (cursor.channel_end - shares.positions);
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      results[i] = Sweep::program(a, channel, inputs, i, unit, cursor.channel, position + i);
    sums.add(results, 0, kVector);
  } else {
    // Channels end inside the chunk, or the unit does.
    const long long end = element + kChunk < shares.elements ? element + kChunk : shares.elements;
    while (true) {
      const long long begin = cursor.channel_end - shares.positions;
      const int from = begin <= mine ? 0 : begin >= mine + kVector ? kVector : (int)(begin - mine);
      const long long limit = cursor.channel_end < shares.elements ? cursor.channel_end : shares.elements;
      const int to = limit <= mine ? 0 : limit >= mine + kVector ? kVector : (int)(limit - mine);
      const typename Sweep::Channel channel = Sweep::channel(a, unit, cursor.channel);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        if (i >= from && i < to)
          results[i] = Sweep::program(a, channel, inputs, i, unit, cursor.channel, mine + i - begin);
      sums.add(results, from, to);
      if (cursor.channel_end >= end) break;
      if (Sweep::kStatistics) flush(sums, list, list_channel, cursor.channel);
      ++cursor.channel;
      cursor.channel_end += shares.positions;
    }
  }
  if (mine < shares.elements) Sweep::store(a, unit, mine, results);
}

// One sweep over the block's share of a unit. The first sweep takes the ring's next chunks, later ones find the last
// `kept` of them there; the last sweep lets go of them.
template <class Sweep, bool kFirst, bool kLast>
__device__ inline void sweep(const Arguments& a, const Shares& shares, const Team& team, const Unit& unit, Ring& ring,
                             typename Sweep::Sums* list) {
  const int warp = team.member * kWarps + threadIdx.x / 32;
  const ChannelRange block_channels = channels_of(shares, team.member * kWarps, kWarps);
  typename Sweep::Sums sums;
  sums.clear();
  Cursor cursor = {shares.first_channel(warp), 0};
  cursor.channel_end = (cursor.channel + 1) * shares.positions;
  const int again = kRing == 0 ? shares.steps : kFirst ? 0 : shares.steps - shares.kept;

  // What is not in the ring is read one step ahead.
  auto read = [&](int step, Inputs& inputs) {
    const long long mine = shares.begin(warp) + (long long)step * kChunk + shares.lane * kVector;
    if (step < again && mine < shares.elements) inputs = read_inputs(a, unit.begin + mine);
  };
  Inputs ahead;
  read(0, ahead);
  int slot = ring.slot_taken;
  int held = 0;  // copies of this unit that stay in the ring
  for (int step = 0; step < shares.steps; ++step) {
    const long long element = shares.begin(warp) + (long long)step * kChunk;
    Inputs inputs = ahead;
    if (step < again) {
      read(step + 1, ahead);
    } else {
      if (kFirst) thread::copy_wait(ring.issued - ring.released - held - 1);
      inputs = ring_inputs(ring.slot(slot));
      slot = next_slot(slot);
    }
    if (element < shares.elements)
      visit_chunk<Sweep>(a, shares, unit, element, inputs, cursor, sums, list, block_channels.first);
    if (step < again) continue;
    if (kLast || step < shares.steps - shares.kept) {
      ++ring.released;
      ring.slot_taken = slot;
      fill(ring, a, shares, team, warp);
    } else {
      ++held;
    }
  }
  if (Sweep::kStatistics && !shares.empty(warp)) flush(sums, list, block_channels.first, cursor.channel);
}

// The statistics of the block's channels out of its warps' list, one warp a channel: into the unit's totals where the
// block is alone, else into the team's list in memory, one place for each pair of block and channel.
template <class Sums, class Totals>
__device__ inline void merge_block(const Shares& shares, const Team& team, const Sums* list, Totals* totals,
                                   Totals* team_list) {
  const int first_warp = team.member * kWarps;
  const ChannelRange channels = channels_of(shares, first_warp, kWarps);
  const int lane = shares.lane;
  __syncthreads();
  for (int channel = channels.first + threadIdx.x / 32; channel <= channels.last; channel += kWarps) {
    Totals total;
    total.clear();
    if (lane < kWarps && !shares.empty(first_warp + lane) && shares.first_channel(first_warp + lane) <= channel &&
        channel <= shares.last_channel(first_warp + lane))
      total.merge(list[channel - channels.first + lane]);
    total = warp::merge(total);
    if (lane != 0) continue;
    if (team.size == 1)
      totals[channel] = total;
    else
      team_list[channel + team.member] = total;
  }
}

// The unit's totals out of the team's list, one warp a channel.
template <class Totals>
__device__ inline void merge_team(const Shares& shares, const Team& team, const Totals* team_list, Totals* totals) {
  for (int channel = threadIdx.x / 32; channel < kUnitChannels; channel += kWarps) {
    Totals total;
    total.clear();
    for (int member = shares.lane; member < team.size; member += 32) {
      const ChannelRange channels = channels_of(shares, member * kWarps, kWarps);
      if (channels.first <= channel && channel <= channels.last) {
        // Written by other blocks: past this multiprocessor's cache.
        Totals part;
        const unsigned int* from = reinterpret_cast<const unsigned int*>(&team_list[channel + member]);
        unsigned int* to = reinterpret_cast<unsigned int*>(&part);
#pragma unroll
        for (int i = 0; i < (int)(sizeof(Totals) / 4); ++i) to[i] = __ldcg(from + i);
        total.merge(part);
      }
    }
    total = warp::merge(total);
    if (shares.lane == 0) totals[channel] = total;
  }
}
