// Statistics of groups of kGroup channels that a small team's blocks hand to each other, where nobody asks for those of single
// channels: few words, so that every block takes the parts of all by itself, once through L2.

// Of the block's groups, one warp a group, out of its list of channels, and to the team.
template <int kGroup, class Sums>
__device__ inline void give_groups(const Team& team, const Sums* list, const TeamLists<Sums>& lists,
                                   unsigned int tag) {
  const int lane = (int)threadIdx.x % 32;
  __syncthreads();
  for (int group = (int)threadIdx.x / 32; group < kUnitChannels / kGroup; group += kWarps) {
    Sums total;
    total.clear();
    for (int i = lane; i < kLists * kRowPositions * kGroup; i += 32)
      total.merge(list[i / kGroup * kUnitChannels + group * kGroup + i % kGroup]);
    total.merge_lanes();
    if (lane == 0) team::give(lists.part(group, team.member), total, tag);
  }
}

// The team's, of kAtOnce blocks for each lane at once; every channel gets its group's.
template <int kGroup, int kAtOnce, class Sums>
__device__ inline void take_groups(const Team& team, Sums* totals, const TeamLists<Sums>& lists,
                                   unsigned int tag) {
  const int lane = (int)threadIdx.x % 32;
  for (int group = (int)threadIdx.x / 32; group < kUnitChannels / kGroup; group += kWarps) {
    Sums total;
    total.clear();
    for (int member = lane; member < team.size; member += 32 * kAtOnce) {
      Sums parts[kAtOnce];
      const int count = kAtOnce == 1 ? 1 : (team.size - member + 31) / 32;
      team::take(lists.part(group, member), 32 * team::kWordsOf<Sums>, count, tag, parts);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (i < count) total.merge(parts[i]);
    }
    __syncwarp();
    total = warp::from_first(warp::merge(total));
    for (int c = lane; c < kGroup; c += 32) totals[group * kGroup + c] = total;
  }
  __syncthreads();
}
