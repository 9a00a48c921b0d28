// columns: sweeps of a block with reductions over channels, tile by tile.
//
// A tile is kTile positions with all their channels; one thread block does all sweeps of the kernel on it. kSlots threads
// share a position: each has kPositions positions and, in every step, kElements channels of them. Vectors lie along
// positions, or along channels where kAlongChannels. Statistics of a position are merged lane by lane, then warp by warp,
// in an order that depends on the shapes alone.
// What the sweeps read stays between them where kResidency says: in registers, in the thread's own columns of shared
// memory, or nowhere, and is read again. With kAhead the last sweep begins to copy the block's next tile into the columns
// that it has done with.
//
// Before this stand the constants, Arguments, device/columns_tile.cuh, Bases (where a thread's elements begin), Inputs
// (vectors of one step) and Gathered (sums over positions, device/columns_sums.cuh, or nothing); behind it the program of
// each sweep and `run_tile`, which calls what is here in the plan's order; last the kernel, device/columns.cu or
// device/columns_gathering.cu.

// Of a sweep that takes no statistics.
struct NoSums {
  __device__ void clear() {}
  template <class Results>
  __device__ void add(const Results& results, unsigned int taken, const Weight<real>& weight) {}
};

// What a thread keeps in registers.
struct Kept {
  Inputs steps[kResidency == kInRegisters ? kSteps : 1];
};

// The tile that the block does next, where there is one.
struct Next {
  bool any;
  Sites sites;
  Bases bases;
};

// Begins to bring everything that is kept.
__device__ inline void begin_tile(const Arguments& a, const Place& place, const Sites& sites,
                                  const Bases& bases, Kept& kept, char* column) {
  if (kResidency == kNowhere) return;
#pragma unroll kUnroll
  for (int step = 0; step < kSteps; ++step) {
    if (kResidency == kInRegisters) {
      kept.steps[step] = read_inputs(a, place, sites, bases, step);
    } else {
      copy_inputs(a, place, sites, bases, step, column + step * kStepBytes);
      thread::copy_commit();
    }
  }
}

// One sweep over the tile. Leaves this thread's statistics of its positions in `sums`.
template <class Sweep, bool kFirst, bool kLast>
__device__ inline void sweep(const Arguments& a, const Place& place, const Sites& sites, const Bases& bases,
                             const typename Sweep::Positions (&positions)[kPositions], const Kept& kept,
                             char* column, typename Sweep::Sums (&sums)[kPositions], const Next& next,
                             Gathered& gathered, char* memory) {
#pragma unroll
  for (int p = 0; p < kPositions; ++p) sums[p].clear();
  Weight<real> weight = {};
#pragma unroll kUnroll
  for (int step = 0; step < kSteps; ++step) {
    Inputs inputs;
    if (kResidency == kInRegisters) {
      inputs = kept.steps[step];
    } else if (kResidency == kInShared) {
      // Copies of the next tile are under way where this sweep is also the last.
      if (kFirst) thread::copy_wait(kAhead && kLast && next.any ? kSteps - 1 : kSteps - 1 - step);
      inputs = column_inputs(column + step * kStepBytes);
      if (kAhead && kLast && next.any) {
        copy_inputs(a, place, next.sites, next.bases, step, column + step * kStepBytes);
        thread::copy_commit();
      }
    } else {
      inputs = read_inputs(a, place, sites, bases, step);
    }
    const typename Sweep::Channels channels = Sweep::channels(a, place, sites, step);
    unsigned int taken = kAllElements;
    if (kChannels % kPatch != 0) {
      taken = 0;
#pragma unroll
      for (int e = 0; e < kElements; ++e)
        if (channel_of(place, step, e) < kChannels) taken |= 1u << e;
    }
    weight.come(taken);
    typename Sweep::Results results[kPositions][kElements];
#pragma unroll
    for (int p = 0; p < kPositions; ++p) {
#pragma unroll
      for (int e = 0; e < kElements; ++e)
        results[p][e] = Sweep::program(a, place, sites, bases, step, positions[p], channels, inputs, p, e);
      sums[p].add(results[p], taken, weight);
    }
    if constexpr (Sweep::kSums > 0) Sweep::gather(sites, step, results, gathered, memory);
    Sweep::store(a, place, sites, bases, step, results);
  }
}

// Statistics of the thread's positions out of those of all their slots. `list` has a place for each warp of a team and
// position of the tile, `totals` one for each position.
template <class Sums>
__device__ inline void merge_tile(const Place& place, Sums (&sums)[kPositions], char* list_bytes,
                                  char* totals_bytes) {
  Sums* list = reinterpret_cast<Sums*>(list_bytes);
  Sums* totals = reinterpret_cast<Sums*>(totals_bytes);
  if (kLanes > 1) {
#pragma unroll
    for (int p = 0; p < kPositions; ++p) sums[p].merge_lanes();
  }
  if (kTeam == 1) return;
  const int mine = place.group * kPositions;
  if (place.slot % kLanes == 0) {
#pragma unroll
    for (int p = 0; p < kPositions; ++p) list[place.slot / kLanes * kTile + mine + p] = sums[p];
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < kTile; i += kThreads) {
    Sums parts[kTeam];
#pragma unroll
    for (int member = 0; member < kTeam; ++member) parts[member] = list[member * kTile + i];
    totals[i].merge_all(parts);
  }
  __syncthreads();
#pragma unroll
  for (int p = 0; p < kPositions; ++p) sums[p] = totals[mine + p];
}
