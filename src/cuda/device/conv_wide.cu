// The kernel `conv_wide`: every block takes its run of tiles; see device/conv_wide.cuh. Shared memory holds
// the statistics of a sample, then the staged input and the ring of weights.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    conv_wide(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  char* image = memory + kSharedBytes;
  sweep_run<Sweep0>(a, shared, image, image + 2 * kImageBytes);
  if (kTail && grid::is_last_block(a.finished)) finalise_all(a);
}
