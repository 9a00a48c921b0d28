// Who works a unit's statistics out: all of the block, or one warp of it while the others go on. kThreads and kWarps are
// those of the block.

struct Block {
  static constexpr int kCrewThreads = kThreads, kCrewWarps = kWarps;
  static __device__ int thread() { return (int)threadIdx.x; }
  static __device__ int warp() { return (int)threadIdx.x / 32; }
  static __device__ void sync() { __syncthreads(); }
};
struct Warp {
  static constexpr int kCrewThreads = 32, kCrewWarps = 1;
  static __device__ int thread() { return (int)threadIdx.x % 32; }
  static __device__ int warp() { return 0; }
  static __device__ void sync() { __syncwarp(); }
};

// The same in all lanes, so that the compiler knows it.
__device__ inline bool is_first_warp() { return __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0) == 0; }

// Statistics of groups of kGroup of kChannels channels, one warp a group: `state(c)` is what a channel has, and all channels
// get their group's.
template <class Crew, int kChannels, int kGroup, class Statistic, class State>
__device__ inline void merge_groups(Statistic* to, const State& state) {
  for (int group = Crew::warp(); group < kChannels / kGroup; group += Crew::kCrewWarps) {
    const int begin = group * kGroup + (int)threadIdx.x % 32, end = (group + 1) * kGroup;
    Statistic total;
    total.clear();
    for (int c = begin; c < end; c += 32) total.merge(state(c));
    total = warp::from_first(warp::merge(total));
    for (int c = begin; c < end; c += 32) to[c] = total;
  }
}
