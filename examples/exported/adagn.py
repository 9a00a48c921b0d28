"""Model with its blocks as CUDA kernels: `ModelNew`, in place of `Model`.

Written by `python -m fuseblock.export`; it needs PyTorch alone. Compiled at the first call on a GPU.
Block: group_norm = group_norm(x, 32, affine=false); add = add(scale, 1); mul = mul(group_norm, add); add2 =
add(mul, shift); silu = silu(add2); return silu, on f32[8,320,64,64], for sm_90a.
Forward, 1 kernel, rows: 132 blocks of 512 threads, 231 kB of shared memory each, units of 10 channels, 256 in
      all, teams of 1 blocks, 132 of them at work, of 10 steps of a warp 10 stay in shared memory for later
      sweeps
  1  finalise: add = scale + 1
  2  sweep over [n,320,h,w]: load x -> moments of x for each n,c
  3  finalise: rstd(x) = 1 / sqrt(squares(x) / 40960 + 1e-05)
      -> output saved.group_norm.mean, saved.group_norm.rstd
  4  sweep over [n,320,h,w]: load x; group_norm = (x - mean(x)) * rstd(x); mul = group_norm * add;
      add2 = mul + shift; silu = add2 * sigmoid(add2) -> output silu
Backward, 1 kernel, rows: 132 blocks of 512 threads, 200 kB of shared memory each, units of 10 channels, 256
      in all, teams of 1 blocks, 132 of them at work, of 10 steps of a warp 6 stay in shared memory for later
      sweeps, the others are read again, from L2
  1  finalise: add as before
  2  sweep over [n,320,h,w]: load x, d_silu; group_norm = (x - saved.group_norm.mean) * saved.group_norm.rstd;
      mul, add2 as before; d_add2 = d_silu * (sigmoid(add2) + add2 * (sigmoid(add2) * (1 - sigmoid(add2))));
      value2 = d_add2 * group_norm -> sums of d_add2, value2 for each n,c
  3  finalise: mean = sum(d_shift / 4096 * add) / 10; mean2 = sum(add * (d_scale / 4096)) / 10
      -> output d_scale, d_shift
  4  sweep over [n,320,h,w]: load x, d_silu; group_norm to d_add2 as before; d_group_norm = d_add2 * add;
      d_x = saved.group_norm.rstd * (d_group_norm - mean - group_norm * mean2) -> output d_x
The kernels take any extents along n, h, w with h * w % 256 == 0 and 10 * h * w <= multiprocessors * 57344 and
10 * h * w < 1000000000.

Notation: n, c, d, h, w are samples, channels and positions; mean(v), squares(v), rstd(v) the mean of v over
what a norm takes together, the sum of squared deviations from it, 1 / sqrt(variance + eps); d_v is the
gradient by v. A sweep is one pass over all elements, a finalise step works on statistics. multiprocessors is
how many the GPU has.
By PyTorch's operators: the CPU, other dtypes, autocast, torch.compile, GPUs before compute capability 8.0 or
with less shared memory. Other layouts are copied first. Left as it was: self.proj (kept), getitem (no
operation of the notation), chunk (no operation of the notation), scale (an operand that is no tensor of a
type that blocks have), shift (an operand that is no tensor of a type that blocks have), silu (a single call
that PyTorch's operator does in one trip).
"""

import ctypes
import functools
import hashlib
import inspect
import struct

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_inputs():
    return [torch.rand(8, 320, 64, 64), torch.rand(8, 1280)]


def get_init_inputs():
    return [320, 32, 1280]


