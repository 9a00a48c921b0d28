"""Model with its blocks as CUDA kernels: `ModelNew`, in place of `Model`.

Written by `python -m fuseblock.export`; it needs PyTorch alone. Compiled at the first call on a GPU.
Block: l2_normalize(c) | mul(9.797958971132712) | mul(gamma) | silu, on f32[1,96,4,240,416], for sm_90a.
Forward, 1 kernel, columns: 3120 blocks of 256 threads, 54 kB of shared memory each, tiles of 128 positions
      with all 96 channels, 3120 in all, 8 threads a position, each with 4 positions and 4 channels in each of
      3 steps, what is read stays in shared memory for later sweeps
  1  sweep over [n,96,d,h,w]: load x; part2 = x * x -> sum of part2 over c
      -> output saved.l2_normalize.square_sum
  2  sweep over [n,96,d,h,w]: load x;
      l2_normalize = x / (select(sqrt(sum(part2)) < 1e-12, 1e-12, sqrt(sum(part2))));
      mul = l2_normalize * 9.797958971132712; mul2 = mul * gamma; silu = mul2 * sigmoid(mul2) -> output silu
Backward, 1 kernel, columns: 260 blocks of 256 threads, 58 kB of shared memory each, tiles of 64 positions
      with all 96 channels, 6240 in all, 16 threads a position, each with 4 positions and 2 channels in each
      of 3 steps, what is read stays in shared memory for later sweeps, 1 sum of each channel kept in shared
      memory over 24 tiles, then merged by bundles of 17 blocks
  1  sweep over [n,96,d,h,w]: load x, d_silu;
      part4 = select(sqrt(saved.l2_normalize.square_sum) < 1e-12, 1e-12, sqrt(saved.l2_normalize.square_sum));
      l2_normalize = x / part4; mul, mul2 as before;
      d_mul2 = d_silu * (sigmoid(mul2) + mul2 * (sigmoid(mul2) * (1 - sigmoid(mul2))));
      d_mul = d_mul2 * gamma; value2 = d_mul2 * mul; d_l2_normalize = d_mul * 9.797958971132712;
      value5 = d_l2_normalize * l2_normalize -> sum of value2 for each n,c; sum of value5 over c
  2  finalise: -> output d_gamma
  3  sweep over [n,96,d,h,w]: load x, d_silu; part4 to d_l2_normalize as before;
      value3 = sqrt(saved.l2_normalize.square_sum); value4 = select(value3 < 1e-12, 1e-12, value3);
      d_x = d_l2_normalize / value4 - select(value3 < 1e-12, 0, x / value3 * (sum4 / value4)) -> output d_x
The kernels take any extents along n, d, h, w with d * h * w % 4 == 0 and n * d * h * w < 1000000000.

Notation: n, c, d, h, w are samples, channels and positions; mean(v), squares(v), rstd(v) the mean of v over
what a norm takes together, the sum of squared deviations from it, 1 / sqrt(variance + eps); d_v is the
gradient by v. A sweep is one pass over all elements, a finalise step works on statistics.
By PyTorch's operators: the CPU, other dtypes, autocast, torch.compile, GPUs before compute capability 8.0 or
with less shared memory. Other layouts are copied first.
"""

import ctypes
import functools
import hashlib
import inspect
import math
import struct

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_inputs():
    return [torch.rand(1, 96, 4, 240, 416)]


def get_init_inputs():
    return [96]


# Device code that all kernels have in common; each is compiled with its own constants in front.
PRIMITIVES = r"""
// Element types of tensors, and the arithmetic's type. Before this stands `typedef float real;`, or double where a
// tensor of the block is f64. Nothing is included: 16-bit types are bits, converted by PTX.

__device__ inline real to_real(float x) { return x; }

// An element for the arithmetic of statistics.
__device__ inline double number(double x) { return x; }
__device__ inline void assign(float& to, real x) { to = (float)x; }

// A tensor at the border of a kernel: elements `n`, `c`, `d`, `h`, `w` apart along the axes, 0 where it does not vary.
template <class Element>
struct Tensor {
  Element* data;
  long long n, c, d, h, w;

  __device__ long long offset(long long at_n, long long at_c) const { return at_n * n + at_c * c; }
  __device__ Element& at(long long at_n, long long at_c) const { return data[offset(at_n, at_c)]; }
};

// kVector neighbouring elements as they lie in memory, moved in pieces of up to 16 bytes.
template <class Element>
struct alignas(16) Vector {
  static constexpr int kBytes = 16;
  static constexpr int kWords = kBytes / 4;

  unsigned int words[kWords];
};
__device__ inline real element_at(const Vector<float>& vector, int i) {
  return __uint_as_float(vector.words[i]);
}
__device__ inline void pack(Vector<float>& to, const real (&values)[kVector]) {
#pragma unroll
  for (int i = 0; i < kVector; ++i) to.words[i] = __float_as_uint((float)values[i]);
}

template <class Element>
__device__ inline Vector<Element> load_vector(const Vector<Element>* from) {
  Vector<Element> to;
  const uint4 piece = reinterpret_cast<const uint4*>(from)[0];
  to.words[0] = piece.x;
  to.words[1] = piece.y;
  to.words[2] = piece.z;
  to.words[3] = piece.w;

  return to;
}

template <class Element>
__device__ inline void store_vector(Element* to, const real (&values)[kVector]) {
  Vector<Element> packed;
  pack(packed, values);
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(reinterpret_cast<char*>(to)),
               "r"(packed.words[0]), "r"(packed.words[1]), "r"(packed.words[2]), "r"(packed.words[3])
               : "memory");
}

// The primitives of formulas that are not operators of the language. Those without a name of their own in the
// compiler's library are spelled out; all are within a few ulp over the whole range, with exact limits.

__device__ inline float square_root(float x) { return sqrtf(x); }

// 1 / (1 + exp(-x)). The quotient is rcp.approx, within 1 ulp. Where results are rounded to 16 bits, exp is ex2.approx of a
// rounded product, whose error grows to 1e-5 of the value at the ends of the range, and what is below 1e-38 is 0.
__device__ inline float sigmoid(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(1.0f + expf(-x)));
  return y;
}

// The quotient of two counts, for weights of means.
__device__ inline float share(float part, float whole) { return __fdividef(part, whole); }

// Statistics of many elements, taken in parts and merged. Each kind is a struct of numbers with
//   clear()            the statistic of nothing
//   add(values, taken) takes those of kElements elements whose bit of `taken` is set
//   merge(other)       joins two parts; the order of the calls is part of the result
//   merge_all(parts)   joins several, in a fixed order
//   merge_lanes()      joins the parts of a warp's lanes, which all get the result
// Moments also add(values, taken, weight), for many statistics that take equally many elements.
// A variance is never a difference of two large numbers: moments are taken around a value near to the mean, here that of a
// vector, and merged by Chan's formula.

namespace warp {

// Over the lanes that have parts of one statistic, the same in each of them: all of a warp (kFirstDistance is 1 and
// kEndDistance 32), or those that these constants say. Neighbours first, so that the order is fixed.
template <class Number>
__device__ inline Number sum(Number x) {
#pragma unroll
  for (int distance = kFirstDistance; distance < kEndDistance; distance *= 2)
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  return x;
}
}  // namespace warp

constexpr int kChains = kElements < 4 ? 1 : 2;

template <class Number>
__device__ inline Number sum_of(const Number (&chains)[kChains]) {
  return kChains == 1 ? chains[0] : chains[0] + chains[kChains - 1];
}

template <class Number>
struct Sum {
  Number first;

  __device__ void clear() { first = 0; }
  __device__ void add(const Number (&values)[kElements], unsigned int taken) {
    Number chains[kChains] = {};
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      if (taken >> i & 1) chains[i % kChains] += values[i];
    first += sum_of(chains);
  }
  template <class Other>
  __device__ void merge(const Sum<Other>& other) {
    first += other.first;
  }
  template <int kParts>
  __device__ void merge_all(const Sum (&parts)[kParts]) {
    *this = parts[0];
#pragma unroll
    for (int i = 1; i < kParts; ++i) first += parts[i].first;
  }
  __device__ void merge_lanes() { first = warp::sum(first); }
};

// How elements that come count beside those that are there.
template <class Number>
struct Weight {
  Number whole;   // elements with those that come
  Number each;    // one over those that come
  Number part;    // their share of all
  Number spread;  // what the square of the distance of the two means counts

  __device__ void come(unsigned int taken) {
    const Number before = whole;
    const Number coming = __popc(taken);
    if (taken == 0) return;
    whole = before + coming;
    each = share((Number)1, coming);
    part = share(coming, whole);
    spread = before * part;
  }
};

constexpr unsigned int kAllElements = (1u << kElements % 32) - 1;

namespace warp {

// The statistics of all lanes, in each of them.
template <class Sums>
__device__ inline Sums merge(Sums sums) {
  sums.merge_lanes();
  return sums;
}
}  // namespace warp

// Copies from memory to shared memory that go on beside the arithmetic (cp.async). A thread waits for its own copies
// alone, and reads nothing but what it has copied itself, so that no barrier is needed.

namespace thread {

// Begins to copy one vector of four bytes and more to an address in shared memory.
template <class Copied>
__device__ inline void copy_begin_at(unsigned int shared, const Copied* memory) {
  const char* from = reinterpret_cast<const char*>(memory);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}

// The same, by a pointer. Vectors of less than four bytes are copied at once.
template <class Copied>
__device__ inline void copy_begin(Copied* shared, const Copied* memory) {
  copy_begin_at((unsigned int)__cvta_generic_to_shared(shared), memory);
}

// Ends a group of copies.
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kPending>
__device__ inline void copy_wait_constant() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Waits until at most `pending` of the groups that were committed last are under way, or fewer.
__device__ inline void copy_wait(int pending) {
  if (pending >= 8)
    copy_wait_constant<8>();
  else if (pending >= 4)
    copy_wait_constant<4>();
  else if (pending >= 2)
    copy_wait_constant<2>();
  else
    copy_wait_constant<0>();
}
}  // namespace thread
"""

