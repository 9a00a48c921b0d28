// Strips of the kernel `conv_roll` whose products have the positions' elements in registers: which positions
// they have, their input in shared memory, and how a lane reads it. It stands in place of
// device/conv_roll_tile.cuh and of a file that stages the input, for filters of three or four columns.
//
// A block has kSquads squads of threads, which take strips by themselves, each with stages of its own.
//
// The result's columns are cut into bands of kTileW. The positions of a plane of a band are numbered row by
// row, kPitch a row, of which the last kPitch - kTileW are not there. A strip is kStrip of them, one behind
// the other, with a segment of the depths. The input of one plane of a strip lies in shared memory as it is,
// channel by channel, kPitch columns a row: so a tap of the filter is one offset for all positions, and each
// element is rounded and put once. Of 16 bits elements are made numbers of f32 there, which products take as
// tf32 without rounding.
//
// Lane t of the four that have a position's elements reads column t of a row of the filter, in each slot
// another row or channel; where filters are three columns wide the fourth lane has the taps of rows that have
// no slot, and where there are no more of these an element of the position's own that meets weights of 0. An
// infinity there makes a NaN of a sum that is not finite either way.
//
// Before this stand the constants, Arguments and input_data, input_offset and input_steps, the tensor that is
// convolved.

__device__ inline unsigned int bits_of(bf16 x) { return x.bits; }
__device__ inline unsigned int bits_of(f16 x) { return x.bits; }
__device__ inline unsigned int bits_of(float x) { return __float_as_uint(x); }

constexpr int kRowBytes = 16;
constexpr int kTf32 = 0, kStrict = 1, k16Bits = 2;
constexpr int kParts = kMode == kStrict ? 2 : 1;  // that a number is taken as the sum of
constexpr int kPitch = kTileW + (kFilterW - 1) * kDilationW;
constexpr int kSquadThreads = kThreads / kSquads;
constexpr int kStrip = kSquadThreads / 2 * kTiles;
// Elements of a strip's plane, of one channel. Channels are half of all banks of shared memory apart.
constexpr int kSpan = kStrip + (kFilterH - 1) * kDilationH * kPitch + (kFilterW - 1) * kDilationW;
constexpr int kChannelStep = (kSpan + 15) / 32 * 32 + 16;
constexpr int kPartStep = kInChannels * kChannelStep;
constexpr int kStageFloats = kParts * kPartStep;
// As many planes are staged as divide the depths of the filter, so that the place of a plane is part of an
// instruction.
__device__ constexpr int stages() {
  int number = 2;
  while (kFilterD % number != 0) ++number;
  return number;
}
constexpr int kStages = stages();

// Rows of the filter, of one channel each, and how many of them have slots.
constexpr int kFilterRows = kInChannels * kFilterH;
constexpr int kSlots = ((kFilterW == 4 ? kFilterRows : (3 * kFilterRows + 3) / 4) + 1) / 2 * 2;
constexpr int kOwnSlots = kFilterRows < kSlots ? kFilterRows : kSlots;
constexpr int kLeftTaps = (kFilterRows - kOwnSlots) * kFilterW;  // which the fourth lane has
static_assert(kFilterW == 4 ? kLeftTaps == 0 : kFilterW == 3 && kLeftTaps <= kOwnSlots, "taps have slots");

namespace squad {

// The same in all lanes, so that the compiler knows it.
__device__ inline int number() {
  return kSquads == 1 ? 0 : __shfl_sync(0xffffffffu, (int)threadIdx.x / kSquadThreads, 0);
}
__device__ inline int thread() { return kSquads == 1 ? (int)threadIdx.x : (int)threadIdx.x % kSquadThreads; }
// Until all threads of the squad are here. Barrier 0 is the block's.
__device__ inline void sync(int squad) {
  if (kSquads == 1)
    __syncthreads();
  else
    asm volatile("bar.sync %0, %1;" ::"r"(squad + 1), "r"(kSquadThreads) : "memory");
}

}  // namespace squad

