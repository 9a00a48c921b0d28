// Sweeps of the kernel `slices` where a thread's first kRegisters chunks of a unit stay in its registers from the first
// sweep to the last, so that the ring has room for as many others: of the unit, or of the team's next one, which are then on
// their way while statistics are waited for. The first sweep takes statistics, the last one none.
//
// Before this stands device/slices.cuh, whose words these are. Where kDealt, the first `kept` chunks of a block stay, in
// registers and then in the ring, the others pass through the slots that are left, and the last sweep has those that are gone
// again: the block's own last kLead of them, which are the newest in L2, then those that its warps draw. They begin to draw when
// statistics are there: from then on the counters are clear. The last sweep begins with what the ring holds, goes on with registers
// while copies are on their way, and ends with these. A slot takes the next copy as soon as a thread has read its vectors from it,
// before it works on them: what cp.async does is ordered after prior instructions of its thread (PTX ISA, Memory Consistency
// Model, Asynchronous Operations).

namespace registers {

// Chunks of a block that are on chip when the first sweep is done.
constexpr int kOnChip = kRing + kRegisters;
static_assert(kRegisters > 0 && kRegisters < kRing && kPasses == 2 && !kAhead && kAgain == kDealt &&
                  (!kDealt || kRing <= 32),
              "two sweeps, of which the last takes each chunk once");

// The thread's number, worked out where it is wanted: the compiler would keep what follows from it in registers, or in local
// memory, all the while.
__device__ inline int thread_again() {
  int thread;
  asm volatile("mov.u32 %0, %1;" : "=r"(thread) : "r"((int)threadIdx.x));
  return thread;
}

// A thread's vectors of these chunks. Which one is wanted is told by comparing, since registers have no addresses.
struct Held {
  Inputs chunks[kRegisters];

  __device__ void put(int which, const Inputs& inputs) {
#pragma unroll
    for (int i = 0; i < kRegisters; ++i)
      if (which == i) chunks[i] = inputs;
  }
  __device__ Inputs at(int which) const {
    Inputs inputs = chunks[0];
#pragma unroll
    for (int i = 1; i < kRegisters; ++i)
      if (which == i) inputs = chunks[i];
    return inputs;
  }
};

// The chunk of the block that the last sweep finds at place i of those that are on chip.
__device__ inline int chunk_on_chip(const Shares& shares, int i) {
  if (!kDealt || i < shares.kept) return i;
  const int last = shares.chunks - 1;
  return last - (last - i) % (kOnChip - shares.kept);
}

// The chunk that is copied again next, from the block's first; false where none is left.
__device__ inline bool take_again(Ring& ring, const Arguments& a, const Shares& shares, const Team& team,
                                  int& chunk) {
  const int gone = shares.chunks - kOnChip;
  if (ring.index < kLead) {
    chunk = (shares.kept + gone - 1 - ring.index++) * shares.apart;
  } else {
    const int left = (gone - kLead) * shares.apart - 1 - (int)__shfl_sync(0xffffffffu, ring.drawn, 0);
    if (left < 0) return false;
    chunk = shares.kept * shares.apart + left - team.member;
    draw(ring, a);
  }
  if (thread_again() % 32 * kRingBytes == ring.issued) ring.held = chunk;
  ++ring.dealt;
  return true;
}

// Begins the next copy, where there is one.
__device__ inline void copy_next(Ring& ring, const Arguments& a, const Shares& shares, const Team& team,
                                 const Place& place) {
  int chunk;
  bool again = false;
  if (kDealt && ring.pass > 0) {
    again = take_again(ring, a, shares, team, chunk);
    if (!again) begin_copies(ring, a, shares, place, ring.unit + team.count);
  }
  if (ring.unit >= (int)a.units) return;
  if (!again) chunk = ring.index * shares.apart;
  copy_inputs(a, ring.begin + chunk * kChunkElements, shares.first + (Count)chunk * kChunkRows, shares.end,
              ring.first + ring.issued);
  thread::copy_commit();
  ring.issued = Ring::next(ring.issued);
  ++ring.pending;
  if (again) return;
  if (++ring.index < shares.chunks) {
    if (kDealt && ring.index >= kOnChip && ring.issued == Ring::after(ring.base, kRegisters))
      ring.issued = Ring::after(ring.base, shares.kept % kRing);
  } else if (kDealt) {
    ring.pass = 1;
    ring.index = ring.dealt = 0;
    ring.issued = Ring::after(ring.base, kRegisters);
  } else {
    begin_copies(ring, a, shares, place, ring.unit + team.count);
  }
}

// The counters of all units that the team will have, by its first block, where they are not zero before the launch.
__device__ inline void clear_counters(const Arguments& a, const Team& team) {
  if (!kDealt || !kTagged || team.member > 0) return;
  for (int i = threadIdx.x; i < (int)a.units * kWarps; i += kThreads)
    if (i / kWarps % team.count == team.number) a.dealt[(long long)i * kCounterWords] = 0;
}

// What a thread has of a chunk.
template <class Sweep>
__device__ inline void visit_chunk(const Arguments& a, const Shares& shares, const Place& place,
                                   const Unit& unit, long long begin, int chunk, const Inputs& inputs,
                                   const typename Sweep::Hoisted (&channels)[kVector],
                                   typename Sweep::VectorSums& sums) {
  const Count row = shares.first + (Count)chunk * kChunkRows;
  const long long offset = begin + chunk * kChunkElements;
  int taken = kPieces;
  if (row + (kPieces - 1) * kStride < shares.end) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece)
      visit_piece<Sweep>(a, unit, place, row + piece * kStride, offset + piece * kStrideElements, inputs,
                         piece, channels, sums);
  } else {
    // The unit ends inside the chunk.
    taken = 0;
#pragma unroll
    for (int piece = 0; piece + 1 < kPieces; ++piece) {
      if (row + piece * kStride >= shares.end) continue;
      visit_piece<Sweep>(a, unit, place, row + piece * kStride, offset + piece * kStrideElements, inputs,
                         piece, channels, sums);
      ++taken;
    }
  }
  sums.took(taken);
}

