// The kernel `rows`: every team takes its units in turn; see device/rows.cuh. Shared memory holds the statistics of a
// unit, then the ring.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) rows(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Team team = team_of_block((int)a.team);
  const Shares shares = {a.positions, kUnitChannels * a.positions, (int)a.steps, (int)a.kept, (int)threadIdx.x % 32};
  const int warp = team.member * kWarps + (int)threadIdx.x / 32;

  Ring ring = {memory + kSharedBytes, 0, 0, 0, 0, team.number, 0};
  fill(ring, a, shares, team, warp);
  unsigned int round = 0;
  for (long long number = team.number; number < a.units; number += team.count, ++round)
    run_unit(a, shares, team, unit_at(a, shares, number, &shared.values), ring, shared, round);

  if (kTail && grid::is_last_block(a.finished)) finalise_all(a);
}
