// The kernel `slices`: every team takes its units in turn; see device/slices.cuh. Where the ring has room for two units, a
// unit is begun before the one before it is ended: nobody waits for statistics then. Shared memory holds the statistics of
// two units, then the ring.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) slices(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Team team = team_of_block((int)a.team);
  const Place place = place_of_thread();
  const Shares shares = shares_of(a, team, place);

  Ring ring;
  ring.first = ring.issued = ring.visited = ring.oldest = memory + kSharedBytes;
  ring.pending = ring.pass = ring.index = 0;
  ring.unit = team.number;
  ring.begin = begin_of(a, shares, place, ring.unit);
  if (kAgain) ring.policies = thread::policies();
#pragma unroll 1
  for (int i = 0; i < kRing; ++i) copy_next(ring, a, shares, team, place);

  const int rounds = (int)((a.units - team.number + team.count - 1) / team.count);
  const int ahead = (int)a.ahead;
#pragma unroll 1
  for (int round = 0; round < rounds + ahead; ++round) {
    if (round < rounds)
      begin_unit(a, shares, team, place,
                 unit_at(team.number + round * (long long)team.count, &shared.values[round % 2]), ring,
                 shared, (unsigned int)round);
    if (ahead == 0) collect_unit(a, team, shared, (unsigned int)round);
    if (round >= ahead) {
      const int ended = round - ahead;
      end_unit(a, shares, team, place,
               unit_at(team.number + ended * (long long)team.count, &shared.values[ended % 2]), ring, shared,
               (unsigned int)ended);
    }
    if (ahead != 0 && round < rounds) collect_unit(a, team, shared, (unsigned int)round);
  }

  if (kTail && grid::is_last_block(a.finished)) finalise_all(a);
}