// The block's own chunks, one after the other.
template <class Sweep>
__device__ inline void first_sweep(const Arguments& a, const Shares& shares, const Team& team,
                                   const Place& place, const Unit& unit, Ring& ring, Held& held,
                                   const typename Sweep::Channel* prepared,
                                   typename Sweep::VectorSums& sums) {
  typename Sweep::Hoisted channels[kVector];
#pragma unroll
  for (int v = 0; v < kVector; ++v) channels[v] = Sweep::hoisted(prepared, place.channel(v));
  sums.clear();
  const long long begin = begin_of(a, shares, place, unit);
  int slot = ring.visited;
  wait_for(ring.pending - 1);
  if (shares.first < shares.end)
    start_sums<Sweep>(a, unit, place, shares.first, ring_inputs(ring.first + slot), channels, sums);
#pragma unroll 1
  for (int i = 0; i < shares.chunks; ++i) {
    wait_for(--ring.pending);
    const Inputs inputs = ring_inputs(ring.first + slot);
    slot = Ring::next(slot);
    if (kDealt && i + 1 >= kOnChip && slot == Ring::after(ring.visited, kRegisters))
      slot = Ring::after(ring.visited, shares.kept % kRing);
    if (i < kRegisters) held.put(i, inputs);
    if (i < kRegisters || (kDealt && i >= shares.kept && i + kOnChip - shares.kept < shares.chunks))
      registers::copy_next(ring, a, shares, team, place);
    visit_chunk<Sweep>(a, shares, place, unit, begin, i * shares.apart, inputs, channels, sums);
  }
}

// What the ring holds, what registers hold, and what is copied again.
template <class Sweep>
__device__ inline void last_sweep(const Arguments& a, const Shares& shares, const Team& team,
                                  const Place& place, const Unit& unit, Ring& ring, const Held& held,
                                  const typename Sweep::Channel* prepared, typename Sweep::VectorSums& sums) {
  static_assert(!Sweep::kStatistics, "the order of chunks is for nobody to see");
  typename Sweep::Hoisted channels[kVector];
#pragma unroll
  for (int v = 0; v < kVector; ++v) channels[v] = Sweep::hoisted(prepared, place.channel(v));
  sums.clear();
  const long long begin = begin_of(a, shares, place, unit);
  const int in_ring = kDealt ? kRing : shares.chunks - kRegisters;
  if (kDealt) draw(ring, a);
  int slot = Ring::after(ring.visited, kRegisters);
#pragma unroll 1
  for (int i = 0; i < in_ring + kRegisters + (kDealt ? ring.dealt : 0); ++i) {
    Inputs inputs;
    int chunk;
    if (i >= in_ring && i < in_ring + kRegisters) {
      inputs = held.at(i - in_ring);
      chunk = (i - in_ring) * shares.apart;
    } else {
      if (i >= in_ring) wait_for(--ring.pending);
      inputs = ring_inputs(ring.first + slot);
      chunk = kDealt && i >= in_ring ? __shfl_sync(0xffffffffu, ring.held, (unsigned int)slot / kRingBytes)
                                     : chunk_on_chip(shares, kRegisters + i) * shares.apart;
      slot = Ring::next(slot);
      registers::copy_next(ring, a, shares, team, place);
    }
    visit_chunk<Sweep>(a, shares, place, unit, begin, chunk, inputs, channels, sums);
  }
  ring.visited = slot;
}

}  // namespace registers