# Device code that all kernels have in common; each is compiled with its own constants in front.
PRIMITIVES = r"""
// Element types of tensors, and the arithmetic's type. Before this stands `typedef float real;`, or double where a
// tensor of the block is f64. Nothing is included: 16-bit types are bits, converted by PTX.

__device__ inline real to_real(float x) { return x; }
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

// 1 / sqrt(x). In float it is rsqrt.approx, within 2 ulp.
__device__ inline float reciprocal_root(float x) { return rsqrtf(x); }

// 1 / (1 + exp(-x)). The quotient is rcp.approx, within 1 ulp. Where results are rounded to 16 bits, exp is ex2.approx of a
// rounded product, whose error grows to 1e-5 of the value at the ends of the range, and what is below 1e-38 is 0.
__device__ inline float sigmoid(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(1.0f + expf(-x)));
  return y;
}

// A sum by its count, rounded as a quotient is, or nearly so.
__device__ inline float quotient(float sum, float count) {
  const float each = __fdividef(1.0f, count), near = sum * each;
  return fmaf(fmaf(-count, near, sum), each, near);
}

// The quotient of two counts, for weights of means.
__device__ inline float share(float part, float whole) { return __fdividef(part, whole); }

// Statistics of many elements, taken in parts and merged. Each kind is a struct of numbers with
//   clear()            the statistic of nothing
//   add(values, taken) takes those of kElements elements whose bit of `taken` is set
//   merge(other)       joins two parts; the order of the calls is part of the result
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

constexpr int kChains = 2;

template <class Number>
__device__ inline Number sum_of(const Number (&chains)[kChains]) {
  return chains[0] + chains[kChains - 1];
}

template <class Number>
struct Sum {
  Number first;

  __device__ void clear() { first = 0; }
  __device__ void add(const Number (&values)[kElements]) {
    Number chains[kChains] = {};
#pragma unroll
    for (int i = 0; i < kElements; ++i) chains[i % kChains] += values[i];
    first += sum_of(chains);
  }
  template <class Other>
  __device__ void merge(const Sum<Other>& other) {
    first += other.first;
  }
  __device__ void merge_lanes() { first = warp::sum(first); }
};

// first: the mean; second: the sum of squared deviations from it.
template <class Number>
struct Moments {
  Number first, second, count;

  __device__ void clear() { first = second = count = 0; }
  template <class Other>
  __device__ void merge(const Moments<Other>& other) {
    if (other.count == 0) return;
    const Number whole = count + other.count;
    const Number part = share((Number)other.count, whole);
    const Number distance = other.first - first;
    second += other.second + distance * distance * (count * part);
    first = count == 0 ? other.first : first + distance * part;
    count = whole;
  }
  // Around the mean of all lanes: the deviations of their means count as those of their elements do.
  __device__ void merge_lanes() {
    const Number whole = warp::sum(count);
    const Number mean = warp::sum(first * share(count, whole));
    const Number distance = first - mean;
    second = warp::sum(second + (count == 0 ? (Number)0 : count * distance * distance));
    first = mean;
    count = whole;
  }
};

namespace warp {

// The statistics of all lanes, in each of them.
template <class Sums>
__device__ inline Sums merge(Sums sums) {
  sums.merge_lanes();
  return sums;
}

// What lane 0 has.
template <class Value>
__device__ inline Value from_first(const Value& value) {
  Value result;
  const unsigned int* from = reinterpret_cast<const unsigned int*>(&value);
  unsigned int* to = reinterpret_cast<unsigned int*>(&result);
#pragma unroll
  for (int i = 0; i < (int)(sizeof(Value) / 4); ++i) to[i] = __shfl_sync(0xffffffffu, from[i], 0);
  return result;
}
}  // namespace warp

// Statistics while a thread takes elements one after the other; `settled` gives what is merged.

template <class Statistic>
struct Running : Statistic {
  // `begins`: perhaps the first elements of all.
  __device__ void add(const real (&values)[kElements], bool begins) { Statistic::add(values); }
  __device__ Statistic settled() const { return *this; }
};

// Sums around one of the thread's own elements, or the mean of its first ones: where that is far from the mean of all, so
// is the variance large of which they are a part, so that nothing is lost to the difference of two large numbers.
template <class Number>
struct Running<Moments<Number>> {
  Number pivot;
  Number sums[kChains], squares[kChains];
  int count;

  __device__ void clear() {
    pivot = 0;
    count = 0;
#pragma unroll
    for (int i = 0; i < kChains; ++i) sums[i] = squares[i] = 0;
  }
  __device__ void add(const Number (&values)[kElements], bool begins) {
    if (begins && count == 0) {
#pragma unroll
      for (int i = kElements - 1; i >= 0; --i) pivot = values[i];
      Number rest = 0;
#pragma unroll
      for (int i = 1; i < kElements; ++i) rest += values[i] - pivot;
      pivot += rest * ((Number)1 / kElements);
    }
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const Number distance = values[i] - pivot;
      sums[i % kChains] += distance;
      squares[i % kChains] += distance * distance;
    }
    count += kElements;
  }
  __device__ Moments<Number> settled() const {
    if (count == 0) return Moments<Number>{0, 0, 0};
    const Number mean = quotient(sum_of(sums), (Number)count);
    const Number squared = sum_of(squares) - sum_of(sums) * mean;
    return Moments<Number>{pivot + mean, squared < 0 ? (Number)0 : squared, (Number)count};
  }
};

// Copies from memory to shared memory that go on beside the arithmetic (cp.async). A thread waits for its own copies
// alone, and reads nothing but what it has copied itself, so that no barrier is needed.

namespace thread {

// Begins to copy one vector of four bytes and more to an address in shared memory.
template <class Copied>
__device__ inline void copy_begin_at(unsigned int shared, const Copied* memory) {
  const char* from = reinterpret_cast<const char*>(memory);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}

// What lies at an address in shared memory.
template <class Copied>
__device__ inline Copied read_shared(unsigned int shared) {
  Copied copied;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(copied.words[0]), "=r"(copied.words[1]), "=r"(copied.words[2]), "=r"(copied.words[3])
               : "r"(shared)
               : "memory");
  return copied;
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

// A chunk of a warp: kPieces vectors of each lane, the lanes' beside each other, piece behind piece. The first of this lane is
// `element` of a unit that has `elements`; vectors behind the unit are left out.

// Begins to copy to this thread's column of shared memory, at `slot`.
template <class Element>
__device__ inline void copy_pieces(unsigned int slot, const Element* from) {
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
    thread::copy_begin_at(slot + (i * kThreads + threadIdx.x) * (unsigned int)sizeof(Vector<Element>),
                          reinterpret_cast<const Vector<Element>*>(from + i * 32 * kVector));
}

// What was copied there.
template <class Element>
__device__ inline void ring_pieces(unsigned int slot, Vector<Element> (&pieces)[kPieces]) {
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
    pieces[i] = thread::read_shared<Vector<Element>>(slot + (i * kThreads + threadIdx.x) *
                                                                (unsigned int)sizeof(Vector<Element>));
}

// The same from memory.
template <class Element>
__device__ inline void read_pieces(const Element* from, Vector<Element> (&pieces)[kPieces]) {
#pragma unroll
  for (int i = 0; i < kPieces; ++i)
    pieces[i] = load_vector(reinterpret_cast<const Vector<Element>*>(from + i * 32 * kVector));
}

// Thread blocks that work on one unit together: where a block stands among them, and how they hand words to each other.
// All blocks of a team run at the same time. A small team is a cluster (kCluster blocks, where that is above 1): its blocks
// read each other's shared memory, behind the cluster's barrier. Other teams have lists in memory.
//
// A word in a team's list stands beside a tag, the number of the round, and both are written and read at once (8 bytes): who
// finds the tag has the word, without a barrier or a fence. Lists are zero at the start of the launch, so that no tag of
// another launch is taken for one of this.

struct Team {
  int size;           // blocks
  int member;         // this block among them
  int number, count;  // this team among all
};

__device__ inline Team team_of_block(int size) {
  Team team;
  team.size = size;
  team.number = (int)blockIdx.x / size;
  team.member = (int)blockIdx.x - team.number * size;
  team.count = (int)gridDim.x / size;
  return team;
}

namespace team {

template <class Value>
constexpr int kWordsOf = (int)(sizeof(Value) / 4);

// Lane 0's value, into its place of a list.
template <class Value>
__device__ inline void give(uint2* place, const Value& value, unsigned int tag) {
  const unsigned int* words = reinterpret_cast<const unsigned int*>(&value);
#pragma unroll
  for (int i = 0; i < kWordsOf<Value>; ++i)
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(place + i), "r"(words[i]), "r"(tag)
                 : "memory");
}

// Waits for values of other blocks, `count` of them and at most kCount, `stride` words apart. All words are asked for
// before the first is looked at.
template <class Value, int kCount>
__device__ inline void take(const uint2* place, int stride, int count, unsigned int tag,
                            Value (&values)[kCount]) {
  bool waiting = true;
  while (waiting) {
    unsigned int found[kCount][kWordsOf<Value>];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      unsigned int* words = reinterpret_cast<unsigned int*>(&values[i]);
#pragma unroll
      for (int k = 0; k < kWordsOf<Value>; ++k)
        if (i < count)
          asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
                       : "=r"(words[k]), "=r"(found[i][k])
                       : "l"(place + i * stride + k)
                       : "memory");
    }
    waiting = false;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
#pragma unroll
      for (int k = 0; k < kWordsOf<Value>; ++k)
        if (i < count && found[i][k] != tag) waiting = true;
  }
}
}  // namespace team

// Who works a unit's statistics out: all of the block, or one warp of it while the others go on. kThreads and kWarps are
// those of the block.

struct Block {
  static constexpr int kCrewThreads = kThreads, kCrewWarps = kWarps;
  static __device__ int thread() { return (int)threadIdx.x; }
  static __device__ int warp() { return (int)threadIdx.x / 32; }
  static __device__ void sync() { __syncthreads(); }
};
struct Warp {
  static constexpr int kCrewThreads = 32, kCrewWarps = 1;
  static __device__ int thread() { return (int)threadIdx.x % 32; }
  static __device__ int warp() { return 0; }
  static __device__ void sync() { __syncwarp(); }
};

// The same in all lanes, so that the compiler knows it.
__device__ inline bool is_first_warp() { return __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0) == 0; }

// Statistics of groups of kGroup of kChannels channels, one warp a group: `state(c)` is what a channel has, and all channels
// get their group's.
template <class Crew, int kChannels, int kGroup, class Statistic, class State>
__device__ inline void merge_groups(Statistic* to, const State& state) {
  for (int group = Crew::warp(); group < kChannels / kGroup; group += Crew::kCrewWarps) {
    const int begin = group * kGroup + (int)threadIdx.x % 32, end = (group + 1) * kGroup;
    Statistic total;
    total.clear();
    for (int c = begin; c < end; c += 32) total.merge(state(c));
    total = warp::from_first(warp::merge(total));
    for (int c = begin; c < end; c += 32) to[c] = total;
  }
}
"""