COLUMNS_TILE = r"""
// Tiles of the kernel `columns`: which positions and channels a thread has. Before this stand the constants and Arguments.

constexpr int kSlots = kTeam * kLanes;
constexpr int kPlaces = kThreads / kSlots;
constexpr int kTile = kPlaces * kPositions;
constexpr int kPatch = kSlots * kElements;  // channels of one step
constexpr int kSteps = (kChannels + kPatch - 1) / kPatch;
constexpr int kLaneStep = 32 / kLanes;  // from one of a position's lanes to the next
constexpr int kNowhere = 0, kInRegisters = 1, kInShared = 2;
constexpr int kUnroll = kResidency == kInRegisters || (kSums > 0 && !kSumsInShared) ? kSteps : 1;

// This thread among those of its positions (`slot`), and its positions among those of the tile.
struct Place {
  int slot, group;
};

__device__ inline Place place_of_thread() {
  const int lane = (int)threadIdx.x % 32;
  const int warp = (int)threadIdx.x / 32;
  const int in_team = warp % kTeam * kLanes;
  const int first = warp / kTeam * (32 / kLanes);
  return {in_team + lane / kLaneStep, first + lane % kLaneStep};
}

// The thread that has that place.
__device__ inline int thread_of_place(const Place& place) {
  const int in_warp = place.group % (32 / kLanes);
  const int lane = place.slot % kLanes * kLaneStep + in_warp;
  return (place.group / (32 / kLanes) * kTeam + place.slot / kLanes) * 32 + lane;
}

__device__ inline int channel_of(const Place& place, int step, int e) {
  return (step * kElements + e) * kSlots + place.slot;
}

__device__ inline bool has_channel(int channel) { return kChannels % kPatch == 0 || channel < kChannels; }

// The positions of a thread. Where vectors lie along channels, positions of all samples are numbered through by `row`, and
// a tile may have some of several samples; else, and with kBySample, a tile has positions of one sample. Where vectors lie
// along positions, a thread's are one behind the other, and all of them inside or none.
struct Sites {
  Count row[kPositions];
  Count n[kPositions];
  Count position[kPositions];
  bool inside[kPositions];
};

__device__ inline Sites sites_of(const Arguments& a, const Place& place, Count tile) {
  Sites sites;
  const Count positions = (Count)a.positions;
  const Count sample = tile / (Count)a.sample_tiles;
  const Count first = (tile - sample * (Count)a.sample_tiles) * kTile;
#pragma unroll
  for (int p = 0; p < kPositions; ++p) {
    const Count group = first + (place.group * kPositions);
    sites.n[p] = sample;
    sites.position[p] = group + p;
    sites.inside[p] = group < positions;
    sites.row[p] = sample * positions + sites.position[p];
  }
  return sites;
}
"""

