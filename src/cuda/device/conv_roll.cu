// The kernel `conv_roll`: every block takes its items in turn; see device/conv_roll.cuh. Shared memory holds
// two staged planes, then the statistics of a sample and the weights.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    conv_roll(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory + kSharedBegin);
  prepare(a, shared.prepared);
  __syncthreads();
#pragma unroll 1
  for (long long item = blockIdx.x; item < a.items; item += gridDim.x) run_item(a, item, shared, memory);
  if (kTail && grid::is_last_block(a.finished)) finalise_all(a);
}
