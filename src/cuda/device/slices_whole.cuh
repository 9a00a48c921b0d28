// slices that are whole samples: a unit of the kernel `slices` (device/slices.cuh) with all channels, which a team has on chip and is done with.
//
// A team of kTeam blocks has one sample, a block kBlockRows neighbouring positions of it, in memory one run, and a thread one column
// of vectors, kRows of them, kLists positions apart: the first kRegisters in its registers, the others in its own column of
// shared memory, all of which are asked for at the start. Blocks hand parts of groups (device/group_lists.cuh) to each other once, through
// memory with the launch's tag beside them (device/tagged.cuh): a list for each group, the parts of its blocks side by side. Everything
// is merged in an order that the shapes fix.
//
// Before this stand the constants, Arguments, Inputs (a thread's vectors in registers), UnitValues, Shared, device/group_lists.cuh and device/group_sums.cuh;
// behind it the program of each sweep, the finalise steps, and run_unit, which calls what is here in the plan's order; last the kernel,
// device/slices_whole.cu.

constexpr int kRows = kRegisters + kRing;
constexpr int kBlockRows = kRows * kLists;
constexpr int kOwnChannels = (kUnitChannels + kThreads - 1) / kThreads;
static_assert(kRegisters > 0 && kRowPositions == 1, "the planner's choice");

// A unit in this block.
struct Unit {
  long long n;
  int first_channel;
  UnitValues* values;
};

// A thread's share of it.
struct Share {
  Count row;            // its first position
  Count end;            // of the sample; 0 for a thread without a column
  long long begin;      // where its first vector lies in the tensors
  unsigned int column;  // its column of shared memory

  __device__ Count at(int i) const { return row + i * kLists; }
  __device__ bool has(int i) const { return at(i) < end; }
  __device__ long long offset(int i) const { return begin + i * (long long)(kLists * kChannels); }
  __device__ unsigned int slot(int i) const { return column + (i - kRegisters) * kRingBytes; }
};

__device__ inline Share share_of(const Arguments& a, const Team& team, const Place& place,
                                 const char* memory) {
  Share share;
  share.row = (Count)team.member * kBlockRows + place.row();
  share.end = place.active ? (Count)a.positions : 0;
  share.begin = (team.number * a.positions + (long long)share.row) * kChannels + place.column * kVector;
  share.column = (unsigned int)__cvta_generic_to_shared(memory) + threadIdx.x * (kRingBytes / kThreads);
  return share;
}

// All of a thread's vectors are asked for: those of shared memory first.
__device__ inline void ask(const Arguments& a, const Share& share, Inputs& inputs) {
#pragma unroll
  for (int i = kRegisters; i < kRows; ++i)
    if (share.has(i)) copy_piece(a, share.offset(i), share.slot(i));
  thread::copy_commit();
#pragma unroll
  for (int i = 0; i < kRegisters; ++i)
    if (share.has(i)) read_piece(a, share.offset(i), inputs, i);
}

// What the tensors give for a sweep's channels, of which each thread has some. Asked for early, and not waited for.
template <class Sweep>
struct OwnChannels {
  typename Sweep::Channel of[kOwnChannels];

  __device__ static bool has(int i) { return (int)threadIdx.x + i * kThreads < kUnitChannels; }
  __device__ void parameters(const Arguments& a, const Unit& unit) {
#pragma unroll
    for (int i = 0; i < kOwnChannels; ++i)
      if (has(i)) Sweep::parameters(a, unit, (int)threadIdx.x + i * kThreads, of[i]);
  }
  // With the statistics, what a sweep takes for each channel of the unit.
  __device__ void prepare(const Arguments& a, const Unit& unit, typename Sweep::Hoisted* prepared) {
#pragma unroll
    for (int i = 0; i < kOwnChannels; ++i) {
      if (!has(i)) continue;
      Sweep::statistics(a, unit, (int)threadIdx.x + i * kThreads, of[i]);
      prepared[(int)threadIdx.x + i * kThreads] = Sweep::hoisted(of, i);
    }
    __syncthreads();
  }
};

// The first sweep, over all of the thread's vectors. Returns how many these are.
template <class Sweep, int kGroup>
__device__ inline int first_sweep(const Arguments& a, const Unit& unit, const Place& place,
                                  const Share& share, const Inputs& inputs, GroupSums<kGroup>& sums) {
  const typename Sweep::Hoisted none[kVector] = {};
  typename Sweep::Results results[kVector] = {};
  if (share.has(0)) Sweep::program_of_vector(a, none, inputs, 0, unit, place, share.row, results);
  sums.start(place, results);
  int taken = 0;
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) {
    if (!share.has(i)) break;
    Sweep::program_of_vector(a, none, inputs, i, unit, place, share.at(i), results);
    sums.add(results);
    ++taken;
  }
  thread::copy_wait_constant<0>();
#pragma unroll 2
  for (int i = kRegisters; i < kRows; ++i) {
    if (!share.has(i)) break;
    Inputs own;
    own_piece(share.slot(i), own);
    Sweep::program_of_vector(a, none, own, 0, unit, place, share.at(i), results);
    sums.add(results);
    ++taken;
  }
  return taken;
}

