// As device/rows_ahead_counts.cuh, by barriers in shared memory in place of counts (FUSEBLOCK_ROWS=barriers=1): for
// compute-sanitizer's racecheck, which sees that one thread's accesses come before another's where that one waits for a barrier at
// which the first has arrived itself. So all lanes arrive, those also whom the first lane of their warp counts for there, and all
// warps for which the last one does: each barrier is over when the count would have grown. That is slower.

constexpr int kWarpListsInTurn = kAhead, kValuesInTurn = kAhead + 1;

struct Handover {
  unsigned int ended[kWarpListsInTurn];
  arrivals::Barrier found[kWarpListsInTurn];  // what a warp has found, for the last one
  arrivals::Barrier given[kWarpListsInTurn];  // by the last one, for the taker
  arrivals::Barrier ready[kValuesInTurn];  // by the taker, for all; and the last one has done with the list

  __device__ void begin() {
    for (int i = 0; i < kWarpListsInTurn; ++i) {
      ended[i] = 0;
      arrivals::begin(&found[i], kThreads);
      arrivals::begin(&given[i], kThreads);
    }
    for (int i = 0; i < kValuesInTurn; ++i) arrivals::begin(&ready[i], 64);
  }

  __device__ bool is_last(int round) {
    const int turn = round % kWarpListsInTurn;
    unsigned int before = 0;
    arrivals::arrive(&found[turn]);
    // From the beginning again behind the last.
    if (threadIdx.x % 32 == 0) before = atomicInc(&ended[turn], kWarps - 1);
    if (__shfl_sync(0xffffffffu, before, 0) == kWarps - 1) {
      wait(found, round);
      return true;
    }
    arrivals::arrive(&given[turn]);
    return false;
  }
  __device__ void give(int round) {
    arrivals::arrive(&given[round % kWarpListsInTurn]);
    arrivals::arrive(&ready[round % kValuesInTurn]);
  }
  __device__ void await_given(int round) const { wait(given, round); }

  __device__ void end(int round) { arrivals::arrive(&ready[round % kValuesInTurn]); }
  __device__ bool has_values(int round) const { return is_over(ready, round); }

 private:
  // Phases of a barrier are the rounds that it stands for.
  template <int kInTurn>
  static __device__ bool is_over(const arrivals::Barrier (&barriers)[kInTurn], int round) {
    return __all_sync(0xffffffffu, arrivals::is_over(&barriers[round % kInTurn], round / kInTurn & 1));
  }
  template <int kInTurn>
  static __device__ void wait(const arrivals::Barrier (&barriers)[kInTurn], int round) {
    while (!is_over(barriers, round)) {
    }
  }
};
