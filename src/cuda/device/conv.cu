// The kernel `conv`: every block takes its items in turn; see device/conv.cuh. Shared memory holds the
// statistics of a sample and the weights, then the staged tiles.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) conv(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  Element* stages = reinterpret_cast<Element*>(memory + kSharedBytes);
  prepare(a, shared.prepared);
  __syncthreads();
#pragma unroll 1
  for (long long item = blockIdx.x; item < a.items; item += gridDim.x) run_item(a, item, shared, stages);
  if (kTail && grid::is_last_block(a.finished)) finalise_all(a);
}