// A position of the tensor, a tap of the filter.
__device__ inline Position position_at(int d, int h, int w) { return Position{d, h, w}; }

// Where products look for a tap: rows of the filter by channels, of which the first comes last.
struct Tap {
  int slot, element;
};
__device__ inline Tap tap_of(int c, int h, int w) {
  const int row = (c + kInChannels - 1) % kInChannels * kFilterH + h;
  return row < kOwnSlots ? Tap{row, w} : Tap{(row - kOwnSlots) * kFilterW + w, 3};
}
// How far behind a position's first element the first of a row of the filter lies.
__device__ constexpr int row_offset(int row) {
  return (row / kFilterH + 1) % kInChannels * kChannelStep + row % kFilterH * kDilationH * kPitch;
}

// A strip by its first position, its band's first column, and its first depth; so many planes of the input
// are met.
struct Strip {
  int first, column, depth, planes;

  // The strip behind it, which is beyond the last band where there are no more.
  __device__ void move(const Arguments& a) {
    depth += (int)a.depths;
    if (depth >= (int)a.out_d) {
      depth = 0;
      first += kStrip;
      if (first >= (int)a.strips * kStrip) {
        first = 0;
        column += kTileW;
      }
    }
    planes = min((int)a.depths, (int)a.out_d - depth) + kFilterD - 1;
  }
};
__device__ inline Strip strip_of(const Arguments& a, int tile) {
  // Divisions are many instructions.
  const int strip = a.segments == 1 ? tile : tile / (int)a.segments;
  const int band = strip < (int)a.strips ? 0 : strip / (int)a.strips;
  const int depth = (tile - strip * (int)a.segments) * (int)a.depths;
  const int depths = min((int)a.depths, (int)a.out_d - depth);
  return {(strip - band * (int)a.strips) * kStrip, band * kTileW, depth, depths + kFilterD - 1};
}

// The elements that a thread stages, kVector4 neighbours each time, the same in all planes: where the first
// lie in the tensor, how far behind them the others, and a bit for each time that they are there. In a plane
// without padding, which is one run of memory, elements beyond its end are other ones of it: no position that
// is there reads them.
constexpr int kVector4 = kLinear != 0 ? 4 : 1;
constexpr int kVectors = (kSpan + kVector4 - 1) / kVector4;  // of a channel
constexpr int kFetches = (kInChannels * kVectors + kSquadThreads - 1) / kSquadThreads;
struct Rows {
  const Element* first;
  Offset behind[kFetches];
  unsigned int inside;
};
// Where a thread's elements go in a stage.
__device__ inline int place_in_stage(int i) {
  const int number = squad::thread() + i * kSquadThreads, c = number / kVectors;
  return c * kChannelStep + (number - c * kVectors) * kVector4;
}

// Of the plane that begins at `data`.
__device__ inline Rows rows_of(const Arguments& a, const Strip& strip, const Element* data) {
  const InputSteps steps = input_steps(a);
  Rows rows;
  rows.inside = 0;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const int number = squad::thread() + i * kSquadThreads, c = number / kVectors;
    const int p = strip.first + (number - c * kVectors) * kVector4;
    if constexpr (kLinear != 0) {
      rows.behind[i] = min(c, kInChannels - 1) * steps.c + min(p, (int)(a.in_h * a.in_w) - kVector4);
    } else {
      const int y = p / kPitch - kPadH, x = strip.column + p % kPitch - kPadW;
      rows.behind[i] = c * steps.c + y * steps.h + x * steps.w;
      if (c < kInChannels && y >= 0 && y < (int)a.in_h && x >= 0 && x < (int)a.in_w) rows.inside |= 1u << i;
    }
  }
  rows.first = data + rows.behind[0];
#pragma unroll
  for (int i = kFetches - 1; i >= 0; --i) rows.behind[i] -= rows.behind[0];
  return rows;
}

// Words as they were read: what becomes of their elements would wait for them.
constexpr int kWords = (kVector4 * (int)sizeof(Element) + 3) / 4;
struct Fetched {
  unsigned int words[kFetches][kWords];
};

