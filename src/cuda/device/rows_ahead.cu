// The kernel `rows` without barriers: every team takes its units in turn; see device/rows_ahead.cuh. Shared memory holds the
// statistics of some units, then the ring.

extern "C" __global__ void __launch_bounds__(kThreads + 32, kBlocks)
    rows(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Team team = team_of_block((int)a.team);
  const SharesAhead shares = shares_ahead(a, team);
  const int rounds = (int)a.rounds + (team.number < (int)a.rest ? 1 : 0);
  RingAhead ring = ring_ahead(a, shares, team, rounds, memory + kSharedBytes);
  run_units(a, shares, team, ring, shared, rounds);
}