ROWS = r"""
// rows: sweeps of a block over tensors whose positions lie one behind the other, unit by unit.
//
// A unit is kUnitChannels channels of one sample, in memory one run of kUnitChannels * positions elements. A team of
// thread blocks works on it: every warp has a run of neighbouring chunks of kPieces times 32 vectors, every lane one vector
// of each piece.
// A chunk is copied into the lane's own column of shared memory long before its turn, also chunks of the team's next
// unit, and stays there for the later sweeps of its unit; where a unit is larger than all columns, its first chunks are read
// from memory by each sweep. The first sweep of the next unit goes on beside the last one of a unit, so that memory is
// never waited for by all warps at once. Statistics are merged lane by lane, warp by warp, block by block, in an order that
// depends on the shapes alone.
//
// Before this stand the constants (kThreads, kRing, kUnitChannels, ...), Arguments, Inputs (what lies in the ring) and
// UnitValues; behind it the program of each sweep, the finalise steps and `run_units`, which calls what is here in the
// plan's order; last the kernel, device/rows.cu.

constexpr int kTaken = 3;  // parts of a team's list that a lane asks for at once

constexpr int kPiece = 32 * kVector;      // elements of a warp's piece
constexpr int kChunk = kPieces * kPiece;  // and of its chunk

// The warps of a team, or its blocks, that have elements of a channel.
struct Range {
  int first, last;
};

// The units of this kernel and every warp's share of one. Elements of a unit are counted by `Count`.
struct Shares {
  Count positions;  // of a channel
  Count elements;   // of a unit
  int steps;        // chunks of a warp
  int again;        // of these, the first, that are never in the ring
  int lead;  // chunks by which the next unit's first sweep is before this one's last, or behind it (below 0)
  int warp;  // this one, by its number in the team
  int chunks;         // that it has, fewer than `steps` at the unit's end
  int warp_channel;   // the first channel of its share,
  int block_channel;  // and of its block's

  // The first element of a warp's share, by its number in the team.
  __device__ Count begin(int warp) const { return (Count)warp * steps * kChunk; }
  // What one statistic is taken of: a channel, or the unit.
  template <class Sums>
  __device__ Count span() const {
    return Sums::kChannels == 1 ? elements : positions;
  }
  // The first statistic that the block has a part of.
  template <class Sums>
  __device__ int first_span() const {
    return Sums::kChannels == 1 ? 0 : block_channel;
  }
  // Those that have elements of a span; `share` is what each of them has at most.
  __device__ Range having(int number, Count span, Count share) const {
    const Count first = number * span;
    return {(int)(first / share), (int)((first + span - 1) / share)};
  }
};

__device__ inline Shares shares_of(const Arguments& a, const Team& team) {
  Shares shares = {(Count)a.positions, (Count)(kUnitChannels * a.positions), (int)a.steps, (int)a.again,
                   (int)a.lead};
  shares.warp = team.member * kWarps + (int)threadIdx.x / 32;
  const Count left = shares.elements - shares.begin(shares.warp);
  const Count chunks = left <= 0 ? 0 : (left + kChunk - 1) / kChunk;
  shares.chunks = chunks < shares.steps ? (int)chunks : shares.steps;
  shares.warp_channel = (int)(shares.begin(shares.warp) / shares.positions);
  shares.block_channel = (int)(shares.begin(team.member * kWarps) / shares.positions);
  return shares;
}

// Of a sweep that takes no statistics, and of one that takes nothing of channels.
struct NoSums {
  static constexpr int kChannels = kUnitChannels;
};
struct NoChannel {};

// A unit in this block.
struct Unit {
  int n;
  int first_channel;
  long long begin;  // its first element
  UnitValues* values;
};

// The unit that a team takes in a round; statistics of two rounds stand side by side.
__device__ inline Unit unit_of_round(const Shares& shares, const Team& team, int round, Shared& shared) {
  constexpr unsigned int kInSample = kChannels / kUnitChannels;
  const long long number = team.number + round * (long long)team.count;
  const unsigned int n = (unsigned int)number / kInSample;
  return {(int)n, (int)((unsigned int)number - n * kInSample) * kUnitChannels, number * shares.elements,
          &shared.values[round % 2]};
}

// This thread's columns of shared memory: copies in the order of their use, over all units of the team. Slots are counted
// in bytes from the first.
struct Ring {
  unsigned int column;  // where they begin
  int issued;           // the slot of the next copy
  int visited;          // that which a first sweep takes next
  int kept;             // the oldest that waits for later sweeps
  int pending;          // copies under way, and those that a first sweep has not taken yet
  int copies;           // of this unit that are still to come
  int units;            // and units
  long long offset;     // and in the tensors

  __device__ static int next(int slot) { return slot == (kRing - 1) * kRingBytes ? 0 : slot + kRingBytes; }
};

// Begins the next copy, where there is one.
__device__ inline void copy_next(Ring& ring, const Arguments& a, const Shares& shares, const Team& team) {
  if (ring.units == 0) return;
  copy_inputs(a, ring.offset, ring.column + ring.issued);
  thread::copy_commit();
  ring.issued = Ring::next(ring.issued);
  ++ring.pending;
  ring.offset += kChunk;
  if (--ring.copies > 0) return;
  ring.copies = shares.chunks - shares.again;
  --ring.units;
  const Count share = (Count)ring.copies * kChunk;
  ring.offset += team.count * (long long)shares.elements - share;
}

__device__ inline Ring ring_of_thread(const Arguments& a, const Shares& shares, const Team& team, int rounds,
                                      const char* column) {
  Ring ring = {};
  // Held in a register: the compiler would work it out anew at each use.
  asm volatile("mov.u32 %0, %1;" : "=r"(ring.column) : "r"((unsigned int)__cvta_generic_to_shared(column)));
  ring.copies = shares.chunks - shares.again;
  ring.units = ring.copies > 0 ? rounds : 0;
  const Count element =
      shares.begin(shares.warp) + (Count)shares.again * kChunk + (Count)(threadIdx.x % 32) * kVector;
  ring.offset = team.number * (long long)shares.elements + element;
#pragma unroll 1
  for (int i = 0; i < kRing; ++i) copy_next(ring, a, shares, team);
  return ring;
}

// Where the blocks of a team put their statistics of one sweep and round: those of each channel, or of the unit.
template <class Sums>
struct TeamList {
  Sums* totals;      // of the unit
  uint2* words;      // of all its blocks: one place for each pair of block and channel
  unsigned int tag;  // beside each word
};

// Lists in turn: who writes the next but one knows that this one is read.
template <class Sums>
__device__ inline TeamList<Sums> team_list(Sums* totals, uint2* lists, const Team& team, int round) {
  uint2* words = lists + (team.number * 2 + round % 2) * (Sums::kChannels + team.size) * team::kWordsOf<Sums>;
  return {totals, words, round + 1u};
}

// The block's statistics out of its warps' list, one warp a channel: into the unit's totals where the block is alone, else
// into the team's list. All of the block's warps have ended their sweep.
template <class Crew, class Sums>
__device__ inline void give_statistics(const Shares& shares, const Team& team, const Sums* list,
                                       const TeamList<Sums>& to) {
  const int lane = threadIdx.x % 32;
  const int first_warp = team.member * kWarps;
  const Count span = shares.span<Sums>();
  const int first = shares.first_span<Sums>();
  const Count end = shares.begin(first_warp + kWarps);
  for (int channel = first + Crew::warp(); channel < Sums::kChannels && channel * span < end;
       channel += Crew::kCrewWarps) {
    const Range warps = shares.having(channel, span, (Count)shares.steps * kChunk);
    Sums total;
    total.clear();
    if (lane < kWarps && warps.first <= first_warp + lane && first_warp + lane <= warps.last)
      total.merge(list[channel - first + lane]);
    total.merge_lanes();
    if (lane != 0) continue;
    if (team.size == 1)
      to.totals[channel] = total;
    else
      team::give(to.words + (channel + team.member) * team::kWordsOf<Sums>, total, to.tag);
  }
}

// The same by all of the block, where its warps may still be at their sweep: by the first warp where there is one
// statistic.
template <class Sums>
__device__ inline void give_by_block(const Shares& shares, const Team& team, const Sums* list,
                                     const TeamList<Sums>& to) {
  __syncthreads();
  if constexpr (Sums::kChannels > 1)
    give_statistics<Block>(shares, team, list, to);
  else if (is_first_warp())
    give_statistics<Warp>(shares, team, list, to);
}

// The team's statistics of a channel, in every lane of a warp.
template <class Sums>
__device__ inline Sums of_team(const Shares& shares, const TeamList<Sums>& from, int channel) {
  const Range blocks = shares.having(channel, shares.span<Sums>(), shares.begin(kWarps));
  Sums total;
  total.clear();
  for (int member = blocks.first + (int)threadIdx.x % 32; member <= blocks.last; member += 32 * kTaken) {
    Sums parts[kTaken];
    team::take(from.words + (channel + member) * team::kWordsOf<Sums>, 32 * team::kWordsOf<Sums>,
               (blocks.last - member) / 32 + 1, from.tag, parts);
#pragma unroll
    for (int i = 0; i < kTaken; ++i)
      if (member + 32 * i <= blocks.last) total.merge(parts[i]);
  }
  __syncwarp();
  total.merge_lanes();
  return total;
}

// The unit's totals out of the team's list, one warp a channel, as soon as the other blocks have given theirs. A cluster has
// waited for them.
template <class Crew, class Sums>
__device__ inline void take_statistics(const Shares& shares, const Team& team, const TeamList<Sums>& from) {
  if (team.size > 1) {
    for (int channel = Crew::warp(); channel < Sums::kChannels; channel += Crew::kCrewWarps) {
      const Sums total = of_team(shares, from, channel);
      if (threadIdx.x % 32 == 0) from.totals[channel] = total;
    }
  }
  Crew::sync();
}

// What a sweep takes for each channel of a unit, worked out once: what the tensors give, before the statistics are there,
// and what these give. A thread of the crew works on the same channels in both and in the finalise steps between them.
template <class Crew, class Sweep>
__device__ inline void prepare_parameters(const Arguments& a, const Unit& unit,
                                          typename Sweep::Channel* channels) {
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads)
    Sweep::parameters(a, unit, c, channels[c]);
}
template <class Crew, class Sweep>
__device__ inline void prepare_statistics(const Arguments& a, const Unit& unit,
                                          typename Sweep::Channel* channels) {
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads)
    Sweep::statistics(a, unit, c, channels[c]);
}

// Where a warp is in a sweep over its share of a unit.
template <class Sweep>
struct Walk {
  const typename Sweep::Channel* channels;  // what the program takes for each channel of the unit, or 0
  const typename Sweep::Channel* at;        // of these, that of the walk's channel
  typename Sweep::Sums* list;               // of the block's statistics, or 0
  Count element;                            // the warp's next
  long long offset;                         // the lane's next, in the tensors
  int channel;
  Count channel_end;  // first element of the next channel
  typename Sweep::Channel values;
  typename Sweep::Running sums;
};

// What a walk goes over at a stretch: a channel, or the unit where channels make no difference to the sweep.
template <class Sweep>
__device__ inline Count stretch(const Shares& shares) {
  return Sweep::kByChannel ? shares.positions : shares.elements;
}

template <class Sweep>
__device__ inline Walk<Sweep> begin_walk(const Shares& shares, const Unit& unit,
                                         const typename Sweep::Channel* channels,
                                         typename Sweep::Sums* list) {
  Walk<Sweep> walk;
  walk.channels = channels;
  walk.list = list;
  walk.element = shares.begin(shares.warp);
  walk.offset = unit.begin + walk.element + (Count)(threadIdx.x % 32) * kVector;
  walk.channel = Sweep::kByChannel ? shares.warp_channel : 0;
  walk.channel_end = (walk.channel + 1) * stretch<Sweep>(shares);
  walk.at = channels + walk.channel;
  if (channels && shares.chunks > 0) walk.values = *walk.at;
  if constexpr (Sweep::kStatistics) walk.sums.clear();
  return walk;
}

// Adds the warp's statistics of a channel to the block's list: one place for each pair of warp and channel.
template <class Sweep>
__device__ inline void flush(const Shares& shares, Walk<Sweep>& walk) {
  if constexpr (Sweep::kStatistics) {
    typedef typename Sweep::Sums Sums;
    const Sums total = warp::merge(walk.sums.settled());
    const int number = Sums::kChannels == 1 ? 0 : walk.channel - shares.block_channel;
    if (threadIdx.x % 32 == 0) walk.list[number + (int)threadIdx.x / 32] = total;
    walk.sums.clear();
  }
}

template <class Sweep>
__device__ inline void next_channel(const Shares& shares, Walk<Sweep>& walk) {
  if (Sweep::Sums::kChannels > 1) flush(shares, walk);
  ++walk.channel;
  walk.channel_end += shares.positions;
  // By a place that moves: of `channels[channel]` ptxas 13.0 makes code that takes the channel behind it.
  if (walk.channels && walk.channel < kUnitChannels) walk.values = *++walk.at;
}

// The elements of the walk's next chunk, piece by piece.
template <class Sweep>
__device__ inline void visit(const Arguments& a, const Shares& shares, Walk<Sweep>& walk,
                             const Inputs& inputs) {
  const Count element = walk.element;
  const long long offset = walk.offset;
  walk.element += kChunk;
  walk.offset += kChunk;
  if (Sweep::kByChannel)
    while (walk.channel_end <= element) next_channel(shares, walk);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
    real results[Sweep::kResults][kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) Sweep::program(walk.values, inputs, piece, i, results);
    if constexpr (Sweep::kStatistics) walk.sums.add(results, piece == 0);
    Sweep::store(a, offset + piece * kPiece, results);
  }
}

// The sweeps of a unit: who takes which chunk, from the ring or from memory, and who lets go of it.

// The inputs of a walk's next chunk from memory.
template <class Sweep>
__device__ inline Inputs read_next(const Arguments& a, const Walk<Sweep>& walk) {
  return read_inputs(a, walk.offset);
}

// A chunk that came into the ring: the first sweep of its unit takes it when its copy has ended.
__device__ inline Inputs take_visited(Ring& ring) {
  thread::copy_wait(--ring.pending);
  const Inputs inputs = ring_inputs(ring.column + ring.visited);
  ring.visited = Ring::next(ring.visited);
  return inputs;
}

// The last sweep lets go of the oldest chunk, and the next copy begins in its place.
__device__ inline void release_kept(Ring& ring, const Arguments& a, const Shares& shares, const Team& team) {
  ring.kept = Ring::next(ring.kept);
  copy_next(ring, a, shares, team);
}

// A unit's first sweep, by itself. Where it is the only one (`kOnly`), nothing stays in the ring.
template <bool kOnly, class Sweep>
__device__ inline void sweep_first(const Arguments& a, const Shares& shares, const Team& team, Ring& ring,
                                   Walk<Sweep>& walk) {
#pragma unroll 1
  for (int step = 0; step < shares.chunks; ++step) {
    visit(a, shares, walk, kAgain && step < shares.again ? read_next(a, walk) : take_visited(ring));
    if (kOnly && (!kAgain || step >= shares.again)) release_kept(ring, a, shares, team);
  }
  if (shares.chunks > 0) flush(shares, walk);
}

// The last sweep of a unit, and beside it the first of the team's next one, `shares.lead` chunks before it or behind it.
// When that has ended, its statistics are given to the team.
template <class Last, class First>
__device__ inline void sweep_last(const Arguments& a, const Shares& shares, const Team& team, Ring& ring,
                                  Walk<Last>& last, Walk<First>& next, bool has_next,
                                  const TeamList<typename First::Sums>& next_list) {
  const int lead = has_next ? shares.lead : 0;
  const unsigned int chunks = (unsigned int)shares.chunks;
  const unsigned int next_chunks = has_next ? chunks : 0;
  const int next_last = has_next && First::kStatistics ? shares.steps - 1 : -1;
  const int end = lead < 0 ? shares.steps - lead : shares.steps;
#pragma unroll 1
  for (int i = lead > 0 ? -lead : 0; i < end; ++i) {
    if ((unsigned int)i < chunks) {
      visit(a, shares, last,
            kAgain && i < shares.again ? read_next(a, last) : ring_inputs(ring.column + ring.kept));
      if (!kAgain || i >= shares.again) release_kept(ring, a, shares, team);
    }
    const int step = i + lead;
    if ((unsigned int)step < next_chunks)
      visit(a, shares, next, kAgain && step < shares.again ? read_next(a, next) : take_visited(ring));
    if (step != next_last || step < 0) continue;
    if (shares.chunks > 0) flush(shares, next);
    if constexpr (First::kStatistics) give_by_block(shares, team, next.list, next_list);
  }
  if (shares.chunks > 0) flush(shares, last);
}
"""

