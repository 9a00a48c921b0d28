// The kernel `slices_cluster`: every cluster has one unit; see device/slices_cluster.cuh.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    slices_cluster(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Team team = team_of_block(kCluster);
  run_unit(a, team, place_of_thread(), unit_at(team.number, &shared.values), shared);
  if (kTail && grid::is_last_block(a.finished)) finalise_all(a);
}
