// slices in clusters: a unit of the kernel `slices` (device/slices.cuh) that fits into the registers of a thread block cluster.
//
// Units, rows and a thread's place in them are those of `slices`. A cluster of kCluster blocks has one unit, a block
// kChunkRows neighbouring rows of it, and a thread kPieces of these, kStride apart, whose vectors it reads once and keeps
// in its registers over all sweeps. Statistics are merged lane by lane and warp by warp into the block's part, of each
// channel or of each group of kGroup channels. A block writes its part into the shared memory of all blocks of its cluster, and
// each merges the parts of all by itself when they have arrived, in the same order. So nothing is handed over in memory, nothing has
// to be zero before the launch, and nobody reads or writes the memory of a block that has ended.
//
// Before this stand the constants, device/slices_rows.cuh, device/slices_place.cuh, device/slices_thread.cuh, Arguments, Inputs
// and UnitValues; behind it the program of each sweep, the finalise steps, and run_unit, which calls what is here in the plan's order;
// last the kernel, device/slices_cluster.cu.

static_assert(kUnitChannels <= kThreads, "a thread for each channel");
static_assert(kWarpRows * kPieces <= kTilePositions, "a warp's rows are one tile");

// All of the block, where a thread has one channel and no more.
struct OneEach : Block {
  static constexpr int kCrewThreads = kUnitChannels;
};

// A thread's share of a unit.
struct Share {
  Count row;        // its first
  Count end;        // rows of the unit that have this thread's vector; 0 for a thread that has none
  long long begin;  // where its first vector lies in the tensors
};

// A unit in this block.
struct Unit {
  long long n;
  int first_channel;
  UnitValues* values;
};

__device__ inline Unit unit_at(int number, UnitValues* values) {
  constexpr int kInSample = kChannels / kUnitChannels;
  const int n = number / kInSample;
  return {n, (number - n * kInSample) * kUnitChannels, values};
}

__device__ inline Share share_of(const Arguments& a, const Team& team, const Place& place, const Unit& unit) {
  Share share;
  share.row = (Count)team.member * kChunkRows + place.row();
  const Count positions = (Count)a.positions - place.position(0);
  share.end = place.active ? (positions + kRowPositions - 1) / kRowPositions : 0;
  share.begin = (unit.n * a.positions + (long long)share.row * kRowPositions) * kChannels +
                unit.first_channel + place.column * kVector;
  return share;
}

// What the tensors give for a sweep's channel of the unit, one a thread. Asked for early, and not waited for.
template <class Sweep>
__device__ inline typename Sweep::Channel parameters_of(const Arguments& a, const Unit& unit) {
  typename Sweep::Channel channel = {};
  if (threadIdx.x < kUnitChannels) Sweep::parameters(a, unit, (int)threadIdx.x, channel);
  return channel;
}

// With the statistics, what a sweep takes for each channel of the unit.
template <class Sweep>
__device__ inline void prepare(const Arguments& a, const Unit& unit, typename Sweep::Channel& channel,
                               typename Sweep::Hoisted* prepared) {
  if (threadIdx.x < kUnitChannels) {
    Sweep::statistics(a, unit, (int)threadIdx.x, channel);
    prepared[threadIdx.x] = Sweep::hoisted(&channel, 0);
  }
  __syncthreads();
}

// What the warp's first thread of this one's column has.
template <class Value>
__device__ inline Value of_first_row(const Value& value, const Place& place) {
  if (kWarpRows == 1) return value;
  Value result;
  const unsigned int* from = reinterpret_cast<const unsigned int*>(&value);
  unsigned int* to = reinterpret_cast<unsigned int*>(&result);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(Value) / 4); ++i) to[i] = __shfl_sync(0xffffffffu, from[i], place.column);
  return result;
}

// What a sweep takes of the channels of this thread's vector.
template <class Sweep>
__device__ inline void channels_of(const Place& place, const typename Sweep::Hoisted* prepared,
                                   typename Sweep::Hoisted (&channels)[kVector]) {
#pragma unroll
  for (int v = 0; v < kVector; ++v)
    if (Sweep::kChannelValues) channels[v] = prepared[place.channel(v)];
}

