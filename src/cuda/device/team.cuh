// Thread blocks that work on one unit together: where a block stands among them, and their barrier. All blocks of a
// grid run at the same time. `arrived` counts in memory, one number a team, zero at the start of the launch.

struct Team {
  int size;           // blocks
  int member;         // this block among them
  int number, count;  // this team among all
};

__device__ inline Team team_of_block(int size) {
  Team team;
  team.size = size;
  team.number = (int)blockIdx.x / size;
  team.member = (int)blockIdx.x - team.number * size;
  team.count = (int)gridDim.x / size;
  return team;
}

namespace team {

// What the block has written before is seen by those that wait for it.
__device__ inline void arrive(unsigned int* arrived) {
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
}

// Waits until `wanted` blocks have arrived since the launch.
__device__ inline void wait(const unsigned int* arrived, unsigned int wanted) {
  if (threadIdx.x == 0) {
    unsigned int now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
    } while (now < wanted);
  }
  __syncthreads();
}

}  // namespace team

namespace grid {

// True in the last block of the grid that comes here; it sees what all others have written before. `finished` is zero at
// the start of the launch.
__device__ inline bool is_last_block(unsigned int* finished) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(finished, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

}  // namespace grid