COLUMNS = r"""
// columns: sweeps of a block with reductions over channels, tile by tile.
//
// A tile is kTile positions with all their channels; one thread block does all sweeps of the kernel on it. kSlots threads
// share a position: each has kPositions positions and, in every step, kElements channels of them. Vectors lie along
// positions, or along channels where kAlongChannels. Statistics of a position are merged lane by lane, then warp by warp,
// in an order that depends on the shapes alone.
// What the sweeps read stays between them where kResidency says: in registers, in the thread's own columns of shared
// memory, or nowhere, and is read again. With kAhead the last sweep begins to copy the block's next tile into the columns
// that it has done with.
//
// Before this stand the constants, Arguments, device/columns_tile.cuh, Bases (where a thread's elements begin), Inputs
// (vectors of one step) and Gathered (sums over positions, device/columns_sums.cuh, or nothing); behind it the program of
// each sweep and `run_tile`, which calls what is here in the plan's order; last the kernel, device/columns.cu or
// device/columns_gathering.cu.

// Of a sweep that takes no statistics.
struct NoSums {
  __device__ void clear() {}
  template <class Results>
  __device__ void add(const Results& results, unsigned int taken) {}
};

// What a thread keeps in registers.
struct Kept {
  Inputs steps[kResidency == kInRegisters ? kSteps : 1];
};

// The tile that the block does next, where there is one.
struct Next {
  bool any;
  Sites sites;
  Bases bases;
};

// Begins to bring everything that is kept.
__device__ inline void begin_tile(const Arguments& a, const Place& place, const Sites& sites,
                                  const Bases& bases, Kept& kept, char* column) {
  if (kResidency == kNowhere) return;
#pragma unroll kUnroll
  for (int step = 0; step < kSteps; ++step) {
    if (kResidency == kInRegisters) {
      kept.steps[step] = read_inputs(a, place, sites, bases, step);
    } else {
      copy_inputs(a, place, sites, bases, step, column + step * kStepBytes);
      thread::copy_commit();
    }
  }
}

// One sweep over the tile. Leaves this thread's statistics of its positions in `sums`.
template <class Sweep, bool kFirst, bool kLast>
__device__ inline void sweep(const Arguments& a, const Place& place, const Sites& sites, const Bases& bases,
                             const typename Sweep::Positions (&positions)[kPositions], const Kept& kept,
                             char* column, typename Sweep::Sums (&sums)[kPositions], const Next& next,
                             char* memory) {
#pragma unroll
  for (int p = 0; p < kPositions; ++p) sums[p].clear();
  Weight<real> weight = {};
#pragma unroll kUnroll
  for (int step = 0; step < kSteps; ++step) {
    Inputs inputs;
    if (kResidency == kInRegisters) {
      inputs = kept.steps[step];
    } else if (kResidency == kInShared) {
      // Copies of the next tile are under way where this sweep is also the last.
      if (kFirst) thread::copy_wait(kAhead && kLast && next.any ? kSteps - 1 : kSteps - 1 - step);
      inputs = column_inputs(column + step * kStepBytes);
      if (kAhead && kLast && next.any) {
        copy_inputs(a, place, next.sites, next.bases, step, column + step * kStepBytes);
        thread::copy_commit();
      }
    } else {
      inputs = read_inputs(a, place, sites, bases, step);
    }
    const typename Sweep::Channels channels = Sweep::channels(a, place, sites, step);
    unsigned int taken = kAllElements;
    weight.come(taken);
    typename Sweep::Results results[kPositions][kElements];
#pragma unroll
    for (int p = 0; p < kPositions; ++p) {
#pragma unroll
      for (int e = 0; e < kElements; ++e)
        results[p][e] = Sweep::program(positions[p], channels, inputs, p, e);
      sums[p].add(results[p], taken);
    }
    if constexpr (Sweep::kSums > 0) Sweep::gather(sites, step, results, memory);
    Sweep::store(a, place, sites, bases, step, results);
  }
}

// Statistics of the thread's positions out of those of all their slots. `list` has a place for each warp of a team and
// position of the tile, `totals` one for each position.
template <class Sums>
__device__ inline void merge_tile(const Place& place, Sums (&sums)[kPositions], char* list_bytes,
                                  char* totals_bytes) {
  Sums* list = reinterpret_cast<Sums*>(list_bytes);
  Sums* totals = reinterpret_cast<Sums*>(totals_bytes);
  if (kLanes > 1) {
#pragma unroll
    for (int p = 0; p < kPositions; ++p) sums[p].merge_lanes();
  }
  const int mine = place.group * kPositions;
  if (place.slot % kLanes == 0) {
#pragma unroll
    for (int p = 0; p < kPositions; ++p) list[place.slot / kLanes * kTile + mine + p] = sums[p];
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < kTile; i += kThreads) {
    Sums parts[kTeam];
#pragma unroll
    for (int member = 0; member < kTeam; ++member) parts[member] = list[member * kTile + i];
    totals[i].merge_all(parts);
  }
  __syncthreads();
#pragma unroll
  for (int p = 0; p < kPositions; ++p) sums[p] = totals[mine + p];
}
"""

COLUMNS_KERNEL = r"""
// The kernel `columns`: every block takes its tiles in turn; see device/columns.cuh. Shared memory holds the lists of
// statistics, then the threads' columns.

__global__ void __launch_bounds__(kThreads, kBlocks) columns(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  const Place place = place_of_thread();
  for (Count tile = blockIdx.x; tile < (Count)a.tiles; tile += gridDim.x)
    run_tile(a, place, tile, -1, memory);
}
"""

TEAM = r"""
// Thread blocks that work on one unit together: where a block stands among them, and how they hand words to each other.
// All blocks of a team run at the same time. A small team is a cluster (kCluster blocks, where that is above 1): its blocks
// read each other's shared memory, behind the cluster's barrier. Other teams have lists in memory.
//
// A word in a team's list stands beside a tag, the number of the round, and both are written and read at once (8 bytes): who
// finds the tag has the word, without a barrier or a fence. Lists are zero at the start of the launch, so that no tag of
// another launch is taken for one of this.

namespace grid {

// True in the last of `count` blocks that comes here; it sees what all others have written before. `finished` is zero at
// the start of the launch.
__device__ inline bool is_last_of(unsigned int* finished, unsigned int count) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(finished, 1u) == count - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}
}  // namespace grid
"""