// Statistics of the thread's channels begin: by the warp's first row of each column, or by the thread's own where moments are joined by groups.
template <class Sweep>
__device__ inline void start(const Arguments& a, const Unit& unit, const Place& place, const Share& share,
                             const Inputs& inputs, const typename Sweep::Hoisted (&channels)[kVector],
                             typename Sweep::VectorSums& sums) {
  sums.clear();
  if (!Sweep::kStatistics) return;
  // Where the unit has ended before that row, there is nothing to take.
  typename Sweep::Results first[kVector] = {};
  if (share.row < share.end) Sweep::program_of_vector(a, channels, inputs, 0, unit, place, share.row, first);
#pragma unroll
  for (int v = 0; v < kVector; ++v) first[v] = of_first_row(first[v], place);
  sums.start(first);
}
template <class Sweep, int kGroup>
__device__ inline void start(const Arguments& a, const Unit& unit, const Place& place, const Share& share,
                             const Inputs& inputs, const typename Sweep::Hoisted (&channels)[kVector],
                             GroupSums<kGroup>& sums) {
  typename Sweep::Results first[kVector] = {};
  if (share.row < share.end) Sweep::program_of_vector(a, channels, inputs, 0, unit, place, share.row, first);
  sums.start(place, first);
}

// A sweep over the thread's vectors, one after the other; its statistics of its channels into `sums`. Returns how many there are. Where its
// sigmoids are taken by pairs, and these do not hold for the thread, it reads its vectors again, and stores each element's own
// result in the place of what it has stored.
template <class Sweep, class Sums>
__device__ inline int sweep(const Arguments& a, const Unit& unit, const Place& place, const Share& share,
                            const Inputs& inputs, const typename Sweep::Hoisted* prepared, Sums& sums) {
  typename Sweep::Hoisted channels[kVector] = {};
  channels_of<Sweep>(place, prepared, channels);
  start<Sweep>(a, unit, place, share, inputs, channels, sums);
  int taken = 0;
  float products = 0;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    const Count row = share.row + piece * kStride;
    if (row < share.end) {
      typename Sweep::Results results[kVector];
      products += Sweep::program_of_vector(a, channels, inputs, piece, unit, place, row, results);
      sums.add(results);
      Sweep::store(a, share.begin + piece * (long long)kStrideElements, results);
      ++taken;
    }
    __syncwarp();  // else the compiler works on all vectors at once, and the first is stored late
  }
  if (Sweep::hold(products)) return taken;
#pragma unroll 1
  for (int piece = 0; piece < kPieces && share.row + piece * kStride < share.end; ++piece) {
    const long long offset = share.begin + piece * (long long)kStrideElements;
    Inputs again;
    read_piece(a, offset, again, 0);
    typename Sweep::Results results[kVector];
#pragma unroll
    for (int v = 0; v < kVector; ++v)
      results[v] = Sweep::program(a, channels[v], again, 0, v, unit, place, share.row + piece * kStride);
    Sweep::store(a, offset, results);
  }
  return taken;
}

// Parts of all blocks of the cluster arrive at the barrier. By one thread, before `have_begun`.
__device__ inline void begin_parts(arrivals::Barrier* arrived) {
  arrivals::begin(arrived, 1);
  arrivals::publish();
}
// Nobody writes into the memory of a block before all have come here; that is waited for by `cluster::wait`.
__device__ inline void have_begun() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }

// Writes a value into the shared memory of another block of the cluster, where `mine` lies in this one's.
template <class Value>
__device__ inline void write_to(int member, Value* mine, const Value& value, arrivals::Barrier* arrived) {
  const unsigned int* words = reinterpret_cast<const unsigned int*>(&value);
  unsigned int place, barrier;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(barrier)
      : "r"(arrivals::address_of(arrived)), "r"(member));
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(place)
      : "r"((unsigned int)__cvta_generic_to_shared(mine)), "r"(member));
#pragma unroll
  for (int i = 0; i < (int)(sizeof(Value) / 4); ++i)
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(place + 4 * i),
        "r"(words[i]), "r"(barrier)
        : "memory");
}