ROWS_KERNEL = r"""
// The kernel `rows`: every team takes its units in turn; see device/rows.cuh. Shared memory holds the statistics of two
// units, then the ring.

__global__ void __launch_bounds__(kThreads, kBlocks) rows(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Team team = team_of_block((int)a.team);
  const Shares shares = shares_of(a, team);
  const int rounds = (int)a.rounds + (team.number < (int)a.rest ? 1 : 0);
  Ring ring = ring_of_thread(a, shares, team, rounds, memory + kSharedBytes);
  run_units(a, shares, team, ring, shared, rounds);
}
"""

FORWARD_ROWS_1 = r"""
typedef float real;
constexpr int kThreads = 512, kWarps = kThreads / 32, kBlocks = 1, kVector = 4, kPieces = 2,
              kElements = kVector, kRing = 14, kRingBytes = 32 * kThreads, kChannels = 320,
              kUnitChannels = 10, kSharedBytes = 1536, kAgain = 0, kFirstDistance = 1, kEndDistance = 32;
typedef int Count;
"""

FORWARD_ROWS_2 = r"""
// Sweep 0: its statistics, and these while a thread adds elements to them.
struct Sums0 {
  static constexpr int kChannels = 1;
  Moments<real> s3;
  __device__ void clear() { s3.clear(); }
  __device__ void merge(const Sums0& other) { s3.merge(other.s3); }
  __device__ void merge_lanes() { s3.merge_lanes(); }
};
struct Running0 {
  Running<Moments<real>> s3;
  __device__ void clear() { s3.clear(); }
  __device__ void add(const real (&results)[1][kElements], bool begins) { s3.add(results[0], begins); }
  __device__ Sums0 settled() const { return {s3.settled()}; }
};
// Sweep 1: what its program takes that does not vary over positions.
struct Channel1 {
  real shift, mean_x, rstd_x, add;
};

// What a launch hands over.
struct Arguments {
  Tensor<float> x, shift, silu, scale, saved_group_norm_mean, saved_group_norm_rstd;
  long long rounds, rest, positions, team, steps, again, lead;
  uint2* team_list0;
  double number1;  // 1.0 / (10 * h * w)
};

// Vectors of each value in the ring: those at `offset` in the tensors, which is `element` of the unit.
struct Inputs {
  Vector<float> x[kPieces];
};
__device__ inline void copy_inputs(const Arguments& a, long long offset, unsigned int slot) {
  copy_pieces(slot, a.x.data + offset);
}
__device__ inline Inputs ring_inputs(unsigned int slot) {
  Inputs inputs;
  ring_pieces(slot, inputs.x);
  return inputs;
}
__device__ inline Inputs read_inputs(const Arguments& a, long long offset) {
  Inputs inputs;
  read_pieces(a.x.data + offset, inputs.x);
  return inputs;
}

// Statistics of one unit, one number for each of its channels.
struct UnitValues {
  Sums0 totals0[Sums0::kChannels];
  real p9[kUnitChannels], p7[kUnitChannels];
  Channel1 channels1[kUnitChannels];
};
struct Shared {
  UnitValues values[2];
  Sums0 list0[2][Sums0::kChannels + kWarps];
};
static_assert(sizeof(Shared) <= kSharedBytes, "the planner's count of shared memory");
"""