COLUMNS_SUMS = r"""
// Gathered sums of the kernel `columns`: kSums sums over positions for each channel, taken along by its sweeps.
//
// A thread has the same channels in every tile, and keeps their sums over the tiles of its block, in registers or in its
// own columns of shared memory. At the end of a span (all tiles, or with kBySample those of one sample) they are merged:
// pairwise over the threads of a block that have the same channels; over a bundle of neighbouring blocks by the last of
// them that comes; over bundles by the last of these. The order is that of the blocks' numbers, whoever does it.
// A block's tiles follow each other, so that it has places `span + block` of the list in memory for itself, and a bundle
// `span + bundle`: a place has kSums numbers for each of kChannels channels.
//
// Before this stand device/columns_tile.cuh, device/team.cuh, `put_total`, which takes the sum over a whole span, and
// `finalise_all`, which works out what is made of the totals.

constexpr int kThreadChannels = kSteps * kElements;
constexpr int kSumWords = kThreadChannels * kSums;  // numbers of a thread

// The thread's column of shared memory: its numbers are kThreads apart.
__device__ inline real* sums_column(char* memory) {
  return reinterpret_cast<real*>(memory + kSumsOffset) + threadIdx.x;
}

__device__ inline void clear_sums(real* column) {
#pragma unroll
  for (int i = 0; i < kSumWords; ++i) {
    column[i * kThreads] = 0;
  }
}

// Adds what a sweep has of one step.
template <class Sweep>
__device__ inline void gather_step(const Sites& sites, int step,
                                   const typename Sweep::Results (&results)[kPositions][kElements],
                                   real* column) {
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    real sums[Sweep::kSums];
#pragma unroll
    for (int i = 0; i < Sweep::kSums; ++i) sums[i] = 0;
#pragma unroll
    for (int p = 0; p < kPositions; ++p)
      if (sites.inside[p]) Sweep::add_sums(results[p][e], sums);
#pragma unroll
    for (int i = 0; i < Sweep::kSums; ++i) {
      const int word = (step * kElements + e) * kSums + Sweep::kFirstSum + i;
      column[word * kThreads] += sums[i];
    }
  }
}

// The tiles of this block, one behind the other, and how they lie in spans.
struct Spans {
  Count span_tiles;   // of a span
  Count block_tiles;  // of a block, but for the last

  // The blocks, or bundles of them, that have tiles of a span; `share` is how many each has.
  __device__ Count first(Count span, Count share) const { return span * span_tiles / share; }
  __device__ Count last(Count span, Count share) const { return ((span + 1) * span_tiles - 1) / share; }
};

__device__ inline Spans spans_of(const Arguments& a) {
  return {(Count)(a.sample_tiles), (Count)a.block_tiles};
}

__device__ inline long long sums_place(Count span, int member, int number, int channel) {
  return ((long long)(span + member) * kSums + number) * kChannels + channel;
}

// Merges the sums of a span over the threads of this block, and clears them.
__device__ inline void end_span(const Arguments& a, const Place& place, const Spans& spans, Count span,
                                char* memory) {
  real* column = sums_column(memory);
#pragma unroll
  for (int half = kPlaces / 2; half > 0; half /= 2) {
    __syncthreads();
    if (place.group >= half) continue;
    const real* other = column + (thread_of_place({place.slot, place.group + half}) - (int)threadIdx.x);
#pragma unroll 4
    for (int i = 0; i < kSumWords; ++i) column[i * kThreads] += other[i * kThreads];
  }
  if (place.group == 0) {
    const bool whole = spans.first(span, spans.block_tiles) == spans.last(span, spans.block_tiles);
#pragma unroll 1
    for (int i = 0; i < kThreadChannels; ++i) {
      const int channel = channel_of(place, i / kElements, i % kElements);
      if (channel >= kChannels) continue;
#pragma unroll
      for (int number = 0; number < kSums; ++number) {
        const real sum = column[(i * kSums + number) * kThreads];
        if (whole)
          put_total(a, span, channel, number, sum);
        else
          a.block_sums[sums_place(span, (int)blockIdx.x, number, channel)] = sum;
      }
    }
  }
  __syncthreads();
  clear_sums(column);
}

// The sum of a channel over members of the list that have a share of the span.
template <class Number>
__device__ inline double merge_members(const Number* list, Count span, int first, int last, int number,
                                       int channel) {
  double total = 0;
#pragma unroll 8
  for (int member = first; member <= last; ++member) total += list[sums_place(span, member, number, channel)];
  return total;
}

// Behind the block's last tile: merges over blocks, and what is made of the totals.
__device__ inline void end_sums(const Arguments& a, const Spans& spans) {
  const int blocks = (int)gridDim.x;
  const int size = (int)a.bundle;  // blocks of a bundle, but for the last
  const int bundle = (int)blockIdx.x / size;
  const int first = bundle * size;
  const int last = first + size < blocks ? first + size - 1 : blocks - 1;
  if (!grid::is_last_of(a.finished + 1 + bundle, last - first + 1)) return;

  const Count tiles = (Count)a.tiles;
  const Count end_tile =
      (Count)(last + 1) * spans.block_tiles < tiles ? (last + 1) * spans.block_tiles : tiles;
  const Count last_span = (end_tile - 1) / spans.span_tiles;
  for (Count span = first * spans.block_tiles / spans.span_tiles; span <= last_span; ++span) {
    const int from = (int)spans.first(span, spans.block_tiles), to = (int)spans.last(span, spans.block_tiles);
    if (from == to) continue;
    const int own_from = from < first ? first : from, own_to = to > last ? last : to;
#pragma unroll
    for (int number = 0; number < kSums; ++number)
      for (int channel = (int)threadIdx.x; channel < kChannels; channel += kThreads) {
        const double total = merge_members(a.block_sums, span, own_from, own_to, number, channel);
        if (own_from == from && own_to == to)
          put_total(a, span, channel, number, total);
        else
          a.bundle_sums[sums_place(span, bundle, number, channel)] = total;
      }
  }
  const int bundles = (blocks + size - 1) / size;
  if (!grid::is_last_of(a.finished, bundles)) return;

  const Count share = size * spans.block_tiles;
  const Count span_count = tiles / spans.span_tiles;
  for (Count span = 0; span < span_count; ++span) {
    const int from = (int)spans.first(span, share), to = (int)spans.last(span, share);
    if (from == to) continue;
#pragma unroll
    for (int number = 0; number < kSums; ++number)
      for (int channel = (int)threadIdx.x; channel < kChannels; channel += kThreads)
        put_total(a, span, channel, number, merge_members(a.bundle_sums, span, from, to, number, channel));
  }
  __syncthreads();
  finalise_all(a);
}
"""

COLUMNS_GATHERING_KERNEL = r"""
// The kernel `columns` where sums are gathered (device/columns_sums.cuh): a block's tiles are neighbours. Shared memory
// holds the lists of statistics, then the threads' columns.

__global__ void __launch_bounds__(kThreads, kBlocks) columns(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  const Place place = place_of_thread();
  const Spans spans = spans_of(a);
  clear_sums(sums_column(memory));
  const Count first = (Count)blockIdx.x * spans.block_tiles;
  const Count end = first + spans.block_tiles < (Count)a.tiles ? first + spans.block_tiles : (Count)a.tiles;
  const Sites sites = sites_of(a, place, first);
  Kept nothing;
  begin_tile(a, place, sites, bases_of(a, sites), nothing, memory + kListBytes + kTotalsBytes);
  Count span = first / spans.span_tiles;
  Count span_end = (span + 1) * spans.span_tiles;
  for (Count tile = first; tile < end; ++tile) {
    run_tile(a, place, tile, tile + 1 < end ? tile + 1 : -1, memory);
    if (tile + 1 != span_end && tile + 1 != end) continue;
    end_span(a, place, spans, span, memory);
    ++span;
    span_end += spans.span_tiles;
  }
  end_sums(a, spans);
}
"""

FORWARD_COLUMNS_1 = r"""
typedef float real;
constexpr int kThreads = 256, kBlocks = 2, kVector = 4, kPositions = 4, kElements = 4, kLanes = 1, kTeam = 8,
              kChannels = 96, kFirstDistance = 32 / kLanes, kEndDistance = 32, kResidency = 2,
              kStepBytes = 16384, kListBytes = 4096, kTotalsBytes = 512, kSums = 0, kSumsInShared = 0,
              kAhead = 0;
typedef int Count;
"""

