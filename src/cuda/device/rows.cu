// The kernel `rows`: every team takes its units in turn; see device/rows.cuh. Shared memory holds the statistics of a
// unit, then the ring.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) rows(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Team team = team_of_block((int)a.team);
  const Shares shares = shares_of(a, team);

  char* column = memory + kSharedBytes;
  const Count mine = shares.begin(shares.warp) + (Count)(threadIdx.x % 32) * kVector;
  const long long rounds = (a.units - team.number + team.count - 1) / team.count;
  Ring ring = {column,
               column,
               column,
               column,
               0,
               mine,
               mine + (Count)shares.steps * kChunk,
               team.number * (long long)shares.elements + mine,
               team.count * (long long)shares.elements - (long long)shares.steps * kChunk,
               shares.empty(shares.warp) ? 0 : (int)rounds * shares.steps};
#pragma unroll 1
  for (int i = 0; i < kRing; ++i) copy_next(ring, a, shares, mine);

  for (unsigned int round = 0; round < rounds; ++round)
    run_unit(a, shares, team, unit_at(shares, team.number + round * (long long)team.count, &shared.values),
             ring, shared, round);

  if (kTail && grid::is_last_block(a.finished)) finalise_all(a);
}
