// Statistics of groups of kGroup channels in the kernel `slices` with chunks in registers, where a sweep takes moments alone and
// nobody asks for those of single channels. Groups are whole vectors, or vectors whole groups.
//
// A thread joins the channels of its vector first, so that lanes, warps and blocks have as few numbers as possible to merge. A
// block gives its part of each group, mean and sum of squares, to the team, and takes the parts of all: once through L2. How
// many elements a part is of follows from the shapes. Each unit has a list of its own, of parts with the launch's tag beside them
// (device/tagged.cuh). The team's first block clears its counters (registers::clear_counters) before it gives anything, so that
// who has all parts may draw.

namespace parts {

template <int kGroup>
struct Groups {
  static constexpr int kJoined =
      kGroup < kVector ? kGroup : kVector;                // channels of a vector that are of one group
  static constexpr int kOfThread = kVector / kJoined;     // groups of a vector
  static constexpr int kColumnsOfOne = kGroup / kJoined;  // vectors of a group
  // Of these, neighbouring lanes that are merged by shuffles.
  static constexpr int kPower = kColumnsOfOne & -kColumnsOfOne;
  static constexpr int kNeighbours = kPower < 32 ? kPower : 32;
  static constexpr int kSets = kColumnsOfOne / kNeighbours;
  static constexpr int kOfUnit = kUnitChannels / kGroup;
  static constexpr int kInList = kLists * kSets;  // parts of one group in the block's list
  static_assert(kRowPositions == 1 && kGroup % kJoined == 0 && kVector % kJoined == 0 && kOfUnit <= kThreads,
                "the planner's choice");
};

// place_of_thread(), worked out behind the sweep.
__device__ inline Place place_again() {
  const int thread = registers::thread_again();
  const int lane = thread % 32, warp = thread / 32;
  Place place;
  place.list = warp / kRowWarps;
  place.column = kColumns < 32 ? lane % kColumns : warp % kRowWarps * 32 + lane;
  place.warp_row = kColumns < 32 ? lane / kColumns : 0;
  place.active = place.list < kLists && place.warp_row < kWarpRows && place.column < kColumns;
  return place;
}

// Threads that merge the parts of one group, neighbouring lanes.
__device__ constexpr int lanes_of(int count, int groups) {
  int lanes = 1;
  while (lanes < 32 && 2 * lanes <= count && 2 * lanes * groups <= kThreads) lanes *= 2;
  return lanes;
}

// Merges a list of `kCount` parts of each group and hands a group's total to `use`, with its number and that of the lane among
// those that have it.
template <int kGroups, int kCount, class Sums, class Use>
__device__ inline void merge_list(const Sums* list, const Use& use) {
  constexpr int kLanes = lanes_of(kCount, kGroups);
  constexpr int kEach = (kCount + kLanes - 1) / kLanes;
  const int thread = registers::thread_again();
  const int lane = thread % kLanes;
  const int group = thread / kLanes;
  if (thread / 32 * (32 / kLanes) >= kGroups) return;
  Sums some[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    some[i].clear();
    if (group < kGroups && lane + i * kLanes < kCount) some[i] = list[(lane + i * kLanes) * kGroups + group];
  }
  Sums total;
  total.merge_all(some);
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    total.merge(warp::shuffle_down(total, distance));
  unsigned int* words = reinterpret_cast<unsigned int*>(&total);
#pragma unroll
  for (int i = 0; i < team::kWordsOf<Sums>; ++i)
    words[i] = __shfl_sync(0xffffffffu, words[i], thread % 32 - lane);
  if (group < kGroups) use(group, lane, kLanes, total);
}

// A group's total to all its channels.
template <int kGroup, class Sums>
__device__ inline void spread(Sums* totals, int group, int lane, int lanes, const Sums& total) {
  for (int c = lane; c < kGroup; c += lanes) totals[group * kGroup + c] = total;
}

// The statistics of a warp's rows, of each group one, or one for each set of its columns, into the block's list.
template <int kGroup, class VectorSums, class Sums>
__device__ inline void list_groups(VectorSums& sums, Sums* list) {
  typedef Groups<kGroup> All;
  sums.finish();
  const Place place = place_again();
#pragma unroll
  for (int g = 0; g < All::kOfThread; ++g) {
    Sums channels[All::kJoined];
#pragma unroll
    for (int v = 0; v < All::kJoined; ++v) channels[v] = sums.at(g * All::kJoined + v);
    Sums total;
    total.merge_all(channels);
#pragma unroll
    for (int distance = kHalfOf<kWarpRows>; distance > 0; distance /= 2) {
      const Sums other = warp::shuffle_down(total, distance * kColumns);
      if (place.warp_row + distance < kWarpRows) total.merge(other);
    }
#pragma unroll
    for (int distance = All::kNeighbours / 2; distance > 0; distance /= 2)
      total.merge(warp::shuffle_down(total, distance));
    const int set = place.list * All::kSets + place.column % All::kColumnsOfOne / All::kNeighbours;
    const int group = place.column / All::kColumnsOfOne * All::kOfThread + g;
    if (place.active && place.warp_row == 0 && place.column % All::kNeighbours == 0)
      list[set * All::kOfUnit + group] = total;
  }
}

// The parts of the unit's groups, block by block.
template <int kGroup>
__device__ inline tagged::Words* list_of(tagged::Words* all, const Team& team, unsigned int round) {
  return all + (team.number + (long long)round * team.count) * team.size * Groups<kGroup>::kOfUnit;
}

// The block's groups out of its list: to the team, or into the unit's totals where the block is alone.
template <int kGroup, int kTeam, class Sums>
__device__ inline void give(const Arguments& a, const Team& team, const Sums* list, Sums* totals,
                            tagged::Words* all) {
  typedef Groups<kGroup> All;
  __syncthreads();
  tagged::Words* mine = all + team.member * All::kOfUnit;
  merge_list<All::kOfUnit, All::kInList>(list, [&](int group, int lane, int lanes, const Sums& total) {
    if (kTeam == 1) {
      spread<kGroup>(totals, group, lane, lanes, total);
    } else if (lane == 0) {
      const float* numbers = reinterpret_cast<const float*>(&total);
      if (kDealt && team.member == 0) __threadfence();  // the counters are clear before
      tagged::store(mine + group,
                    {__float_as_uint(numbers[0]), __float_as_uint(numbers[1]), (unsigned long long)a.tag});
    }
  });
}

// Waits for parts that lie `stride` apart. What is there is not asked for again.
template <int kCount>
__device__ inline void await(const tagged::Words* first, int stride, int count, unsigned long long tag,
                             tagged::Words (&words)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) words[i].tag = i < count ? ~tag : tag;
  bool waiting = true;
  while (waiting) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (words[i].tag != tag) words[i] = tagged::load(first + i * stride);
    waiting = false;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (words[i].tag != tag) waiting = true;
  }
}

