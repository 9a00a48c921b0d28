// For device/group_lists.cuh where registers are not as scarce as in device/slices_registers.cuh.

namespace registers {

// The thread's number.
__device__ inline int thread_again() { return (int)threadIdx.x; }

}  // namespace registers