FORWARD_ROWS_3 = r"""
// Sweep 0: load x
//   -> moments of x for each n,c
struct Sweep0 {
  typedef Sums0 Sums;
  typedef Running0 Running;
  typedef NoChannel Channel;
  static constexpr int kResults = 1;
  static constexpr bool kByChannel = false, kStatistics = true;
  static __device__ void program(const Channel& channel, const Inputs& inputs, int piece, int i,
                                 real (&results)[kResults][kVector]) {
    const real x = element_at(inputs.x[piece], i);
    results[0][i] = x;
  }
  static __device__ void store(const Arguments& a, long long offset,
                               const real (&results)[kResults][kVector]) {}
};
// Sweep 1: load x
//   -> output silu
struct Sweep1 {
  typedef NoSums Sums;
  typedef NoSums Running;
  typedef Channel1 Channel;
  static constexpr int kResults = 1;
  static constexpr bool kByChannel = true, kStatistics = false;
  static __device__ void parameters(const Arguments& a, const Unit& unit, int c, Channel& channel) {
    channel.shift = to_real(a.shift.at(unit.n, unit.first_channel + c));
  }
  static __device__ void statistics(const Arguments& a, const Unit& unit, int c, Channel& channel) {
    channel.mean_x = unit.values->totals0[0].s3.first;
    channel.rstd_x = unit.values->p7[c];
    channel.add = unit.values->p9[c];
  }
  static __device__ void program(const Channel& channel, const Inputs& inputs, int piece, int i,
                                 real (&results)[kResults][kVector]) {
    const real x = element_at(inputs.x[piece], i);
    const real t8 = (x - channel.mean_x) * channel.rstd_x * channel.add + channel.shift;
    results[0][i] = t8 * sigmoid(t8);
  }
  static __device__ void store(const Arguments& a, long long offset,
                               const real (&results)[kResults][kVector]) {
    store_vector(a.silu.data + offset, results[0]);
  }
};
template <class Crew>
__device__ void finalise_0(const Arguments& a, const Unit& unit) {
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {
    unit.values->p9[c] = to_real(a.scale.at(unit.n, unit.first_channel + c)) + 1.0f;  // add
  }
}
template <class Crew>
__device__ void finalise_2(const Arguments& a, const Unit& unit, const Team& team) {
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {
    const real p7_5 = unit.values->totals0[0].s3.second * (float)a.number1 + 1e-05f;
    unit.values->p7[c] = reciprocal_root(p7_5);  // rstd(x)
  }
  Crew::sync();
  if (team.member != 0) return;
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {
    if ((unit.first_channel + c) % 10 == 0) {
      assign(a.saved_group_norm_mean.at(unit.n, (unit.first_channel + c) / 10),
             unit.values->totals0[0].s3.first);
      assign(a.saved_group_norm_rstd.at(unit.n, (unit.first_channel + c) / 10), unit.values->p7[c]);
    }
  }
}
// The plan's steps for the units that the team takes in turn.
__device__ inline void run_units(const Arguments& a, const Shares& shares, const Team& team, Ring& ring,
                                 Shared& shared, int rounds) {
  {
    constexpr int round = 0;
    const Unit unit = unit_of_round(shares, team, round, shared);
    finalise_0<Block>(a, unit);
    Walk<Sweep0> walk = begin_walk<Sweep0>(shares, unit, (NoChannel*)0, shared.list0[round % 2]);
    sweep_first<false>(a, shares, team, ring, walk);
    give_by_block(shares, team, shared.list0[round % 2],
                  team_list(unit.values->totals0, a.team_list0, team, round));
    if (is_first_warp()) prepare_parameters<Warp, Sweep1>(a, unit, unit.values->channels1);
  }
  for (int round = 0; round < rounds; ++round) {
    const Unit unit = unit_of_round(shares, team, round, shared);
    if (is_first_warp()) {
      take_statistics<Warp>(shares, team, team_list(unit.values->totals0, a.team_list0, team, round));
      finalise_2<Warp>(a, unit, team);
      prepare_statistics<Warp, Sweep1>(a, unit, unit.values->channels1);
    }
    __syncthreads();
    const bool has_next = round + 1 < rounds;
    const Unit following = unit_of_round(shares, team, round + 1, shared);
    if (has_next) {
      finalise_0<Block>(a, following);
    }
    if (has_next && is_first_warp())
      prepare_parameters<Warp, Sweep1>(a, following, following.values->channels1);
    Walk<Sweep1> walk = begin_walk<Sweep1>(shares, unit, unit.values->channels1, (NoSums*)0);
    Walk<Sweep0> next = begin_walk<Sweep0>(shares, following, (NoChannel*)0, shared.list0[(round + 1) % 2]);
    sweep_last(a, shares, team, ring, walk, next, has_next,
               team_list(following.values->totals0, a.team_list0, team, round + 1));
  }
}
"""

