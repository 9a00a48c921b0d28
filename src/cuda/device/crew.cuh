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
