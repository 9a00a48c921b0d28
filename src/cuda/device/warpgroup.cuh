// Products of matrices by a warpgroup, four neighbouring warps: wgmma, sums += a * b, f32 sums of 64 x N.
// Both factors are in shared memory, as core matrices of eight rows of 16 bytes, one behind the other along
// the rows; a step of the depth is two of them, `next` apart. A lane has of its warp's 16 rows of the sums
// what it has of a product by mma.sync.

// A place in shared memory as descriptors of matrices have it, by 16 bytes.
__device__ inline unsigned int place_of(const void* pointer) {
  return ((unsigned int)__cvta_generic_to_shared(pointer) & 0x3ffff) >> 4;
}
// `place` and `next` are counted so.
__device__ inline unsigned long long matrix_at(unsigned int place, unsigned int next) {
  constexpr unsigned long long kCore = 8;
  return kCore << 32 | (place + (next << 16));
}

namespace block {

// Rows that threads have written are there for products.
__device__ inline void publish_rows() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}

}  // namespace block

namespace warpgroup {

__device__ inline void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Until no more than so many products are under way.
__device__ inline void wait(int pending) {
  if (pending == 0) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  if (pending == 1) asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
  if (pending == 2) asm volatile("wgmma.wait_group.sync.aligned 2;" ::: "memory");
  if (pending >= 3) asm volatile("wgmma.wait_group.sync.aligned 3;" ::: "memory");
}
// The registers of each thread from here on: more where others have given some away.
template <int kRegisters, bool kMore>
__device__ inline void set_registers() {
  if (kMore)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
  else
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
__device__ inline void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

}  // namespace warpgroup
