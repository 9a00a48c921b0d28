// The kernel `columns`: every block takes its tiles in turn; see device/columns.cuh. Shared memory holds the lists of
// statistics, then the threads' columns.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) columns(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  const Place place = place_of_thread();
  Gathered nothing;
  for (Count tile = blockIdx.x; tile < (Count)a.tiles; tile += gridDim.x)
    run_tile(a, place, tile, -1, memory, nothing);
}