// Reads a thread's elements of a plane; none where it is not `there`.
__device__ inline Fetched fetch(bool there, const Rows& rows) {
  Fetched fetched;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const Element* from = i == 0 ? rows.first : rows.first + rows.behind[i];
    if constexpr (kWords == 4) {
      const uint4 found = *reinterpret_cast<const uint4*>(from);
      fetched.words[i][0] = found.x, fetched.words[i][1 % kWords] = found.y;
      fetched.words[i][2 % kWords] = found.z, fetched.words[i][3 % kWords] = found.w;
    } else if constexpr (kWords == 2) {
      const uint2 found = *reinterpret_cast<const uint2*>(from);
      fetched.words[i][0] = found.x, fetched.words[i][1 % kWords] = found.y;
    } else {
      fetched.words[i][0] = there && (rows.inside >> i & 1) ? bits_of(*from) : 0;
    }
  }
  return fetched;
}

// What products take of a number: the nearest tf32, which one of 16 bits is, and in strict mode the rest. They
// ignore lower bits.
__device__ inline void take_apart(float x, float& large, float& small) {
  if (kMode == k16Bits) {
    large = x;
    return;
  }
  if (kMode == kTf32) {
    // Half of what the last bit that counts is worth, away from 0; NaN and infinities stay what they are.
    const float power = __uint_as_float(__float_as_uint(x) & 0xff800000u);
    large = fmaf(power, 0.00048828125f, x);
    return;
  }
  large = to_tf32(x);
  small = __uint_as_float(rest_of(x, large));
}

__device__ inline void put_some(const float (&values)[kVector4], float* to) {
  if constexpr (kVector4 == 4)
    *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
  else
    to[0] = values[0];
}
// `first` is where a thread's first elements go.
__device__ inline void put(const Fetched& fetched, float* first) {
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    if (kInChannels * kVectors % kSquadThreads != 0 && i == kFetches - 1 &&
        squad::thread() + i * kSquadThreads >= kInChannels * kVectors)
      continue;
    float* to = i == 0 ? first : first + (place_in_stage(i) - place_in_stage(0));
    float large[kVector4], small[kVector4];
    const Element* elements = reinterpret_cast<const Element*>(fetched.words[i]);
#pragma unroll
    for (int e = 0; e < kVector4; ++e) take_apart(to_real(elements[e]), large[e], small[e]);
    put_some(large, to);
    if (kMode == kStrict) put_some(small, to + kPartStep);
  }
}

// Which of a lane's positions of product m are there, a bit for each: rows g and g + 8 of a warp's 16.
__device__ inline unsigned int inside_of(const Arguments& a, const Strip& strip, int m) {
  const int thread = squad::thread();
  unsigned int inside = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int p = strip.first + m * (kSquadThreads / 2) + thread / 128 * 64 + thread / 32 % 4 * 16 + i * 8 +
                  thread % 32 / 4;
    const int h = p / kPitch, place = p % kPitch;
    if (place < kTileW && strip.column + place < (int)a.out_w && h < (int)a.out_h) inside |= 1u << i;
  }
  return inside;
}

// Shared memory by addresses, the same every time a plane comes by: with numbers added to them that are part
// of the instruction.
template <int kBytes>
__device__ inline float read_at(unsigned int address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1 + %2];" : "=f"(value) : "r"(address), "n"(kBytes) : "memory");
  return value;
}
// Two neighbours.
template <int kBytes>
__device__ inline void read_pair(unsigned int address, float& first, float& second) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2 + %3];"
               : "=f"(first), "=f"(second)
               : "r"(address), "n"(kBytes)
               : "memory");
}