BACKWARD_ROWS_1 = r"""
typedef float real;
constexpr int kThreads = 512, kWarps = kThreads / 32, kBlocks = 1, kVector = 4, kPieces = 2,
              kElements = kVector, kRing = 6, kRingBytes = 64 * kThreads, kChannels = 320, kUnitChannels = 10,
              kSharedBytes = 3840, kAgain = 1, kFirstDistance = 1, kEndDistance = 32;
typedef int Count;
"""

BACKWARD_ROWS_2 = r"""
// Sweep 0: what its program takes that does not vary over positions.
struct Channel0 {
  real shift, saved_group_norm_mean, saved_group_norm_rstd, add;
};
// Sweep 0: its statistics, and these while a thread adds elements to them.
struct Sums0 {
  static constexpr int kChannels = kUnitChannels;
  Sum<real> s13, s17;
  __device__ void clear() { s13.clear(), s17.clear(); }
  __device__ void merge(const Sums0& other) { s13.merge(other.s13), s17.merge(other.s17); }
  __device__ void merge_lanes() { s13.merge_lanes(), s17.merge_lanes(); }
};
struct Running0 {
  Running<Sum<real>> s13, s17;
  __device__ void clear() { s13.clear(), s17.clear(); }
  __device__ void add(const real (&results)[2][kElements], bool begins) {
    s13.add(results[0], begins), s17.add(results[1], begins);
  }
  __device__ Sums0 settled() const { return {s13.settled(), s17.settled()}; }
};
// Sweep 1: what its program takes that does not vary over positions.
struct Channel1 {
  real shift, saved_group_norm_mean, saved_group_norm_rstd, add, mean, mean2;
};

// What a launch hands over.
struct Arguments {
  Tensor<float> x, d_silu, shift, saved_group_norm_mean, saved_group_norm_rstd, d_x, scale, d_scale, d_shift;
  long long rounds, rest, positions, team, steps, again, lead;
  uint2* team_list0;
  double number1;  // 1.0 / (h * w)
};

// Vectors of each value in the ring: those at `offset` in the tensors, which is `element` of the unit.
struct Inputs {
  Vector<float> x[kPieces], d_silu[kPieces];
};
__device__ inline void copy_inputs(const Arguments& a, long long offset, unsigned int slot) {
  copy_pieces(slot, a.x.data + offset);
  copy_pieces(slot + 32 * kThreads, a.d_silu.data + offset);
}
__device__ inline Inputs ring_inputs(unsigned int slot) {
  Inputs inputs;
  ring_pieces(slot, inputs.x);
  ring_pieces(slot + 32 * kThreads, inputs.d_silu);
  return inputs;
}
__device__ inline Inputs read_inputs(const Arguments& a, long long offset) {
  Inputs inputs;
  read_pieces(a.x.data + offset, inputs.x);
  read_pieces(a.d_silu.data + offset, inputs.d_silu);
  return inputs;
}

// Statistics of one unit, one number for each of its channels.
struct UnitValues {
  Sums0 totals0[Sums0::kChannels];
  real p9[kUnitChannels];
  Sum<real> p21[kUnitChannels], p22[kUnitChannels];
  real p24[kUnitChannels];
  Sum<real> p27[kUnitChannels], p28[kUnitChannels];
  real p30[kUnitChannels];
  Channel0 channels0[kUnitChannels];
  Channel1 channels1[kUnitChannels];
};
struct Shared {
  UnitValues values[2];
  Sums0 list0[2][Sums0::kChannels + kWarps];
};
static_assert(sizeof(Shared) <= kSharedBytes, "the planner's count of shared memory");
"""

