// The kernel `conv_deep`: every block takes its run of tiles; see device/conv_deep.cuh. Shared memory holds
// the staged input and the ring of weights, then the statistics of a sample.

extern "C" __global__ void __launch_bounds__(kThreads, 1) conv_deep(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory + kSharedBegin);
  sweep_run<Sweep0>(a, shared, memory + kGroupsM * kStages * kSlotBytes, memory);
  if (kTail && grid::is_last_block(a.finished)) finalise_all(a);
}
