// The kernel `finalise`: statistics out of statistics, by one block.

extern "C" __global__ void __launch_bounds__(1024, 1) finalise(const __grid_constant__ Arguments a) {
  finalise_all(a);
}
