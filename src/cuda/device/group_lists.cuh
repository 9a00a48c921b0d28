// Lists of a block's parts of groups of kGroup channels, for the kernels `slices` (device/slices_parts.cuh), `slices_cluster` and `slices_whole`: which
// vectors a group has, and its parts merged.

namespace parts {

__device__ constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }

template <int kGroup>
struct Groups {
  static constexpr int kCommon = common_divisor(kGroup, kVector);
  // Groups are whole vectors, or vectors whole groups.
  static constexpr bool kWhole = kCommon == kGroup || kCommon == kVector;
  static constexpr int kJoined =
      kGroup < kVector ? kGroup : kVector;  // channels of a vector that are of one group, then
  // Most groups of a vector, and most vectors of a group: both begin at multiples of what divides both.
  static constexpr int kOfThread = (kVector + kGroup - kCommon - 1) / kGroup + 1;
  static constexpr int kColumnsOfOne = (kGroup + kVector - kCommon - 1) / kVector + 1;
  // Of these, neighbouring lanes that are merged by shuffles.
  static constexpr int kPower = kColumnsOfOne & -kColumnsOfOne;
  static constexpr int kNeighbours = !kWhole ? 1 : kPower < 32 ? kPower : 32;
  static constexpr int kSets = kColumnsOfOne / kNeighbours;
  static constexpr int kOfUnit = kUnitChannels / kGroup;
  static constexpr int kInList = kLists * kSets;  // parts of one group in the block's list
  static_assert(kRowPositions == 1 && kOfUnit <= kThreads, "the planner's choice");

  // A group's first vector, and whether it has a part of this number in the block's list.
  static __device__ int first_column(int group) { return group * kGroup / kVector; }
  static __device__ bool has(int part, int group) {
    return kWhole || first_column(group) + part % kSets <= ((group + 1) * kGroup - 1) / kVector;
  }
};

// Threads that merge the parts of one group, neighbouring lanes.
__device__ constexpr int lanes_of(int count, int groups) {
  int lanes = 1;
  while (lanes < 32 && 2 * lanes <= count && 2 * lanes * groups <= kThreads) lanes *= 2;
  return lanes;
}

// Merges a list of `kCount` parts of each group, those that are there, and hands a group's total to `use`, with its number and
// that of the lane among those that have it.
template <int kGroups, int kCount, class Sums, class There, class Use>
__device__ inline void merge_list(const Sums* list, const There& there, const Use& use) {
  constexpr int kLanes = lanes_of(kCount, kGroups);
  constexpr int kEach = (kCount + kLanes - 1) / kLanes;
  const int thread = registers::thread_again();
  const int lane = thread % kLanes;
  const int group = thread / kLanes;
  if (thread / 32 * (32 / kLanes) >= kGroups) return;
  Sums some[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int part = lane + i * kLanes;
    some[i].clear();
    if (group < kGroups && part < kCount && there(part, group)) some[i] = list[part * kGroups + group];
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

}  // namespace parts
