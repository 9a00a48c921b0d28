// rows in registers: a unit of the kernel `rows` (device/rows.cuh) that fits into the registers of a thread block, or of a thread
// block cluster.
//
// A unit is kUnitChannels channels of one sample, in memory one run of vectors, each of one channel. A block has kPieces * kThreads
// neighbouring ones of it, and a thread kPieces of these, kThreads apart, which it reads all at once and keeps in its registers
// from the first sweep to the last. Moments are merged lane by lane, warp by warp and block by block, in an order that the shapes
// fix. A block of a cluster writes its part into the shared memory of all its blocks, and the first warp of each merges
// the parts of all when they have arrived: nothing is handed over in memory, nothing has to be zero before the launch, and
// nobody reads or writes the memory of a block that has ended.
//
// Before this stand the constants, Arguments, Inputs (a thread's vectors), UnitValues and Shared; behind it the program of each sweep,
// the finalise steps, and run_unit, which calls what is here in the plan's order; last the kernel, device/rows_registers.cu.

constexpr int kBlockVectors = kPieces * kThreads;
constexpr int kChannelVectors = kPositions / kVector;
constexpr int kUnitVectors = kUnitChannels * kChannelVectors;
// Whether every thread has as many vectors.
constexpr bool kFull = kUnitVectors == kCluster * kBlockVectors;

// A unit in this block.
struct Unit {
  int n;
  int first_channel;
  UnitValues* values;
};

__device__ inline Unit unit_at(int number, UnitValues* values) {
  constexpr int kInSample = kChannels / kUnitChannels;
  const int n = number / kInSample;
  return {n, (number - n * kInSample) * kUnitChannels, values};
}

// A thread's share of it.
struct Share {
  int vector;       // the first, by its number in the unit
  long long begin;  // where that lies in the tensors

  __device__ bool has(int piece) const { return kFull || vector + piece * kThreads < kUnitVectors; }
  __device__ int channel(int piece) const { return (vector + piece * kThreads) / kChannelVectors; }
  __device__ long long offset(int piece) const { return begin + piece * (kThreads * kVector); }
};

__device__ inline Share share_of(const Team& team) {
  const int vector = team.member * kBlockVectors + (int)threadIdx.x;
  return {vector, (team.number * (long long)kUnitVectors + vector) * kVector};
}

// What a sweep takes for each channel of the unit, by the first warp: what the tensors give, asked for early and not waited for, and with the
// statistics all of it.
template <class Sweep>
struct OwnChannels {
  static constexpr int kEach = (kUnitChannels + 31) / 32;
  typename Sweep::Channel of[kEach];

  __device__ static bool has(int i) { return Warp::thread() + 32 * i < kUnitChannels; }
  __device__ void parameters(const Arguments& a, const Unit& unit) {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (has(i)) Sweep::parameters(a, unit, Warp::thread() + 32 * i, of[i]);
  }
  __device__ void prepare(const Arguments& a, const Unit& unit, typename Sweep::Channel* channels) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (!has(i)) continue;
      Sweep::statistics(a, unit, Warp::thread() + 32 * i, of[i]);
      channels[Warp::thread() + 32 * i] = of[i];
    }
  }
};

// The moments of what a thread has.
template <class Sweep>
__device__ inline Moments<real> first_sweep(const Share& share, const Inputs& inputs) {
  Running<Moments<real>> sums;
  sums.clear();
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    if (!share.has(piece)) break;
    real results[Sweep::kResults][kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) Sweep::program(typename Sweep::Channel(), inputs, piece, i, results);
    sums.add(results[0], kAllElements, piece == 0);
  }
  return sums.settled();
}

// Those of all lanes, of which some may have no elements.
__device__ inline Moments<real> merged(const Moments<real>& part) {
  const Moments<real> total = warp::merge(part);
  return total.count == 0 ? Moments<real>{0, 0, 0} : total;
}