// Where a lane's taps of its first position lie in the first stage: the first slot's of its own column, and
// those of rows that have no slot.
struct Taps {
  unsigned int column;
  unsigned int left[kLeftTaps + 1];
};
__device__ inline Taps taps_of_lane(const float* stage) {
  const int thread = squad::thread(), t = thread % 4;
  const float* first = stage + thread / 128 * 64 + thread / 32 % 4 * 16 + thread % 32 / 4;
  auto address_of = [](const float* place) { return (unsigned int)__cvta_generic_to_shared(place); };
  Taps taps;
  taps.column = address_of(first + (t < kFilterW ? t : 0) * kDilationW);
#pragma unroll
  for (int slot = 0; slot < kLeftTaps; ++slot)
    taps.left[slot] =
        t < kFilterW
            ? taps.column + row_offset(slot) * 4
            : address_of(first + row_offset(kOwnSlots + slot / kFilterW) + slot % kFilterW * kDilationW);
  return taps;
}

// A lane's elements of product m: of positions g and g + 8 of its warp's 16, in each slot. One load a number:
// pairs of neighbouring positions would be half of the loads, but take shared memory longer.
struct Factors {
  float values[kSlots][2];
};
template <int kFirstSlot, int kProduct, int kStage, int kPart>
__device__ inline void read_factors(const Taps& taps, Factors& factors) {
  if constexpr (kFirstSlot < kSlots) {
    constexpr int kBytes = 4 * (kStage * kStageFloats + kPart * kPartStep + kProduct * (kSquadThreads / 2));
    constexpr int kRow = 4 * row_offset(kFirstSlot < kOwnSlots ? kFirstSlot : 0);
    constexpr bool kIsLeft = kFirstSlot < kLeftTaps;
    const unsigned int from = kIsLeft ? taps.left[kIsLeft ? kFirstSlot : 0] : taps.column;
    factors.values[kFirstSlot][0] = read_at<kBytes + (kIsLeft ? 0 : kRow)>(from);
    factors.values[kFirstSlot][1] = read_at<kBytes + (kIsLeft ? 0 : kRow) + 32>(from);
    read_factors<kFirstSlot + 1, kProduct, kStage, kPart>(taps, factors);
  }
}

constexpr int kBlockSums = kNTiles * 4;       // of a lane, for one depth
constexpr int kSums = kFilterD * kBlockSums;  // in one product
constexpr int kWeightBlock = kNTiles * 8;     // rows of weights of one depth of the filter
constexpr int kWeightRows = (2 * kFilterD - 1) * kWeightBlock;

// What a thread block prepares once: weights as [part][slot][depth of the filter, channel][lane]. Depths
// stand as K - 1, ..., 0, K - 1, ..., 1, so that each rotation of them is K neighbours.
struct Prepared {
  alignas(128) float weights[kParts][kSlots][kWeightRows][4];
};

// What sums begin at, by channels, and how far they are moved; each squad's own.
struct Starts {
  alignas(8) float of[kNTiles * 8];
  float moved[kNTiles * 8];
};

// Puts a weight where products look for it. Those of all depths but the first stand there twice.
__device__ inline void put_weight(Prepared& prepared, const Tap& tap, int row, float weight) {
  const float large = to_tf32(weight);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const float value = part == 0 ? large : to_tf32(weight - large);
    prepared.weights[part][tap.slot][row][tap.element] = value;
    if (row < (kFilterD - 1) * kWeightBlock)
      prepared.weights[part][tap.slot][row + kFilterD * kWeightBlock][tap.element] = value;
  }
}

// An item: its sample, which run of the sample's strips it is, and these. Divisions of 64 bits are many
// instructions.
struct Run {
  int n, number, first, end;
};
__device__ inline Run run_of(const Arguments& a, long long item) {
  if (a.sample_items == 1) return {(int)item, 0, 0, (int)a.tiles};
  const int n = (int)(item / a.sample_items), number = (int)(item - n * a.sample_items);
  return {n, number, (int)(number * a.tiles / a.sample_items),
          (int)((number + 1) * a.tiles / a.sample_items)};
}
// A squad's first strip of them.
__device__ inline int first_of_squad(const Run& run, int squad) {
  return run.first + (run.end - run.first) * squad / kSquads;
}

__device__ inline void ask_for(const void* place) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(place)));
}
// What is read of each channel; behind the program of the sweep.
__device__ inline void ask_for_channels(const Arguments& a, int n);

