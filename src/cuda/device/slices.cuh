// slices: sweeps of a block over channels_last tensors, with statistics for each sample and channel, unit by unit.
//
// A unit is a slice of kUnitChannels neighbouring channels of one sample, at all its positions. A team of thread blocks
// works on it. A row is kRowPositions positions of the slice (more than one only where the slice is all channels), in
// memory one run of kSlots elements: kColumns vectors, each a thread's. A thread keeps its column, so that it always has the
// same channels: their parameters and their statistics stay in its registers. Rows of a warp lie one behind the other,
// then those of the block's warps; a chunk is kPieces times that, and a block has neighbouring chunks.
// A chunk is copied into the threads' own columns of shared memory long before its turn, also chunks of the team's next
// unit, and stays there for later passes; of a unit that is larger the last chunks stay, the others are copied again, with
// two passes the last ones first. Statistics are merged lane by lane, warp by warp, block by block, in an order that depends on the shapes
// alone: a block of the team collects those of some channels from all and hands the totals to all.
//
// Before this stand the constants, device/slices_place.cuh, Arguments, Inputs (what lies in the ring) and UnitValues;
// behind it the program of each sweep, the finalise steps, and begin_unit, collect_unit and end_unit, which call what is
// here in the plan's order; last the kernel, device/slices.cu.

// A thread's share of a unit.
struct Shares {
  int chunks;   // of its block
  int kept;     // of these, the last of a pass, that stay in the ring for the next
  Count first;  // row of the block's first chunk
  Count end;    // rows of the unit that have this thread's vector; 0 for a thread that has none
};

__device__ inline Shares shares_of(const Arguments& a, const Team& team, const Place& place) {
  Shares shares = {(int)a.steps, (int)a.kept, (Count)team.member * (Count)a.steps * kChunkRows + place.row()};
  const Count positions = (Count)a.positions - place.position(0);
  shares.end = place.active ? (positions + kRowPositions - 1) / kRowPositions : 0;
  return shares;
}

// The chunk that a pass visits as its i-th. What the pass before has left in the ring comes first, in that order.
__device__ inline int chunk_at(const Shares& shares, int pass, int i) {
  if (!kAgain || pass == 0) return i;
  if (kPasses == 2) return i < shares.kept ? shares.chunks - shares.kept + i : shares.chunks - 1 - i;
  int chunk = pass * (shares.chunks - shares.kept) + i;
  while (chunk >= shares.chunks) chunk -= shares.chunks;
  return chunk;
}

// A unit in this block.
struct Unit {
  long long n;
  int first_channel;
  UnitValues* values;
};

__device__ inline Unit unit_at(int number, UnitValues* values) {
  constexpr int kInSample = kChannels / kUnitChannels;
  const int n = number / kInSample;
  return {n, (number - n * kInSample) * kUnitChannels, values};
}

// Where a thread's vector of the block's first chunk lies in the tensors.
__device__ inline long long begin_of(const Arguments& a, const Shares& shares, const Place& place,
                                     const Unit& unit) {
  return (unit.n * a.positions + (long long)shares.first * kRowPositions) * kChannels + unit.first_channel +
         place.column * kVector;
}

// This thread's columns of shared memory: copies in the order of their use, over all units of the team.
struct Ring {
  unsigned int first;  // where they begin
  int issued;          // the slot of the next copy, in bytes behind the first
  int visited;         // that which a first pass takes next
  int oldest;          // that which is still needed
  int pending;         // copies under way, and those that nobody has waited for yet
  int pass;            // of the next copy: its unit's pass,
  int index;           // its place there,
  int unit;            // its unit,
  long long begin;     // and begin_of that

  __device__ static int next(int slot) { return slot == (kRing - 1) * kRingBytes ? 0 : slot + kRingBytes; }
};

// Begins the next copy, where there is one.
__device__ inline void copy_next(Ring& ring, const Arguments& a, const Shares& shares, const Team& team,
                                 const Place& place) {
  if (ring.unit >= (int)a.units) return;
  const int chunk = chunk_at(shares, ring.pass, ring.index);
  copy_inputs(a, ring.begin + chunk * kChunkElements, shares.first + (Count)chunk * kChunkRows, shares.end,
              ring.first + ring.issued);
  thread::copy_commit();
  ring.issued = Ring::next(ring.issued);
  ++ring.pending;
  if (++ring.index < shares.chunks) return;
  if (kAgain && ring.pass + 1 < kPasses) {
    ++ring.pass;
    ring.index = shares.kept;
    return;
  }
  ring.pass = ring.index = 0;
  ring.unit += team.count;
  ring.begin = begin_of(a, shares, place, unit_at(ring.unit, (UnitValues*)0));
}

// Waits until at most `pending` copies are under way, or a few fewer where that is many.
template <int kFirst, int kCount>
__device__ inline void wait_among(int pending) {
  if constexpr (kCount == 1) {
    thread::copy_wait_constant<kFirst>();
  } else {
    if (pending < kFirst + kCount / 2)
      wait_among<kFirst, kCount / 2>(pending);
    else
      wait_among<kFirst + kCount / 2, kCount / 2>(pending);
  }
}
__device__ inline void wait_for(int pending) {
  if (pending < 8)
    wait_among<0, 8>(pending);
  else if (pending < 16)
    thread::copy_wait_constant<8>();
  else
    thread::copy_wait_constant<16>();
}

// What a sweep takes for each channel of a unit: what the tensors give, then the statistics.
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
