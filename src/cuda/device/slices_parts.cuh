// Statistics of groups of kGroup channels in the kernel `slices` with chunks in registers, where a sweep takes moments alone and
// nobody asks for those of single channels.
//
// A thread joins the channels of its vector that are of one group first, so that lanes, warps and blocks have as few numbers as
// possible to merge. A block gives its part of each group, mean and sum of squares, to the team, and takes the parts of all: once
// through L2. How many elements a part is of follows from the shapes. Each unit has a list of its own, of parts with the launch's tag
// beside them (device/tagged.cuh). The team's first block clears its counters (registers::clear_counters) before it gives anything, so
// that who has all parts may draw.

namespace parts {

// place_of_thread(), worked out behind the sweep.
__device__ inline Place place_again() {
  const int thread = registers::thread_again();
  const int lane = thread % 32, warp = thread / 32, row_warps = (kColumns + 31) / 32;
  Place place;
  place.list = kPacked ? thread / kColumns : warp / row_warps;
  place.column = kPacked ? thread % kColumns : kColumns < 32 ? lane % kColumns : warp % row_warps * 32 + lane;
  place.warp_row = !kPacked && kColumns < 32 ? lane / kColumns : 0;
  place.active = place.list < kLists && place.warp_row < kWarpRows && place.column < kColumns;
  return place;
}

// What a thread has of one of the groups in its vector. `begin` is where that begins there, before the vector or in it.
template <int kGroup, class Sums, class VectorSums>
__device__ inline Sums of_vector(const VectorSums& sums, int begin) {
  Sums channels[kVector], total;
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    channels[v].clear();
    if (v >= begin && v < begin + kGroup) channels[v] = sums.at(v);
  }
  total.merge_all(channels);
  return total;
}

// The statistics of a warp's rows, of each group one, or one for each set of its columns, into the block's list.
template <int kGroup, class VectorSums, class Sums>
__device__ inline void list_groups(VectorSums& sums, Sums* list) {
  typedef Groups<kGroup> All;
  sums.finish();
  const Place place = place_again();
#pragma unroll
  for (int g = 0; g < All::kOfThread; ++g) {
    const int group = All::kWhole ? place.column / All::kColumnsOfOne * All::kOfThread + g
                                  : place.column * kVector / kGroup + g;
    const int begin = All::kWhole ? g * All::kJoined : group * kGroup - place.column * kVector;
    Sums total = of_vector<kGroup, Sums>(sums, begin);
#pragma unroll
    for (int distance = kHalfOf<kWarpRows>; distance > 0; distance /= 2) {
      const Sums other = warp::shuffle_down(total, distance * kColumns);
      if (place.warp_row + distance < kWarpRows) total.merge(other);
    }
#pragma unroll
    for (int distance = All::kNeighbours / 2; distance > 0; distance /= 2)
      total.merge(warp::shuffle_down(total, distance));
    const int set = (place.column - All::first_column(group)) / All::kNeighbours;
    if (place.active && place.warp_row == 0 && place.column % All::kNeighbours == 0 && begin < kVector)
      list[(place.list * All::kSets + set) * All::kOfUnit + group] = total;
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
  merge_list<All::kOfUnit, All::kInList>(
      list, All::has, [&](int group, int lane, int lanes, const Sums& total) {
        if (kTeam == 1) {
          spread<kGroup>(totals, group, lane, lanes, total);
        } else if (lane == 0) {
          const float* numbers = reinterpret_cast<const float*>(&total);
          if (kDealt && team.member == 0) __threadfence();  // the counters are clear before
          tagged::store(mine + group, {__float_as_uint(numbers[0]), __float_as_uint(numbers[1]),
                                       (unsigned long long)a.tag});
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
    const auto there = [](int, int) { return true; };
    merge_list<kGroups, kRanks>(list, there, [&](int group, int lane, int lanes, const Sums& total) {
      spread<kGroup>(totals, group, lane, lanes, total);
    });
  }
  __syncthreads();
}

}  // namespace parts