// The first planes of a squad's first strip come from memory while weights are prepared, and what is read of
// channels.
__device__ inline void ask_ahead(const Arguments& a) {
  const Run run = run_of(a, blockIdx.x);
  ask_for_channels(a, run.n);
  const Strip strip = strip_of(a, first_of_squad(run, squad::number()));
#pragma unroll
  for (int plane = 0; plane < 2; ++plane) {
    const int depth = strip.depth + plane - kPadD;
    const Rows rows = rows_of(a, strip, input_data(a) + input_offset(a, run.n, depth));
#pragma unroll
    for (int i = 0; i < kFetches; ++i)
      if (kLinear != 0 || ((rows.inside >> i & 1) && depth >= 0 && depth < (int)a.in_d))
        ask_for(rows.first + rows.behind[i]);
  }
}

// What a thread block does once. A thread has some taps of the filter, of one input channel each, and goes
// through output channels: their neighbours in memory are its neighbours'. The first weights are on their way
// while shared memory is cleared.
__device__ inline void prepare(const Arguments& a, Prepared& prepared) {
  constexpr int kTaps = kInChannels * kFilterD * kFilterH * kFilterW;
  constexpr int kTogether = kThreads < kTaps ? 1 : kThreads / kTaps;  // output channels at a time
  constexpr int kEach = (kChannels + kTogether - 1) / kTogether, kSome = kEach < 8 ? kEach : 8;
  constexpr int kRounds = (kEach + kSome - 1) / kSome;
  ask_ahead(a);
  const bool has_taps = kTogether == 1 || (int)threadIdx.x < kTogether * kTaps;
  const int first = kTogether == 1 ? 0 : (int)threadIdx.x / kTaps;
  int tap = kTogether == 1 ? (int)threadIdx.x : (int)threadIdx.x % kTaps;
  bool cleared = false;
#pragma unroll 1
  do {
    const bool there = has_taps && tap < kTaps;
    const int w = tap % kFilterW, h = tap / kFilterW % kFilterH;
    const int depth = tap / (kFilterW * kFilterH) % kFilterD, c = tap / (kFilterW * kFilterH * kFilterD);
    const Tap to = tap_of(c, h, w);
    const int row = (kFilterD - 1 - depth) * kWeightBlock;
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
      const int k = first + round * kSome * kTogether;
      float some[kSome];
#pragma unroll
      for (int i = 0; i < kSome; ++i)
        if (there && k + i * kTogether < kChannels)
          some[i] = weight_at(a, k + i * kTogether, c, position_at(depth, h, w));
      if (!cleared) {
#pragma unroll 1
        for (int i = (int)threadIdx.x; i < (int)(sizeof(Prepared) / kRowBytes); i += kThreads)
          reinterpret_cast<uint4*>(&prepared)[i] = make_uint4(0, 0, 0, 0);
        __syncthreads();
        cleared = true;
      }
#pragma unroll
      for (int i = 0; i < kSome; ++i)
        if (there && k + i * kTogether < kChannels)
          put_weight(prepared, to, row + k + i * kTogether, some[i]);
    }
    tap += kThreads;
  } while (kTogether == 1 && tap < kTaps);
  block::publish_rows();
}

// Adds products of one plane to a warpgroup's sums, those of its first depths or of all, which begin at 0
// where they are `fresh`. `weights` is a place in shared memory.
template <int kCount>
__device__ inline void multiply(const Factors& factors, unsigned int weights, int rotation, bool fresh,
                                float (&sums)[kCount]) {
#pragma unroll
  for (int slot = 0; slot < kSlots; slot += 2)
    warpgroup::multiply_taken(
        sums, factors.values[slot][0], factors.values[slot][1], factors.values[slot + 1][0],
        factors.values[slot + 1][1],
        matrix_at(weights + slot * kWeightRows + (kFilterD - 1 - rotation) * kWeightBlock, kWeightRows),
        fresh && slot == 0 ? 0 : 1);
}