FORWARD_COLUMNS_2 = r"""
// Sweep 0: what its sinks take of an element, and its statistics.
struct Results0 {
  real r1;
};
struct Sums0 {
  Sum<real> s3;
  __device__ void clear() { s3.clear(); }
  __device__ void add(const Results0 (&results)[kElements], unsigned int taken) {
    real values[kElements];
#pragma unroll
    for (int e = 0; e < kElements; ++e) values[e] = results[e].r1;
    s3.add(values, taken);
  }
  __device__ void merge_lanes() { s3.merge_lanes(); }
  __device__ void merge_all(const Sums0 (&parts)[kTeam]) {
    Sum<real> own[kTeam];
#pragma unroll
    for (int i = 0; i < kTeam; ++i) own[i] = parts[i].s3;
    s3.merge_all(own);
  }
};
// Sweep 1: what its sinks take of an element, and its statistics.
struct Results1 {
  real r12;
};

// What a launch hands over.
struct Arguments {
  Tensor<float> gamma, silu, saved_l2_normalize_square_sum, x;
  long long tiles, sample_tiles, positions;
};
"""

FORWARD_COLUMNS_3 = r"""
// Where the thread's elements begin in each tensor, and its positions in those without channels.
struct Bases {
  long long x, silu, at_saved_l2_normalize_square_sum[kPositions];
};
__device__ inline Bases bases_of(const Arguments& a, const Sites& sites) {
  Bases bases;
  bases.x = sites.n[0] * a.x.n + sites.position[0];
  bases.silu = sites.n[0] * a.silu.n + sites.position[0];
#pragma unroll
  for (int p = 0; p < kPositions; ++p)
    bases.at_saved_l2_normalize_square_sum[p] =
        sites.n[p] * a.saved_l2_normalize_square_sum.n + sites.position[p];
  return bases;
}

// What the sweeps read of one step.
struct Inputs {
  Vector<float> x[4];
};
__device__ inline Inputs read_inputs(const Arguments& a, const Place& place, const Sites& sites,
                                     const Bases& bases, int step) {
  Inputs inputs;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const int channel = channel_of(place, step, e);
    if (sites.inside[0] && has_channel(channel))
      inputs.x[e] = load_vector(reinterpret_cast<const Vector<float>*>(
          a.x.data + bases.x + (long long)channel * (Count)a.positions));
  }
  return inputs;
}
// The thread's column of a step begins at `column`.
__device__ inline void copy_inputs(const Arguments& a, const Place& place, const Sites& sites,
                                   const Bases& bases, int step, char* column) {
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const int channel = channel_of(place, step, e);
    if (sites.inside[0] && has_channel(channel))
      thread::copy_begin(reinterpret_cast<Vector<float>*>(column) + e * kThreads + threadIdx.x,
                         reinterpret_cast<const Vector<float>*>(a.x.data + bases.x +
                                                                (long long)channel * (Count)a.positions));
  }
}
__device__ inline Inputs column_inputs(const char* read_only) {
  char* column = const_cast<char*>(read_only);
  Inputs inputs;
#pragma unroll
  for (int v = 0; v < 4; ++v)
    inputs.x[v] = load_vector(reinterpret_cast<Vector<float>*>(column) + v * kThreads + threadIdx.x);
  return inputs;
}
"""

FORWARD_COLUMNS_4 = r"""
// What does not vary over channels.
struct PositionInputs {};
__device__ inline PositionInputs read_positions(const Arguments& a, const Sites& sites, const Bases& bases) {
  PositionInputs inputs;
  return inputs;
}
// Statistics of the thread's positions.
struct Totals {
  Sums0 sums0[kPositions];
};

// Sweep 0: load x
//   -> sum of part2 over c
struct Sweep0 {
  typedef Results0 Results;
  typedef Sums0 Sums;
  static constexpr int kFirstSum = 0, kSums = 0;
  // What is the same for all channels.
  struct Positions {
    int nothing;
  };
  static __device__ Positions positions(const PositionInputs& inputs, const Totals& totals, int p) {
    Positions result;
    return result;
  }
  struct Channels {
    int nothing;
  };
  static __device__ Channels channels(const Arguments& a, const Place& place, const Sites& sites, int step) {
    Channels channels;
    return channels;
  }
  static __device__ Results program(const Positions& position, const Channels& channels, const Inputs& inputs,
                                    int p, int e) {
    Results results;
    results.r1 = element_at(inputs.x[e], p) * element_at(inputs.x[e], p);
    return results;
  }
  static __device__ void store(const Arguments& a, const Place& place, const Sites& sites, const Bases& bases,
                               int step, const Results0 (&results)[kPositions][kElements]) {}
};
// Sweep 1: load x
//   -> output silu
struct Sweep1 {
  typedef Results1 Results;
  typedef NoSums Sums;
  static constexpr int kFirstSum = 0, kSums = 0;
  // What is the same for all channels.
  struct Positions {
    real q0;
  };
  static __device__ Positions positions(const PositionInputs& inputs, const Totals& totals, int p) {
    Positions result;
    const real t1 = square_root(totals.sums0[p].s3.first);
    result.q0 = t1 < 1e-12f ? 1e-12f : t1;
    return result;
  }
  struct Channels {
    real i1[kElements];
  };
  static __device__ Channels channels(const Arguments& a, const Place& place, const Sites& sites, int step) {
    Channels channels;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int channel = channel_of(place, step, e);
      channels.i1[e] = has_channel(channel) ? to_real(a.gamma.at(sites.n[0], channel)) : 0;
    }
    return channels;
  }
  static __device__ Results program(const Positions& position, const Channels& channels, const Inputs& inputs,
                                    int p, int e) {
    const real t7 = element_at(inputs.x[e], p) / position.q0 * 9.797959f * channels.i1[e];
    Results results;
    results.r12 = t7 * sigmoid(t7);
    return results;
  }
  static __device__ void store(const Arguments& a, const Place& place, const Sites& sites, const Bases& bases,
                               int step, const Results1 (&results)[kPositions][kElements]) {
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int channel = channel_of(place, step, e);
      if (sites.inside[0] && has_channel(channel)) {
        real values[kVector];
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[i] = results[i][e].r12;
        store_vector(a.silu.data + bases.silu + (long long)channel * (Count)a.positions, values);
      }
    }
  }
};
// Behind sweep 0, by the first thread of each position.
__device__ inline void end_0(const Arguments& a, const Place& place, const Sites& sites, const Bases& bases,
                             const Totals& totals) {
  if (place.slot != 0) return;
#pragma unroll
  for (int p = 0; p < kPositions; ++p) {
    if (!sites.inside[p]) continue;
    assign(a.saved_l2_normalize_square_sum.data[bases.at_saved_l2_normalize_square_sum[p]],
           totals.sums0[p].s3.first);
  }
}
// The plan's sweeps on one tile.
__device__ inline void run_tile(const Arguments& a, const Place& place, Count tile, Count next_tile,
                                char* memory) {
  const Sites sites = sites_of(a, place, tile);
  const Bases bases = bases_of(a, sites);
  char* column = memory + kListBytes + kTotalsBytes;
  Kept kept;
  begin_tile(a, place, sites, bases, kept, column);
  Next next = {next_tile >= 0};
  const PositionInputs inputs = read_positions(a, sites, bases);
  Totals totals;
  {
    Sweep0::Positions positions[kPositions];
#pragma unroll
    for (int p = 0; p < kPositions; ++p) positions[p] = Sweep0::positions(inputs, totals, p);
    sweep<Sweep0, true, false>(a, place, sites, bases, positions, kept, column, totals.sums0, next, memory);
    merge_tile(place, totals.sums0, memory, memory + kListBytes);
    end_0(a, place, sites, bases, totals);
  }
  {
    Sweep1::Positions positions[kPositions];
#pragma unroll
    for (int p = 0; p < kPositions; ++p) positions[p] = Sweep1::positions(inputs, totals, p);
    NoSums nothing[kPositions];
    sweep<Sweep1, false, true>(a, place, sites, bases, positions, kept, column, nothing, next, memory);
  }
}
"""