BACKWARD_ROWS_3 = r"""
// Sweep 0: load x, d_silu
//   -> sum of d_add2 for each n,c
//   -> sum of value2 for each n,c
struct Sweep0 {
  typedef Sums0 Sums;
  typedef Running0 Running;
  typedef Channel0 Channel;
  static constexpr int kResults = 2;
  static constexpr bool kByChannel = true, kStatistics = true;
  static __device__ void parameters(const Arguments& a, const Unit& unit, int c, Channel& channel) {
    channel.shift = to_real(a.shift.at(unit.n, unit.first_channel + c));
  }
  static __device__ void statistics(const Arguments& a, const Unit& unit, int c, Channel& channel) {
    channel.saved_group_norm_mean =
        to_real(a.saved_group_norm_mean.at(unit.n, (unit.first_channel + c) / 10));
    channel.saved_group_norm_rstd =
        to_real(a.saved_group_norm_rstd.at(unit.n, (unit.first_channel + c) / 10));
    channel.add = unit.values->p9[c];
  }
  static __device__ void program(const Channel& channel, const Inputs& inputs, int piece, int i,
                                 real (&results)[kResults][kVector]) {
    const real x = element_at(inputs.x[piece], i);
    const real d_silu = element_at(inputs.d_silu[piece], i);
    const real t6 = (x - channel.saved_group_norm_mean) * channel.saved_group_norm_rstd;
    const real t9 = t6 * channel.add + channel.shift;
    const real t10 = sigmoid(t9);
    const real t16 = d_silu * (t10 + t9 * (t10 * (1.0f - t10)));
    results[0][i] = t16;
    results[1][i] = t16 * t6;
  }
  static __device__ void store(const Arguments& a, long long offset,
                               const real (&results)[kResults][kVector]) {}
};
// Sweep 1: load x, d_silu
//   -> output d_x
struct Sweep1 {
  typedef NoSums Sums;
  typedef NoSums Running;
  typedef Channel1 Channel;
  static constexpr int kResults = 1;
  static constexpr bool kByChannel = true, kStatistics = false;
  static __device__ void parameters(const Arguments& a, const Unit& unit, int c, Channel& channel) {
    channel.shift = to_real(a.shift.at(unit.n, unit.first_channel + c));
  }
  static __device__ void statistics(const Arguments& a, const Unit& unit, int c, Channel& channel) {
    channel.saved_group_norm_mean =
        to_real(a.saved_group_norm_mean.at(unit.n, (unit.first_channel + c) / 10));
    channel.saved_group_norm_rstd =
        to_real(a.saved_group_norm_rstd.at(unit.n, (unit.first_channel + c) / 10));
    channel.add = unit.values->p9[c];
    channel.mean = unit.values->p24[c];
    channel.mean2 = unit.values->p30[c];
  }
  static __device__ void program(const Channel& channel, const Inputs& inputs, int piece, int i,
                                 real (&results)[kResults][kVector]) {
    const real x = element_at(inputs.x[piece], i);
    const real d_silu = element_at(inputs.d_silu[piece], i);
    const real t6 = (x - channel.saved_group_norm_mean) * channel.saved_group_norm_rstd;
    const real t9 = t6 * channel.add + channel.shift;
    const real t10 = sigmoid(t9);
    const real t22 =
        d_silu * (t10 + t9 * (t10 * (1.0f - t10))) * channel.add - channel.mean - t6 * channel.mean2;
    results[0][i] = channel.saved_group_norm_rstd * t22;
  }
  static __device__ void store(const Arguments& a, long long offset,
                               const real (&results)[kResults][kVector]) {
    store_vector(a.d_x.data + offset, results[0]);
  }
};
template <class Crew>
__device__ void finalise_0(const Arguments& a, const Unit& unit) {
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {
    unit.values->p9[c] = to_real(a.scale.at(unit.n, unit.first_channel + c)) + 1.0f;  // add
  }
}
template <class Crew>
__device__ void finalise_2(const Arguments& a, const Unit& unit, const Team& team) {
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {
    const real p19 = unit.values->totals0[c].s13.first * (float)a.number1;  // part19
    const real p20 = p19 * unit.values->p9[c];                              // part20
    unit.values->p21[c] = {p20};                                            // sum(part20)
  }
  Crew::sync();
  // sum of groups(sum(part20))
  merge_groups<Crew, kUnitChannels, 10>(unit.values->p22,
                                        [&](int c) { return Sum<real>{unit.values->p21[c].first}; });
  Crew::sync();
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {
    unit.values->p24[c] = unit.values->p22[c].first * 0.1f;                 // mean
    const real p25 = unit.values->totals0[c].s17.first * (float)a.number1;  // part25
    const real p26 = unit.values->p9[c] * p25;                              // part26
    unit.values->p27[c] = {p26};                                            // sum(part26)
  }
  Crew::sync();
  // sum of groups(sum(part26))
  merge_groups<Crew, kUnitChannels, 10>(unit.values->p28,
                                        [&](int c) { return Sum<real>{unit.values->p27[c].first}; });
  Crew::sync();
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {
    unit.values->p30[c] = unit.values->p28[c].first * 0.1f;  // mean2
  }
  Crew::sync();
  if (team.member != 0) return;
  for (int c = Crew::thread(); c < kUnitChannels; c += Crew::kCrewThreads) {
    assign(a.d_scale.at(unit.n, unit.first_channel + c), unit.values->totals0[c].s17.first);
    assign(a.d_shift.at(unit.n, unit.first_channel + c), unit.values->totals0[c].s13.first);
  }
}
// The plan's steps for the units that the team takes in turn.
__device__ inline void run_units(const Arguments& a, const Shares& shares, const Team& team, Ring& ring,
                                 Shared& shared, int rounds) {
  {
    constexpr int round = 0;
    const Unit unit = unit_of_round(shares, team, round, shared);
    finalise_0<Block>(a, unit);
    prepare_parameters<Block, Sweep0>(a, unit, unit.values->channels0);
    prepare_statistics<Block, Sweep0>(a, unit, unit.values->channels0);
    __syncthreads();
    Walk<Sweep0> walk = begin_walk<Sweep0>(shares, unit, unit.values->channels0, shared.list0[round % 2]);
    sweep_first<false>(a, shares, team, ring, walk);
    give_by_block(shares, team, shared.list0[round % 2],
                  team_list(unit.values->totals0, a.team_list0, team, round));
  }
  for (int round = 0; round < rounds; ++round) {
    const Unit unit = unit_of_round(shares, team, round, shared);
    prepare_parameters<Block, Sweep1>(a, unit, unit.values->channels1);
    take_statistics<Block>(shares, team, team_list(unit.values->totals0, a.team_list0, team, round));
    finalise_2<Block>(a, unit, team);
    prepare_statistics<Block, Sweep1>(a, unit, unit.values->channels1);
    __syncthreads();
    const bool has_next = round + 1 < rounds;
    const Unit following = unit_of_round(shares, team, round + 1, shared);
    if (has_next) {
      finalise_0<Block>(a, following);
      prepare_parameters<Block, Sweep0>(a, following, following.values->channels0);
      prepare_statistics<Block, Sweep0>(a, following, following.values->channels0);
      __syncthreads();
    }
    Walk<Sweep1> walk = begin_walk<Sweep1>(shares, unit, unit.values->channels1, (NoSums*)0);
    Walk<Sweep0> next =
        begin_walk<Sweep0>(shares, following, following.values->channels0, shared.list0[(round + 1) % 2]);
    sweep_last(a, shares, team, ring, walk, next, has_next,
               team_list(following.values->totals0, a.team_list0, team, round + 1));
  }
}
"""

