// How the warps of a block hand a round's unit to each other in the kernel `rows` without barriers: counts in shared memory, and who finds
// one grown sees what was written before it grew. By whole warps; the first lane counts for the others, whose reads and writes come
// before by what they have shuffled to it. device/rows_ahead_barriers.cuh does the same by barriers.
//
// All stand in turn. A warp is in round r when the values of unit r are there, for which all warps of all blocks have ended the first
// sweep of unit r, in round r - kAhead or before the first: a.lead is less than a unit. So at the same time
// - warps of a block end first sweeps of units r + 1 to r + kAhead: kAhead lists of warps;
// - the taker has the values of unit r + kAhead at most, for which all warps of its block are in round r: kAhead + 1 of them.

constexpr int kWarpListsInTurn = kAhead, kValuesInTurn = kAhead + 1;

struct Handover {
  int ended[kWarpListsInTurn];  // warps that have ended the first sweep of a unit
  int given, ready;             // units whose statistics are given, and there

  // By one thread, before all others begin.
  __device__ void begin() {
    for (int i = 0; i < kWarpListsInTurn; ++i) ended[i] = 0;
    given = ready = 0;
  }

  // A warp has ended the first sweep of a round's unit: whether it is the last of the block, which sees what all have found.
  __device__ bool is_last(int round) {
    int before = 0;
    if (threadIdx.x % 32 == 0) {
      int* warps = &ended[round % kWarpListsInTurn];
      __threadfence_block();
      before = atomicAdd(warps, 1);
      // Nobody comes to this list again before the values of this round are there.
      if (before == kWarps - 1) *warps = 0;
      __threadfence_block();
    }
    return __shfl_sync(0xffffffffu, before, 0) == kWarps - 1;
  }
  // That one has given the block's statistics, and the taker waits for that.
  __device__ void give(int round) {
    if (threadIdx.x % 32 == 0) publish(&given, round + 1);
  }
  __device__ void await_given(int round) const {
    while (found(&given) <= round) {
    }
    __syncwarp();
  }

  // The taker has worked the values out. Whether they are there, the same in all lanes.
  __device__ void end(int round) {
    __threadfence_block();
    __syncwarp();
    if (threadIdx.x % 32 == 0) publish(&ready, round + 1);
  }
  __device__ bool has_values(int round) const { return __all_sync(0xffffffffu, found(&ready) > round); }

 private:
  static __device__ void publish(int* count, int value) {
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"((unsigned int)__cvta_generic_to_shared(count)),
                 "r"(value)
                 : "memory");
  }
  static __device__ int found(const int* count) {
    int found;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
                 : "=r"(found)
                 : "r"((unsigned int)__cvta_generic_to_shared(count))
                 : "memory");
    return found;
  }
};