BACKWARD_COLUMNS_1 = r"""
typedef float real;
constexpr int kThreads = 256, kBlocks = 2, kVector = 4, kPositions = 4, kElements = 2, kLanes = 2, kTeam = 8,
              kChannels = 96, kFirstDistance = 32 / kLanes, kEndDistance = 32, kResidency = 2,
              kStepBytes = 16384, kListBytes = 2048, kTotalsBytes = 256, kSums = 1, kSumsInShared = 1,
              kSumsOffset = 51456, kAhead = 1;
typedef int Count;
"""

BACKWARD_COLUMNS_2 = r"""
// Sweep 0: what its sinks take of an element, and its statistics.
struct Results0 {
  real r19, r22;
};
struct Sums0 {
  Sum<real> s20;
  __device__ void clear() { s20.clear(); }
  __device__ void add(const Results0 (&results)[kElements], unsigned int taken) {
    real values[kElements];
#pragma unroll
    for (int e = 0; e < kElements; ++e) values[e] = results[e].r22;
    s20.add(values, taken);
  }
  __device__ void merge_lanes() { s20.merge_lanes(); }
  __device__ void merge_all(const Sums0 (&parts)[kTeam]) {
    Sum<real> own[kTeam];
#pragma unroll
    for (int i = 0; i < kTeam; ++i) own[i] = parts[i].s20;
    s20.merge_all(own);
  }
};
// Sweep 1: what its sinks take of an element, and its statistics.
struct Results1 {
  real r28;
};

// What a launch hands over.
struct Arguments {
  Tensor<float> gamma, d_x, x, d_silu, saved_l2_normalize_square_sum;
  Tensor<double> sum_value2, sum_sum;
  Tensor<float> d_gamma;
  long long tiles, sample_tiles, positions, block_tiles, bundle;
  real* block_sums;
  double* bundle_sums;
  unsigned int* finished;
  long long number1;  // 96 * n
  long long number2;  // n
};
"""

BACKWARD_COLUMNS_3 = r"""
// Where the thread's elements begin in each tensor, and its positions in those without channels.
struct Bases {
  long long x, d_silu, d_x, at_saved_l2_normalize_square_sum[kPositions];
};
__device__ inline Bases bases_of(const Arguments& a, const Sites& sites) {
  Bases bases;
  bases.x = sites.n[0] * a.x.n + sites.position[0];
  bases.d_silu = sites.n[0] * a.d_silu.n + sites.position[0];
  bases.d_x = sites.n[0] * a.d_x.n + sites.position[0];
#pragma unroll
  for (int p = 0; p < kPositions; ++p)
    bases.at_saved_l2_normalize_square_sum[p] =
        sites.n[p] * a.saved_l2_normalize_square_sum.n + sites.position[p];
  return bases;
}

// What the sweeps read of one step.
struct Inputs {
  Vector<float> x[2], d_silu[2];
};
__device__ inline Inputs read_inputs(const Arguments& a, const Place& place, const Sites& sites,
                                     const Bases& bases, int step) {
  Inputs inputs;
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const int channel = channel_of(place, step, e);
    if (sites.inside[0] && has_channel(channel))
      inputs.x[e] = load_vector(reinterpret_cast<const Vector<float>*>(
          a.x.data + bases.x + (long long)channel * (Count)a.positions));
  }
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const int channel = channel_of(place, step, e);
    if (sites.inside[0] && has_channel(channel))
      inputs.d_silu[e] = load_vector(reinterpret_cast<const Vector<float>*>(
          a.d_silu.data + bases.d_silu + (long long)channel * (Count)a.positions));
  }
  return inputs;
}
// The thread's column of a step begins at `column`.
__device__ inline void copy_inputs(const Arguments& a, const Place& place, const Sites& sites,
                                   const Bases& bases, int step, char* column) {
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const int channel = channel_of(place, step, e);
    if (sites.inside[0] && has_channel(channel))
      thread::copy_begin(reinterpret_cast<Vector<float>*>(column) + e * kThreads + threadIdx.x,
                         reinterpret_cast<const Vector<float>*>(a.x.data + bases.x +
                                                                (long long)channel * (Count)a.positions));
  }
#pragma unroll
  for (int e = 0; e < kElements; ++e) {
    const int channel = channel_of(place, step, e);
    if (sites.inside[0] && has_channel(channel))
      thread::copy_begin(
          reinterpret_cast<Vector<float>*>(column + 32 * kThreads) + e * kThreads + threadIdx.x,
          reinterpret_cast<const Vector<float>*>(a.d_silu.data + bases.d_silu +
                                                 (long long)channel * (Count)a.positions));
  }
}
__device__ inline Inputs column_inputs(const char* read_only) {
  char* column = const_cast<char*>(read_only);
  Inputs inputs;
#pragma unroll
  for (int v = 0; v < 2; ++v)
    inputs.x[v] = load_vector(reinterpret_cast<Vector<float>*>(column) + v * kThreads + threadIdx.x);
#pragma unroll
  for (int v = 0; v < 2; ++v)
    inputs.d_silu[v] =
        load_vector(reinterpret_cast<Vector<float>*>(column + 32 * kThreads) + v * kThreads + threadIdx.x);
  return inputs;
}

// A sum over a span of tiles, which is all of them or a sample.
__device__ inline void put_total(const Arguments& a, Count span, int channel, int number, double total) {
  if (number == 0) {
    a.sum_value2.data[a.sum_value2.offset(span, channel)] = total;
  }
}
// Statistics of all units, worked out by one block.
__device__ void finalise_all(const Arguments& a) {
  // sum(sum)
  for (int set = threadIdx.x; set < a.number1; set += blockDim.x) {
    Sum<double> total;
    total.clear();
#pragma unroll 4
    const int n = set / 96;
    const int c = set % 96;
    total.merge(Sum<double>{number(a.sum_value2.at(n, c))});

    a.sum_sum.at(set / 96, set % 96) = total.first;
  }
  __syncthreads();
  // sum of groups(sum(sum))
  for (int c = threadIdx.x; c < 96; c += blockDim.x) {
    Sum<double> total;
    total.clear();
#pragma unroll 4
    for (int n = 0; n < a.number2; ++n) total.merge(Sum<double>{a.sum_sum.at(n, c)});
    assign(a.d_gamma.at(0, c), total.first);
  }
}
"""

