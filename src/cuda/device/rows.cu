// The kernel `rows`: every team takes its units in turn; see device/rows.cuh. Shared memory holds the statistics of a
// unit, then the ring.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) rows(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Team team = team_of_block((int)a.team);
  const Shares shares = {(Count)a.positions, (Count)(kUnitChannels * a.positions), (int)a.steps, (int)a.kept};
  const int warp = team.member * kWarps + (int)threadIdx.x / 32;

  char* column = memory + kSharedBytes;
  const Count mine = shares.begin(warp) + (Count)(threadIdx.x % 32) * kVector;
  Ring ring = {column, column, column, 0, mine, mine + (Count)shares.steps * kChunk, team.number, a.units, team.count};
  if (shares.empty(warp)) ring.unit = a.units;  // nothing to copy
#pragma unroll 1
  for (int i = 0; i < kRing; ++i) copy_next(ring, a, shares, mine);
  unsigned int round = 0;
  for (long long number = team.number; number < a.units; number += team.count, ++round)
    run_unit(a, shares, team, unit_at(shares, number, &shared.values), ring, shared, round);

  if (kTail && grid::is_last_block(a.finished)) finalise_all(a);
}