constexpr int kEntries = kLists * kRowPositions;  // of a channel in the block's list
constexpr int kSome = 4;

// Out of a group's entries of the list those of numbers i, i + 32, ..., kSome of them where there are so many.
template <int kGroup, class Sums>
__device__ inline Sums some_of_group(const Sums* list, int group, int i) {
  Sums some[kSome];
#pragma unroll
  for (int k = 0; k < kSome; ++k, i += 32) {
    if (i < kEntries * kGroup)
      some[k] = list[i / kGroup * kUnitChannels + group * kGroup + i % kGroup];
    else
      some[k].clear();
  }
  Sums total;
  total.merge_all(some);
  return total;
}

// The statistics of the block's rows out of its threads', and to all blocks of the cluster: `parts` has a place for each block
// and group, `list` one for each warp's rows and slot.
template <int kGroup, class VectorSums, class Sums>
__device__ inline void give_part(const Team& team, const Place& place, VectorSums& sums, int taken,
                                 Sums* list, Sums* parts, arrivals::Barrier* arrived) {
  constexpr int kGroups = kUnitChannels / kGroup;
  sums.took(taken);
  sums.finish();
  sums.template merge_rows<kWarpRows, kColumns>(place.warp_row);
  if (place.active && place.warp_row == 0) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) list[place.list * kSlots + place.column * kVector + v] = sums.at(v);
  }
  __syncthreads();
  // Bytes of others may arrive before this thread does: until then the phase stays open, with less than no bytes to come.
  if (threadIdx.x == kThreads - 1) arrivals::arrive_with(arrived, kCluster * kGroups * (int)sizeof(Sums));
  Sums* mine = parts + team.member * kGroups;
  if (kGroup == 1) {
    const int c = (int)threadIdx.x;
    if (c >= kUnitChannels) return;
    Sums total = list[c];
#pragma unroll 4
    for (int i = 1; i < kEntries; ++i) total.merge(list[i * kUnitChannels + c]);
#pragma unroll 1
    for (int member = 0; member < kCluster; ++member) write_to(member, mine + c, total, arrived);
    return;
  }
  const int lane = (int)threadIdx.x % 32;
  for (int group = (int)threadIdx.x / 32; group < kGroups; group += kWarps) {
    Sums total = some_of_group<kGroup>(list, group, lane);
    for (int i = lane + 32 * kSome; i < kEntries * kGroup; i += 32 * kSome)
      total.merge(some_of_group<kGroup>(list, group, i));
    total.merge_lanes();
    if (lane < kCluster) write_to(lane, mine + group, total, arrived);
  }
}

// The same of moments that are joined by groups: the block's list has those of each row.
template <int kGroup, class Sums>
__device__ inline void give_part(const Team& team, const Place& place, GroupSums<kGroup>& sums, int taken,
                                 Sums* list, Sums* parts, arrivals::Barrier* arrived) {
  typedef ::parts::Groups<kGroup> All;
  list_parts(place, sums, taken, list);
  __syncthreads();
  // Bytes of others may arrive before this thread does: until then the phase stays open, with less than no bytes to come.
  if (threadIdx.x == kThreads - 1)
    arrivals::arrive_with(arrived, kCluster * All::kOfUnit * (int)sizeof(Sums));
  Sums* mine = parts + team.member * All::kOfUnit;
  ::parts::merge_list<All::kOfUnit, kStride * All::kSets>(
      list, All::has, [&](int group, int lane, int lanes, const Sums& total) {
        for (int member = lane; member < kCluster; member += lanes)
          write_to(member, mine + group, total, arrived);
      });
}

// The unit's statistics out of the parts of all blocks, when they have arrived; every channel gets its group's.
template <int kGroup, class Sums>
__device__ inline void take_parts(const Sums* parts, Sums* totals, arrivals::Barrier* arrived) {
  const int c = (int)threadIdx.x;
  if (c >= kUnitChannels) return;
  arrivals::wait(arrived, 0);
  Sums all[kCluster];
#pragma unroll
  for (int member = 0; member < kCluster; ++member)
    all[member] = parts[member * (kUnitChannels / kGroup) + c / kGroup];
  totals[c].merge_all(all);
}
