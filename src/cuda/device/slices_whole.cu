// The kernel `slices_whole`: every team has one sample; see device/slices_whole.cuh. Shared memory holds the unit's values and the block's
// list, then the threads' columns.

extern "C" __global__ void __launch_bounds__(kThreads, 1) slices_whole(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Team team = team_of_block(kTeam);
  const Place place = place_of_thread();
  run_unit(a, team, place, {team.number, 0, &shared.values}, share_of(a, team, place, memory + kSharedBytes),
           shared);
}
