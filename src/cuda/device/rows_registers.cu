// The kernel `rows_registers`: every block, or cluster of blocks, has one unit; see device/rows_registers.cuh.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
    rows_registers(const __grid_constant__ Arguments a) {
  __shared__ Shared shared;
  const Team team = team_of_block(kCluster);
  run_unit(a, team, unit_at(team.number, &shared.values), share_of(team), shared);
}