// Positions of the unit of which a block has taken statistics.
template <int kTeam>
__device__ inline Count positions_of(const Arguments& a, int member) {
  const Count all = (Count)a.positions;
  if (kDealt) {
    const Count whole = all / kChunkRows;
    return (whole + kTeam - 1 - member) / kTeam * kChunkRows +
           (whole % kTeam == member ? all % kChunkRows : 0);
  }
  const Count share = (Count)a.steps * kChunkRows;
  const Count left = all - member * share;
  return left < 0 ? 0 : left < share ? left : share;
}

// Parts of a thread that are waited for at once, and those of a unit that only one group of each block is asked for at first: all
// blocks wait for the slowest, whose copies must not wait for their asking.
constexpr int kAtOnce = 3;
constexpr int kMany = 1280;

// The unit's groups from the parts of all blocks, for all channels. `list` is the block's, and no longer needed.
template <int kGroup, int kTeam, class Sums>
__device__ inline void take(const Arguments& a, const tagged::Words* all, Sums* list, Sums* totals) {
  if (kTeam > 1) {
    const unsigned long long tag = (unsigned long long)a.tag;
    constexpr int kGroups = Groups<kGroup>::kOfUnit;
    constexpr int kMost = kThreads / kGroups < kTeam ? kThreads / kGroups : kTeam;
    constexpr int kRanks = Groups<kGroup>::kInList < kMost ? Groups<kGroup>::kInList : kMost;
    constexpr int kEach = (kTeam + kRanks - 1) / kRanks;
    constexpr int kSome = kEach < kAtOnce ? kEach : kAtOnce;
    if (kTeam * kGroups > kMany)
      for (int member = threadIdx.x; member < kTeam; member += kThreads) {
        tagged::Words first[1];
        await(all + member * kGroups, 0, 1, tag, first);
      }
    __syncthreads();
    const int thread = registers::thread_again();
    const int group = thread % kGroups;
    const int rank = thread / kGroups;
    if (rank < kRanks) {
      Sums total;
      total.clear();
#pragma unroll 1
      for (int member = rank; member < kTeam; member += kSome * kRanks) {
        const int count = (kTeam - member + kRanks - 1) / kRanks;
        tagged::Words words[kSome];
        await(all + member * kGroups + group, kRanks * kGroups, count, tag, words);
        Sums some[kSome + 1];
#pragma unroll
        for (int i = 0; i < kSome; ++i) {
          some[i].clear();
          float* numbers = reinterpret_cast<float*>(&some[i]);
          if (i >= count) continue;
          numbers[0] = __uint_as_float(words[i].first);
          numbers[1] = __uint_as_float(words[i].second);
          numbers[2] = (float)positions_of<kTeam>(a, member + i * kRanks) * kGroup;
        }
        some[kSome] = total;
        total.merge_all(some);
      }
      list[rank * kGroups + group] = total;
      if (kDealt) __threadfence();  // and who draws finds them clear
    }
    __syncthreads();
    merge_list<kGroups, kRanks>(list, [&](int group, int lane, int lanes, const Sums& total) {
      spread<kGroup>(totals, group, lane, lanes, total);
    });
  }
  __syncthreads();
}

}  // namespace parts