// The parts of a group's blocks.
template <int kGroup>
__device__ inline tagged::Words* parts_of(tagged::Words* all, const Team& team, int group) {
  return all + (team.number * (long long)parts::Groups<kGroup>::kOfUnit + group) * kTeam;
}

// The block's part of each group, out of its list, to the team.
template <int kGroup, class Sums>
__device__ inline void give_parts(const Arguments& a, const Team& team, const Sums* list,
                                  tagged::Words* all) {
  typedef parts::Groups<kGroup> All;
  __syncthreads();
  parts::merge_list<All::kOfUnit, kStride * All::kSets>(
      list, All::has, [&](int group, int lane, int /*lanes*/, const Sums& total) {
        const float* numbers = reinterpret_cast<const float*>(&total);
        if (lane == 0)
          tagged::store(
              parts_of<kGroup>(all, team, group) + team.member,
              {__float_as_uint(numbers[0]), __float_as_uint(numbers[1]), (unsigned long long)a.tag});
      });
}

// Positions of the sample that a block has.
__device__ inline Count positions_of(const Arguments& a, int member) {
  const Count left = (Count)a.positions - member * kBlockRows;
  return left < 0 ? 0 : left < kBlockRows ? left : kBlockRows;
}

// Parts of a thread that are waited for at once.
constexpr int kMostAtOnce = 8;

// The unit's groups out of the parts of all blocks, a warp a group, for all channels.
template <int kGroup, class Sums>
__device__ inline void take_parts(const Arguments& a, const Team& team, tagged::Words* all, Sums* totals) {
  constexpr int kGroups = parts::Groups<kGroup>::kOfUnit;
  constexpr int kEach = (kTeam + 31) / 32;
  constexpr int kOfWarp = (kGroups + kWarps - 1) / kWarps;
  constexpr int kSome = kOfWarp * kEach <= kMostAtOnce ? kOfWarp
                        : kEach < kMostAtOnce          ? kMostAtOnce / kEach
                                                       : 1;
  const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
  const unsigned long long tag = (unsigned long long)a.tag;
#pragma unroll 1
  for (int first = warp; first < kGroups; first += kSome * kWarps) {
    tagged::Words words[kSome][kEach];
#pragma unroll
    for (int k = 0; k < kSome; ++k)
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        words[k][i].tag = first + k * kWarps < kGroups && lane + 32 * i < kTeam ? ~tag : tag;
    bool waiting = true;
    while (waiting) {
#pragma unroll
      for (int k = 0; k < kSome; ++k)
#pragma unroll
        for (int i = 0; i < kEach; ++i)
          if (words[k][i].tag != tag)
            words[k][i] = tagged::load(parts_of<kGroup>(all, team, first + k * kWarps) + lane + 32 * i);
      waiting = false;
#pragma unroll
      for (int k = 0; k < kSome; ++k)
#pragma unroll
        for (int i = 0; i < kEach; ++i)
          if (words[k][i].tag != tag) waiting = true;
    }
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kSome; ++k) {
      if (first + k * kWarps >= kGroups) break;
      Sums some[kEach], total;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        some[i].clear();
        float* numbers = reinterpret_cast<float*>(&some[i]);
        if (lane + 32 * i >= kTeam) continue;
        numbers[0] = __uint_as_float(words[k][i].first);
        numbers[1] = __uint_as_float(words[k][i].second);
        numbers[2] = (float)(positions_of(a, lane + 32 * i) * kGroup);
      }
      total.merge_all(some);
      total.merge_lanes();
      parts::spread<kGroup>(totals, first + k * kWarps, lane, 32, total);
    }
  }
  __syncthreads();
}

// The last sweep, vector by vector, those in shared memory first. Where its sigmoids are taken by pairs, and these do not hold for the thread, it
// reads its vectors again, and stores each element's own result in the place of what it has stored.
template <class Sweep>
__device__ inline void last_sweep(const Arguments& a, const Unit& unit, const Place& place,
                                  const Share& share, const Inputs& inputs,
                                  const typename Sweep::Hoisted* prepared) {
  typename Sweep::Hoisted channels[kVector];
#pragma unroll
  for (int v = 0; v < kVector; ++v) channels[v] = prepared[place.channel(v)];
  typename Sweep::Results results[kVector];
  float products = 0;
#pragma unroll 2
  for (int i = kRegisters; i < kRows; ++i) {
    if (!share.has(i)) break;
    Inputs own;
    own_piece(share.slot(i), own);
    products += Sweep::program_of_vector(a, channels, own, 0, unit, place, share.at(i), results);
    Sweep::store(a, share.offset(i), results);
  }
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) {
    if (share.has(i)) {
      products += Sweep::program_of_vector(a, channels, inputs, i, unit, place, share.at(i), results);
      Sweep::store(a, share.offset(i), results);
    }
    __syncwarp();  // else the compiler works on all vectors at once, and the first is stored late
  }
  if (Sweep::hold(products)) return;
#pragma unroll 1
  for (int i = 0; i < kRows && share.has(i); ++i) {
    Inputs again;
    read_piece(a, share.offset(i), again, 0);
#pragma unroll
    for (int v = 0; v < kVector; ++v)
      results[v] = Sweep::program(a, channels[v], again, 0, v, unit, place, share.at(i));
    Sweep::store(a, share.offset(i), results);
  }
}
