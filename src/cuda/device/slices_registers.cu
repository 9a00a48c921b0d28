// The kernel `slices` with chunks in registers: every team takes its units in turn; see device/slices_registers.cuh. Shared memory
// holds the statistics of the unit under way, then the ring.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) slices(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Team team = team_of_block((int)a.team);
  const Place place = place_of_thread();
  const Shares shares = shares_of(a, team, place);

  Ring ring;
  // Held in a register: the compiler would work it out anew at each use.
  asm volatile(
      "mov.u32 %0, %1;"
      : "=r"(ring.first)
      : "r"((unsigned int)__cvta_generic_to_shared(memory + kSharedBytes + threadIdx.x * kColumnBytes)));
  ring.issued = ring.visited = ring.oldest = ring.pending = 0;
  ring.dealt = ring.held = 0;
  ring.drawn = 0;
  begin_copies(ring, a, shares, place, team.number);
#pragma unroll 1
  for (int i = 0; i < kRing; ++i) registers::copy_next(ring, a, shares, team, place);
  registers::clear_counters(a, team);

  registers::Held held;
#pragma unroll 1
  for (int round = 0; team.number + round * team.count < (int)a.units; ++round) {
    const Unit unit = unit_at(team.number + round * team.count, &shared.values[0]);
    begin_unit(a, shares, team, place, unit, ring, held, shared, (unsigned int)round);
    collect_unit(a, team, shared, (unsigned int)round);
    end_unit(a, shares, team, place, unit, ring, held, shared, (unsigned int)round);
  }

  if (kTail && grid::is_last_block(a.finished)) finalise_all(a);
}
