// The places of a team's lists that this block will write: parts of all channels, totals of those that it collects. By one warp.
template <class Sums>
__device__ inline void clear_lists(const Arguments& a, uint2* all, const Team& team) {
  Sums nothing;
  nothing.clear();
  const unsigned int turns = (int)a.units > team.count ? 2 : 1;
  for (unsigned int turn = 0; turn < turns; ++turn) {
    const TeamLists<Sums> lists = team_lists<Sums>(all, team, turn);
    for (int c = (int)threadIdx.x % 32; c < kUnitChannels; c += 32) {
      team::give(lists.part(c, team.member), nothing, 0u);
      if (c % team.size == team.member) team::give(lists.total(c), nothing, 0u);
    }
  }
}