// Those of what the threads of a warp have.
__device__ inline Moments<real> of_lanes(Moments<real> moments) {
  if constexpr (kFull) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const real first = __shfl_xor_sync(0xffffffffu, moments.first, distance);
      const real second = __shfl_xor_sync(0xffffffffu, moments.second, distance);
      const real away = first - moments.first;
      moments.second += second + away * away * (moments.count * (real)0.5);
      moments.first = (moments.first + first) * (real)0.5;
      moments.count += moments.count;
    }
    return moments;
  } else {
    return merged(moments);
  }
}
// Those of several parts, of which each of the first lanes has one, in all of them.
template <int kParts>
__device__ inline Moments<real> of_parts(const Moments<real>* parts) {
  const bool has = (int)threadIdx.x % 32 < kParts;
  Moments<real> part = {0, 0, 0};
  if (has) part = parts[(int)threadIdx.x % 32];
  if constexpr (kFull) {
    const real mean = warp::sum(part.first) * ((real)1 / kParts), distance = part.first - mean;
    const real second = warp::sum(part.second + distance * distance * part.count);
    return {mean, second, parts[0].count * kParts};
  } else {
    return merged(part);
  }
}

// Parts of all blocks of the cluster arrive at the barrier; nobody writes into the memory of a block before all have come here.
__device__ inline void begin_parts(Shared& shared) {
  if (kCluster == 1) return;
  if (threadIdx.x == 0) {
    arrivals::begin(&shared.arrived, 1);
    arrivals::publish();
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Lane 0's words into the shared memory of each block of the cluster, where `mine` lies in this one's, a block a lane.
__device__ inline void give_to_all(const Moments<real>& part, Moments<real>* mine,
                                   arrivals::Barrier* arrived) {
  const int member = (int)threadIdx.x % 32;
  if (member == 0) arrivals::arrive_with(arrived, kCluster * (int)sizeof(Moments<real>));
  if (member >= kCluster) return;
  const unsigned int* words = reinterpret_cast<const unsigned int*>(&part);
  unsigned int place, barrier;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(barrier)
      : "r"(arrivals::address_of(arrived)), "r"(member));
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(place)
      : "r"((unsigned int)__cvta_generic_to_shared(mine)), "r"(member));
#pragma unroll
  for (int i = 0; i < (int)(sizeof(Moments<real>) / 4); ++i)
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(place + 4 * i),
        "r"(words[i]), "r"(barrier)
        : "memory");
}

// The unit's moments out of its threads', in all lanes of the first warp.
__device__ inline Moments<real> of_unit(const Team& team, const Moments<real>& own, Shared& shared) {
  const Moments<real> of_warp = of_lanes(own);
  if (threadIdx.x % 32 == 0) shared.list[threadIdx.x / 32] = of_warp;
  __syncthreads();
  if (kCluster > 1) cluster::wait();
  Moments<real> total = {0, 0, 0};
  if (!is_first_warp()) return total;
  total = of_parts<kWarps>(shared.list);
  if (kCluster > 1) {
    give_to_all(total, &shared.parts[team.member], &shared.arrived);
    arrivals::wait(&shared.arrived, 0);
    if constexpr (kCluster == 2) {
      total = shared.parts[0];
      total.merge(shared.parts[1]);
    } else {
      total = of_parts<kCluster>(shared.parts);
    }
  }
  return total;
}

// The last sweep, vector by vector. Where its sigmoids are taken by pairs, and these do not hold for a thread, it reads its vectors
// again, and stores each element's own result in the place of what it has stored.
template <class Sweep>
__device__ inline void last_sweep(const Arguments& a, const Share& share, Inputs& inputs,
                                  const typename Sweep::Channel* channels) {
  float products = 0;
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    if (share.has(piece)) {
      keep_as_read(inputs, piece);
      const typename Sweep::Channel channel = channels[share.channel(piece)];
      real results[Sweep::kResults][kVector];
      products += Sweep::program_of_vector(channel, inputs, piece, results);
      Sweep::store(a, share.offset(piece), results);
    }
    __syncwarp();  // else the compiler works on all vectors at once, and the first is stored late
  }
  if (Sweep::hold(products)) return;
#pragma unroll 1
  for (int piece = 0; piece < kPieces && share.has(piece); ++piece) {
    Inputs again;
    read_piece(a, share.offset(piece), again, 0);
    const typename Sweep::Channel channel = channels[share.channel(piece)];
    real results[Sweep::kResults][kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) Sweep::program(channel, again, 0, i, results);
    Sweep::store(a, share.offset(piece), results);
  }
}