BACKWARD_COLUMNS_4 = r"""
// What does not vary over channels.
struct PositionInputs {
  real i3[kPositions];
};
__device__ inline PositionInputs read_positions(const Arguments& a, const Sites& sites, const Bases& bases) {
  PositionInputs inputs;
  if (sites.inside[0]) {
    const Vector<float> vector = load_vector(reinterpret_cast<const Vector<float>*>(
        a.saved_l2_normalize_square_sum.data + bases.at_saved_l2_normalize_square_sum[0]));
#pragma unroll
    for (int p = 0; p < kPositions; ++p) inputs.i3[p] = element_at(vector, p);
  }
  return inputs;
}
// Statistics of the thread's positions.
struct Totals {
  Sums0 sums0[kPositions];
};

// Sweep 0: load x, d_silu
//   -> sum of value2 for each n,c
//   -> sum of value5 over c
struct Sweep0 {
  typedef Results0 Results;
  typedef Sums0 Sums;
  static constexpr int kFirstSum = 0, kSums = 1;
  static __device__ void add_sums(const Results& results, real (&sums)[kSums]) { sums[0] += results.r19; }
  static __device__ void gather(const Sites& sites, int step, const Results (&results)[kPositions][kElements],
                                char* memory) {
    gather_step<Sweep0>(sites, step, results, sums_column(memory));
  }
  // What is the same for all channels.
  struct Positions {
    real q0;
  };
  static __device__ Positions positions(const PositionInputs& inputs, const Totals& totals, int p) {
    Positions result;
    const real t1 = square_root(inputs.i3[p]);
    result.q0 = t1 < 1e-12f ? 1e-12f : t1;
    return result;
  }
  struct Channels {
    real i1[kElements];
  };
  static __device__ Channels channels(const Arguments& a, const Place& place, const Sites& sites, int step) {
    Channels channels;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int channel = channel_of(place, step, e);
      channels.i1[e] = has_channel(channel) ? to_real(a.gamma.at(sites.n[0], channel)) : 0;
    }
    return channels;
  }
  static __device__ Results program(const Positions& position, const Channels& channels, const Inputs& inputs,
                                    int p, int e) {
    const real t5 = element_at(inputs.x[e], p) / position.q0;
    const real t7 = t5 * 9.797959f;
    const real t8 = t7 * channels.i1[e];
    const real t9 = sigmoid(t8);
    const real t15 = element_at(inputs.d_silu[e], p) * (t9 + t8 * (t9 * (1.0f - t9)));
    Results results;
    results.r19 = t15 * t7;
    results.r22 = t15 * channels.i1[e] * 9.797959f * t5;
    return results;
  }
  static __device__ void store(const Arguments& a, const Place& place, const Sites& sites, const Bases& bases,
                               int step, const Results0 (&results)[kPositions][kElements]) {}
};
// Sweep 1: load x, d_silu
//   -> output d_x
struct Sweep1 {
  typedef Results1 Results;
  typedef NoSums Sums;
  static constexpr int kFirstSum = 1, kSums = 0;
  // What is the same for all channels.
  struct Positions {
    real q0, q1, q2, q3;
  };
  static __device__ Positions positions(const PositionInputs& inputs, const Totals& totals, int p) {
    Positions result;
    const real t1 = square_root(inputs.i3[p]);
    const real t3 = t1 < 1e-12f ? 1 : 0;
    const real t4 = t3 != 0 ? 1e-12f : t1;
    result.q0 = t1;
    result.q1 = t3;
    result.q2 = t4;
    result.q3 = totals.sums0[p].s20.first / t4;
    return result;
  }
  struct Channels {
    real i1[kElements];
  };
  static __device__ Channels channels(const Arguments& a, const Place& place, const Sites& sites, int step) {
    Channels channels;
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int channel = channel_of(place, step, e);
      channels.i1[e] = has_channel(channel) ? to_real(a.gamma.at(sites.n[0], channel)) : 0;
    }
    return channels;
  }
  static __device__ Results program(const Positions& position, const Channels& channels, const Inputs& inputs,
                                    int p, int e) {
    const real t10 = element_at(inputs.x[e], p) / position.q2 * 9.797959f * channels.i1[e];
    const real t11 = sigmoid(t10);
    const real t18 = element_at(inputs.d_silu[e], p) * (t11 + t10 * (t11 * (1.0f - t11))) * channels.i1[e];
    const real t25 = position.q1 != 0 ? 0.0f : (element_at(inputs.x[e], p) / position.q0 * position.q3);
    Results results;
    results.r28 = t18 * 9.797959f / position.q2 - t25;
    return results;
  }
  static __device__ void store(const Arguments& a, const Place& place, const Sites& sites, const Bases& bases,
                               int step, const Results1 (&results)[kPositions][kElements]) {
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      const int channel = channel_of(place, step, e);
      if (sites.inside[0] && has_channel(channel)) {
        real values[kVector];
#pragma unroll
        for (int i = 0; i < kVector; ++i) values[i] = results[i][e].r28;
        store_vector(a.d_x.data + bases.d_x + (long long)channel * (Count)a.positions, values);
      }
    }
  }
};
// The plan's sweeps on one tile.
__device__ inline void run_tile(const Arguments& a, const Place& place, Count tile, Count next_tile,
                                char* memory) {
  const Sites sites = sites_of(a, place, tile);
  const Bases bases = bases_of(a, sites);
  char* column = memory + kListBytes + kTotalsBytes;
  Kept kept;
  Next next = {next_tile >= 0};
  if (next.any) {
    next.sites = sites_of(a, place, next_tile);
    next.bases = bases_of(a, next.sites);
  }
  const PositionInputs inputs = read_positions(a, sites, bases);
  Totals totals;
  {
    Sweep0::Positions positions[kPositions];
#pragma unroll
    for (int p = 0; p < kPositions; ++p) positions[p] = Sweep0::positions(inputs, totals, p);
    sweep<Sweep0, true, false>(a, place, sites, bases, positions, kept, column, totals.sums0, next, memory);
    merge_tile(place, totals.sums0, memory, memory + kListBytes);
  }
  {
    Sweep1::Positions positions[kPositions];
#pragma unroll
    for (int p = 0; p < kPositions; ++p) positions[p] = Sweep1::positions(inputs, totals, p);
    NoSums nothing[kPositions];
    sweep<Sweep1, false, true>(a, place, sites, bases, positions, kept, column, nothing, next, memory);
  }
}
"""

HOST = r"""
// Launches one of the kernels; returns CUDA's error, 0 for none.
extern "C" int launch(int kernel, void* arguments, unsigned int blocks, unsigned int threads,
                      unsigned int shared_bytes, int cooperative, cudaStream_t stream) {
  const void* const kernels[] = {(const void*)forward_columns::columns,
                                 (const void*)backward_columns::columns};
  const void* entry = kernels[kernel];
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const cudaError_t error = cudaFuncSetAttribute(entry, attribute, (int)shared_bytes)) return error;
  if (!cooperative) return cudaLaunchKernel(entry, blocks, threads, &arguments, shared_bytes, stream);
  return cudaLaunchCooperativeKernel(entry, blocks, threads, &arguments, shared_bytes, stream);
}
"""