HOST = r"""
// Launches one of the kernels; returns CUDA's error, 0 for none.
extern "C" int launch(int kernel, void* arguments, unsigned int blocks, unsigned int threads,
                      unsigned int shared_bytes, int cooperative, cudaStream_t stream) {
  const void* const kernels[] = {(const void*)forward_rows::rows, (const void*)backward_rows::rows};
  const void* entry = kernels[kernel];
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const cudaError_t error = cudaFuncSetAttribute(entry, attribute, (int)shared_bytes)) return error;
  if (!cooperative) return cudaLaunchKernel(entry, blocks, threads, &arguments, shared_bytes, stream);
  return cudaLaunchCooperativeKernel(entry, blocks, threads, &arguments, shared_bytes, stream);
}
"""

KERNELS = {
    "forward_rows": (FORWARD_ROWS_1, PRIMITIVES, FORWARD_ROWS_2, ROWS, FORWARD_ROWS_3, ROWS_KERNEL),
    "backward_rows": (BACKWARD_ROWS_1, PRIMITIVES, BACKWARD_ROWS_2, ROWS, BACKWARD_ROWS_3, ROWS_KERNEL),
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


@functools.cache
def divide_rows(units, chunks, blocks, warps, ring, step_bytes, single=False, again=True, is_long=False):
    """Blocks of a team, teams at work, and chunks of a warp, of the least cost.

    Costs are in the time in which a multiprocessor reads 16 KB, fitted to an H200. `ring`: chunks of a warp
    that shared memory holds; `single`: one sweep keeps none; `again`: others may be read again, from L2;
    `is_long`: chunks of many vectors.
    """
    piece, again_cost, least_room = (0.955, 0.75, 3) if is_long else (1, 0.43, 4)
    best = (float("inf"), 1, 1, 1)
    for team in range(1, blocks + 1):
        teams, steps = min(blocks // team, units), -(-chunks // (team * warps))
        kept = steps if single and ring else min(steps, ring)
        if (team - 1) * warps * steps >= chunks or (kept < steps and not again):
            continue  # a block without elements, or a unit that does not fit
        rounds, reading = -(-units // teams), step_bytes / 16384 * piece * steps
        room = ring if single else ring - kept
        no_room = 1.5 if is_long and kept == steps else 0.5
        merging = (0.4 if team == 1 else 2.4) + (no_room if room < least_room and rounds > 1 else 0)
        cost = rounds * (reading * (1 + again_cost * (1 - kept / steps)) + merging) + 0.27 * reading
        best = min(best, (cost + (0 if team == 1 else 1.3), team, teams, steps))
    return best[1:]


def takes(x, scale, shift):
    """Whether the kernels take these tensors."""
    tensors = (x, scale, shift)
    if not x.is_cuda or x.dim() != 4 or torch.is_autocast_enabled() or torch.compiler.is_compiling():
        return False
    n, _, h, w = x.shape
    gpu = torch.cuda.get_device_properties(x.device)
    return (
        gpu.major >= 8
        and gpu.shared_memory_per_multiprocessor >= 233472
        and all(t.device == x.device and t.dtype == torch.float32 for t in tensors)
        and [t.shape for t in tensors] == [(n, 320, h, w), (n, 320, 1, 1), (n, 320, 1, 1)]
        and x.numel() > 0
        and h * w % 256 == 0
        and 10 * h * w <= gpu.multi_processor_count * 57344
        and 10 * h * w < 1000000000
    )


def by_pytorch(x, scale, shift):
    """The block by PyTorch's operators."""
    group_norm = F.group_norm(x, 32, eps=1e-05)
    add = 1 + scale
    mul = group_norm * add
    add_1 = mul + shift
    return F.silu(add_1)


class Block(torch.autograd.Function):
    """The block and its gradients by the kernels."""

    @staticmethod
    def forward(ctx, x, scale, shift):
        x, scale, shift = map(lay_out, (x, scale, shift))
        n, _, h, w = x.shape
        silu = torch.empty_like(x)
        group_norm_mean, group_norm_rstd = map(x.new_empty, [(n, 32), (n, 32)])
        multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
        units = n * 32
        chunks = (10 * h * w + 256 - 1) // 256
        team, teams, steps = divide_rows(units, chunks, multiprocessors, 16, 14, 16384, again=False)
        (team_list0,) = zeros(x, (team > 1) * 2 * teams * (10 + team) * 24)
        tensors = [x, shift, silu, scale, group_norm_mean, group_norm_rstd]
        numbers = [units // teams, units % teams, h * w, team, steps, 0, min(12 - min(steps, 14), steps)]
        numbers += [team_list0, 1.0 / (10 * h * w)]
        axes = "nchw nchw nchw nchw nc nc"
        launch("forward_rows", team * teams, 512, 230912, team > 1, tensors, axes, numbers)
        ctx.save_for_backward(x, scale, shift, group_norm_mean, group_norm_rstd)
        return silu

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_silu):
        x, scale, shift, group_norm_mean, group_norm_rstd = ctx.saved_tensors
        d_silu = lay_out(d_silu)
        n, _, h, w = x.shape
        d_x = torch.empty_like(x)
        d_scale, d_shift = map(x.new_empty, [(n, 320, 1, 1), (n, 320, 1, 1)])
        multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
        units = n * 32
        chunks = (10 * h * w + 256 - 1) // 256
        team, teams, steps = divide_rows(units, chunks, multiprocessors, 16, 6, 32768)
        (team_list0,) = zeros(x, (team > 1) * 2 * teams * (10 + team) * 16)
        tensors = [x, d_silu, shift, group_norm_mean, group_norm_rstd, d_x, scale, d_scale, d_shift]
        numbers = [units // teams, units % teams, h * w, team, steps, max(steps - 6, 0)]
        numbers += [min(4 - min(steps, 6), steps), team_list0, 1.0 / (h * w)]
        axes = "nchw nchw nchw nc nc nchw nchw nchw nchw"
        launch("backward_rows", team * teams, 512, 200448, team > 1, tensors, axes, numbers)
        return d_x, d_scale, d_shift


def block(x, scale, shift):
    """The block `group_norm = group_norm(x, 32, affine=false); add = add(scale, 1); mul = mul(group_norm, add); add2 = add(mul, shift); silu = silu(add2); return silu`."""
    return (Block.apply if takes(x, scale, shift) else by_pytorch)(x, scale, shift)


class ModelNew(nn.Module):
    def __init__(self, channels, groups, embedding_channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, affine=False)
        self.proj = nn.Linear(embedding_channels, 2 * channels)
        if repr(self.norm) != (exported := "GroupNorm(32, 320, eps=1e-05, affine=False)"):
            raise ValueError(f"norm: expected {exported}, as exported, got {self.norm}")

    def forward(self, x, emb):
        silu = F.silu(emb)
        proj = self.proj(silu)
        getitem = proj[:, :, None, None]
        chunk = getitem.chunk(2, dim=1)
        scale = chunk[0]
        shift = chunk[1]
        return block(x, scale, shift)
