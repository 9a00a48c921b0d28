// How a launch begins whose teams have lists in memory (device/team.cuh): each block clears the places that it will write itself,
// and looks at no other before all blocks have done so. A clearing of memory before the launch would cost 2 us; this is
// hidden behind the first copies.

namespace grid {

// All blocks of a cooperative launch, one warp of each: what they have written before is seen behind it by this warp, and by others
// that meet it later. The word that they count in is the driver's own, one for each launch under way and always ready: its address
// is what envreg1 and envreg2 hold, as in NVIDIA's cooperative_groups (details/driver_abi.h), and its highest bit changes
// when all have come.
__device__ inline void sync_by_warp() {
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    unsigned int high, low, before, now;
    asm volatile("mov.u32 %0, %%envreg1;" : "=r"(high));
    asm volatile("mov.u32 %0, %%envreg2;" : "=r"(low));
    const unsigned long long word = ((unsigned long long)high << 32 | low) + 4;
    const unsigned int counted = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
    asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(word), "r"(counted)
                 : "memory");
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    while (((now ^ before) & 0x80000000u) == 0);
  }
  __syncwarp();
}

}  // namespace grid