KERNELS = {
    "forward_columns": (
        FORWARD_COLUMNS_1,
        PRIMITIVES,
        FORWARD_COLUMNS_2,
        COLUMNS_TILE,
        FORWARD_COLUMNS_3,
        COLUMNS,
        FORWARD_COLUMNS_4,
        COLUMNS_KERNEL,
    ),
    "backward_columns": (
        BACKWARD_COLUMNS_1,
        PRIMITIVES,
        TEAM,
        BACKWARD_COLUMNS_2,
        COLUMNS_TILE,
        BACKWARD_COLUMNS_3,
        COLUMNS_SUMS,
        COLUMNS,
        BACKWARD_COLUMNS_4,
        COLUMNS_GATHERING_KERNEL,
    ),
}
CUDA = "".join(f"namespace {name} {{\n{''.join(texts)}\n}}\n" for name, texts in KERNELS.items()) + HOST


def lay_out(tensor):
    """The tensor as the kernels take it: dense, and aligned to 16 bytes. Other views are copied."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def zeros(x, *sizes):
    """Memory of so many bytes each, all of them zero."""
    sizes = [(size + 15) // 16 * 16 for size in sizes]
    return x.new_zeros(sum(sizes), dtype=torch.uint8).split(sizes)


@functools.cache
def library():
    """The compiled kernels. PyTorch builds them at the first call, one process at a time, and keeps them."""
    from torch.utils.cpp_extension import load_inline

    bare = "no_implicit_headers"  # without torch's headers it builds in seconds
    options = {bare: True} if bare in inspect.signature(load_inline).parameters else {}
    name = f"fuseblock_export_{hashlib.sha256(CUDA.encode()).hexdigest()[:16]}"
    return ctypes.CDLL(load_inline(name, "", CUDA, is_python_module=False, **options))


def launch(kernel, blocks, threads, shared_bytes, cooperative, tensors, axes, numbers):
    """Launches a kernel: tensors with the strides of their axes, then numbers, are its Arguments."""
    words = []
    for tensor, own in zip(tensors, axes.split(" "), strict=True):
        sizes = zip(own, tensor.shape, tensor.stride(), strict=True)
        strides = {axis: stride for axis, extent, stride in sizes if extent > 1}
        words += [tensor.data_ptr(), *(strides.get(axis, 0) for axis in "ncdhw")]
    words += [each.data_ptr() if torch.is_tensor(each) else each for each in numbers]
    packed = struct.pack("".join("d" if isinstance(word, float) else "q" for word in words), *words)
    with torch.cuda.device(tensors[0].device):
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        number = list(KERNELS).index(kernel)
        error = library().launch(number, packed, blocks, threads, shared_bytes, cooperative, stream)
    if error != 0:
        raise RuntimeError(f"{kernel}: the launch failed with CUDA error {error}")


def divide_tiles(tiles, blocks):
    """Tiles of a block, of `blocks` that run at once, and blocks that merge their sums together."""
    block_tiles = -(-tiles // blocks)
    return block_tiles, math.isqrt(-(-tiles // block_tiles) - 1) + 1


def takes(x, gamma):
    """Whether the kernels take these tensors."""
    tensors = (x, gamma)
    if not x.is_cuda or x.dim() != 5 or torch.is_autocast_enabled() or torch.compiler.is_compiling():
        return False
    n, _, d, h, w = x.shape
    gpu = torch.cuda.get_device_properties(x.device)
    return (
        gpu.major >= 8
        and gpu.shared_memory_per_multiprocessor >= 233472
        and all(t.device == x.device and t.dtype == torch.float32 for t in tensors)
        and [t.shape for t in tensors] == [(n, 96, d, h, w), (96, 1, 1, 1)]
        and x.numel() > 0
        and d * h * w % 4 == 0
        and n * d * h * w < 1000000000
    )


def by_pytorch(x, gamma):
    """The block by PyTorch's operators."""
    normalize = F.normalize(x, p=2.0, dim=1, eps=1e-12)
    mul = normalize * 9.797958971132712
    mul_1 = mul * gamma
    return F.silu(mul_1)


class Block(torch.autograd.Function):
    """The block and its gradients by the kernels."""

    @staticmethod
    def forward(ctx, x, gamma):
        x, gamma = map(lay_out, (x, gamma))
        n, _, d, h, w = x.shape
        silu = torch.empty_like(x)
        l2_normalize_square_sum = x.new_empty((n, 1, d, h, w))
        sample_tiles = (d * h * w + 128 - 1) // 128
        tiles = n * sample_tiles
        tensors = [gamma, silu, l2_normalize_square_sum, x]
        numbers = [tiles, sample_tiles, d * h * w]
        axes = "cdhw ncdhw ncdhw ncdhw"
        launch("forward_columns", tiles, 256, 53760, False, tensors, axes, numbers)
        ctx.save_for_backward(x, gamma, l2_normalize_square_sum)
        return silu

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_silu):
        x, gamma, l2_normalize_square_sum = ctx.saved_tensors
        d_silu = lay_out(d_silu)
        n, _, d, h, w = x.shape
        d_x = torch.empty_like(x)
        d_gamma = x.new_empty((96, 1, 1, 1))
        multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
        sample_tiles = (d * h * w + 64 - 1) // 64
        tiles = n * sample_tiles
        block_tiles, bundle = divide_tiles(tiles, multiprocessors * 2)
        blocks = (tiles + block_tiles - 1) // block_tiles
        bundles = (blocks + bundle - 1) // bundle
        sum_value2_memory, sum_sum_memory = x.new_empty((2, n, 96), dtype=torch.float64)
        (finished,) = zeros(x, (1 + bundles) * 4)
        block_sums = x.new_empty((n + blocks) * 96 * 4, dtype=torch.uint8)
        bundle_sums = x.new_empty((n + bundles) * 96 * 8, dtype=torch.uint8)
        tensors = [gamma, d_x, x, d_silu, l2_normalize_square_sum, sum_value2_memory, sum_sum_memory]
        tensors += [d_gamma]
        numbers = [tiles, sample_tiles, d * h * w, block_tiles, bundle, block_sums, bundle_sums, finished]
        numbers += [96 * n, n]
        axes = "cdhw ncdhw ncdhw ncdhw ncdhw nc nc cdhw"
        launch("backward_columns", blocks, 256, 57600, False, tensors, axes, numbers)
        return d_x, d_gamma


def block(x, gamma):
    """The block `l2_normalize(c) | mul(9.797958971132712) | mul(gamma) | silu`."""
    return (Block.apply if takes(x, gamma) else by_pytorch)(x, gamma)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = channels**0.5
        self.gamma = nn.Parameter(torch.ones(channels, 1, 1, 1))
        if self.scale != (exported := 9.797958971132712):
            raise ValueError(f"scale: expected {exported}, as exported, got {self.scale}")

    def forward(self, x):
        return block(x, self.gamma)
