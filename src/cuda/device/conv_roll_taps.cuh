// Strips of the kernel `conv_roll` whose products have the positions' elements in registers: which positions
// they have, their input in shared memory, and how a lane reads it. It stands in place of
// device/conv_roll_tile.cuh and of a file that stages the input, for filters of three or four columns.
//
// A block has kSquads squads of threads, which take strips by themselves, each with stages of its own.
//
// The result's columns are cut into bands of kTileW. The positions of a plane of a band are numbered row by
// row, kPitch a row, of which the last kPitch - kTileW are not there. A strip is kStrip of them, one behind
// the other, with a segment of the depths. The input of one plane of a strip lies in shared memory as pairs
// of 16-bit numbers (device/conv_roll_pairs.cuh), kPitch columns a row, so that a tap of the filter is one
// offset for all positions: the first two channels beside each other, and of one channel or the third an
// element and the one below it, kDilationH rows on.
//
// Lane t of the four that have a position's elements reads column t of a row of the filter's pairs, in each
// slot another row; where filters are three columns wide the fourth lane has the taps of rows that have no
// slot. Of an odd number of rows below each other the last is in the pair before it, too. What meets weights
// of 0 is an element of the position's own: an infinity there makes a NaN of a sum that is not finite either
// way.
//
// Before this stands device/conv_roll_pairs.cuh with what it names.

constexpr int kRowBytes = 16;
constexpr int kPitch = kTileW + (kFilterW - 1) * kDilationW;
constexpr int kSquadThreads = kThreads / kSquads;
constexpr int kStrip = kSquadThreads / 2 * kTiles;
// Planes of pairs are half of all banks apart.
constexpr int kSpan = kStrip + (kFilterH - 1) * kDilationH * kPitch + (kFilterW - 1) * kDilationW;
constexpr int kPlaneStep = (kSpan + 15) / 32 * 32 + 16;
constexpr int kPartStep = kPairPlanes * kPlaneStep;
constexpr int kStageWords = kParts * kPartStep;
// As many planes are staged as divide the depths of the filter, so that the place of a plane is part of an
// instruction.
__device__ constexpr int stages() {
  int number = 2;
  while (kFilterD % number != 0) ++number;
  return number;
}
constexpr int kStages = stages();

// Rows of the filter's pairs, and how many of them have slots.
constexpr int kBesideRows = kBeside ? kFilterH : 0;
constexpr int kPairRows = kBesideRows + (kBelow ? (kFilterH + 1) / 2 : 0);
constexpr int kSlots = ((kFilterW == 4 ? kPairRows : (3 * kPairRows + 3) / 4) + 1) / 2 * 2;
constexpr int kOwnSlots = kPairRows < kSlots ? kPairRows : kSlots;
constexpr int kLeftTaps = (kPairRows - kOwnSlots) * kFilterW;  // which the fourth lane has
static_assert(kFilterW == 4 ? kLeftTaps == 0 : kFilterW == 3 && kLeftTaps <= kOwnSlots, "taps have slots");

namespace squad {

// The same in all lanes, so that the compiler knows it.
__device__ inline int number() {
  return kSquads == 1 ? 0 : __shfl_sync(0xffffffffu, (int)threadIdx.x / kSquadThreads, 0);
}
__device__ inline int thread_of(int number) { return kSquads == 1 ? number : number % kSquadThreads; }
__device__ inline int thread() { return thread_of((int)threadIdx.x); }
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

// Of rows below each other, which is the first of the pair that has row h.
__device__ constexpr int below_first(int h) { return h / 2 * 2 < kFilterH - 2 ? h / 2 * 2 : kFilterH - 2; }

// Where products look for a tap.
struct Tap {
  int slot, element, half;
};
__device__ inline Tap tap_of(int c, int h, int w) {
  const bool beside = kBeside && c < 2;
  const int row = beside ? h : kBesideRows + h / 2, half = beside ? c : h - below_first(h);
  return row < kOwnSlots ? Tap{row, w, half} : Tap{(row - kOwnSlots) * kFilterW + w, 3, half};
}
// How far behind a position's first word the first of a row of pairs lies.
__device__ constexpr int row_offset(int row) {
  return row < kBesideRows
             ? row * kDilationH * kPitch
             : (kBeside ? kPlaneStep : 0) + below_first(2 * (row - kBesideRows)) * kDilationH * kPitch;
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

// The words that a thread stages, kVector4 neighbours each time, the same in all planes: where the elements
// of their halves lie in the tensor, behind the first, and bits for those that are there. In a plane without
// padding, which is one run of memory, elements beyond its end are other ones of it: no position that is
// there reads them.
constexpr int kVector4 = kLinear != 0 ? 4 : 1;
constexpr int kVectors = (kSpan + kVector4 - 1) / kVector4;  // of a plane of words
constexpr int kFetches = (kPairPlanes * kVectors + kSquadThreads - 1) / kSquadThreads;
static_assert(kFetches <= 16, "two bits each");
struct Rows {
  const Element* first;
  Offset behind[kFetches][2];
  unsigned int inside;
};
// Which words a thread stages: the plane they are of, and the first's number there.
struct Words {
  int plane, first;
};
__device__ inline Words words_of(int i) {
  const int number = squad::thread() + i * kSquadThreads, plane = number / kVectors;
  return {plane, (number - plane * kVectors) * kVector4};
}
__device__ inline bool are_there(int i) {
  return kPairPlanes * kVectors % kSquadThreads == 0 || i < kFetches - 1 ||
         squad::thread() + i * kSquadThreads < kPairPlanes * kVectors;
}
__device__ inline int place_in_stage(int i) {
  const Words words = words_of(i);
  return words.plane * kPlaneStep + words.first;
}

// Of the plane that begins at `data`.
__device__ inline Rows rows_of(const Arguments& a, const Strip& strip, const Element* data) {
  const InputSteps steps = input_steps(a);
  Rows rows;
  rows.inside = 0;
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const Words words = words_of(i);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int c = channel_of_half(words.plane, half);
      const int down = half == 1 && !(kBeside && words.plane == 0) ? kDilationH : 0;
      const int p = strip.first + words.first;
      if constexpr (kLinear != 0) {
        rows.behind[i][half] = c * steps.c + min(p + down * kPitch, (int)(a.in_h * a.in_w) - kVector4);
      } else {
        const int y = p / kPitch + down - kPadH, x = strip.column + p % kPitch - kPadW;
        rows.behind[i][half] = c * steps.c + y * steps.h + x * steps.w;
        if (are_there(i) && y >= 0 && y < (int)a.in_h && x >= 0 && x < (int)a.in_w)
          rows.inside |= 1u << (2 * i + half);
      }
    }
  }
  rows.first = data + rows.behind[0][0];
#pragma unroll
  for (int i = 2 * kFetches - 1; i >= 0; --i) rows.behind[i / 2][i % 2] -= rows.behind[0][0];
  return rows;
}

// Elements as they were read: what becomes of them would wait for them.
constexpr int kElementWords = (kVector4 * (int)sizeof(Element) + 3) / 4;
struct Fetched {
  unsigned int words[kFetches][2][kElementWords];
};

// Reads a thread's elements of a plane; none where it is not `there`.
__device__ inline Fetched fetch(bool there, const Rows& rows) {
  Fetched fetched;
#pragma unroll
  for (int i = 0; i < 2 * kFetches; ++i) {
    const Element* from = i == 0 ? rows.first : rows.first + rows.behind[i / 2][i % 2];
    unsigned int(&words)[kElementWords] = fetched.words[i / 2][i % 2];
    if constexpr (kElementWords == 4) {
      const uint4 found = *reinterpret_cast<const uint4*>(from);
      words[0] = found.x, words[1 % kElementWords] = found.y;
      words[2 % kElementWords] = found.z, words[3 % kElementWords] = found.w;
    } else if constexpr (kElementWords == 2) {
      const uint2 found = *reinterpret_cast<const uint2*>(from);
      words[0] = found.x, words[1 % kElementWords] = found.y;
    } else {
      words[0] = there && (rows.inside >> i & 1) ? bits_of(*from) : 0;
    }
  }
  return fetched;
}

// What a thread's elements are multiplied by; and the largest that it has staged, by halves.
constexpr int kHeldFactors = kMode == kStrict ? kFetches : 1;  // else they are read where they are not 1
struct Staging {
  float factors[kHeldFactors][2];
  unsigned int largest[kFetches];

  __device__ float2 factors_of(const Scales& scales, int i) const {
    if (kMode == kStrict) return make_float2(factors[i % kHeldFactors][0], factors[i % kHeldFactors][1]);
    return scales
        .factors[squad::thread_of(seldom_thread()) + i * kSquadThreads < kVectors ? 0 : kPairPlanes - 1];
  }
  __device__ void begin(const Scales& scales) {
#pragma unroll
    for (int i = 0; i < kFetches; ++i) {
      largest[i] = 0;
#pragma unroll
      for (int half = 0; kMode == kStrict && half < 2; ++half)
        factors[i % kHeldFactors][half] =
            power_of_two(scales.input[channel_of_half(words_of(i).plane, half)]);
    }
  }
  // Behind the last plane.
  __device__ void end(Scales& scales) const {
#pragma unroll
    for (int i = 0; i < kFetches; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int c = 0; c < kInChannels; ++c) {
          const bool is_of = are_there(i) && channel_of_half(words_of(i).plane, half) == c;
          const unsigned int all = warp_largest(is_of ? largest[i] >> half * 16 & 0xffffu : 0);
          if (threadIdx.x % 32 == 0 && all != 0) atomicMax(&scales.largest[c], all);
        }
  }
};

// What products take of two numbers: the nearest f16 and, in strict mode, the rest.
__device__ inline void take_apart(float low, float high, unsigned int& large, unsigned int& small) {
  large = pair_of(low, high);
  if (kMode == kStrict) small = pair_of(low - low_of(large), high - high_of(large));
}

__device__ inline void put_some(const unsigned int (&words)[kVector4], unsigned int* to) {
  if constexpr (kVector4 == 4)
    *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  else
    to[0] = words[0];
}
// `first` is where a thread's first words go.
__device__ inline void put(const Fetched& fetched, const Scales& scales, bool is_scaled, Staging& staging,
                           unsigned int* first) {
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    if (!are_there(i)) continue;
    unsigned int* to = i == 0 ? first : first + (place_in_stage(i) - place_in_stage(0));
    unsigned int large[kVector4], small[kVector4];
    const Element* low = reinterpret_cast<const Element*>(fetched.words[i][0]);
    const Element* high = reinterpret_cast<const Element*>(fetched.words[i][1]);
    if constexpr (kRanged == 0) {
#pragma unroll
      for (int e = 0; e < kVector4; ++e) large[e] = bits_of(low[e]) | bits_of(high[e]) << 16;
    } else {
      float values[kVector4][2];
#pragma unroll
      for (int e = 0; e < kVector4; ++e) values[e][0] = to_real(low[e]), values[e][1] = to_real(high[e]);
      if (kMode == kStrict || is_scaled) {
        const float2 factors = staging.factors_of(scales, i);
#pragma unroll
        for (int e = 0; e < kVector4; ++e) values[e][0] *= factors.x, values[e][1] *= factors.y;
      }
#pragma unroll
      for (int e = 0; e < kVector4; ++e) {
        take_apart(values[e][0], values[e][1], large[e], small[e]);
        if (kVector4 == 1 || e % 2 == 1)
          staging.largest[i] =
              larger_of(staging.largest[i], large[e], kVector4 == 1 ? large[e] : large[e - e % 2]);
      }
    }
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
__device__ inline unsigned int read_at(unsigned int address) {
  unsigned int value;
  asm volatile("ld.shared.u32 %0, [%1 + %2];" : "=r"(value) : "r"(address), "n"(kBytes) : "memory");
  return value;
}
// Two neighbouring numbers.
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
__device__ inline Taps taps_of_lane(const unsigned int* stage) {
  const int thread = squad::thread(), t = thread % 4;
  const unsigned int* first = stage + thread / 128 * 64 + thread / 32 % 4 * 16 + thread % 32 / 4;
  auto address_of = [](const unsigned int* place) { return (unsigned int)__cvta_generic_to_shared(place); };
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

// A lane's words of product m: of positions g and g + 8 of its warp's 16, in each slot. One load a word: two
// neighbouring positions at once would be half of the loads, but take shared memory longer.
struct Factors {
  unsigned int words[kSlots][2];
};
template <int kFirstSlot, int kProduct, int kStage, int kPart>
__device__ inline void read_factors(const Taps& taps, Factors& factors) {
  if constexpr (kFirstSlot < kSlots) {
    constexpr int kBytes = 4 * (kStage * kStageWords + kPart * kPartStep + kProduct * (kSquadThreads / 2));
    constexpr int kRow = 4 * row_offset(kFirstSlot < kOwnSlots ? kFirstSlot : 0);
    constexpr bool kIsLeft = kFirstSlot < kLeftTaps;
    const unsigned int from = kIsLeft ? taps.left[kIsLeft ? kFirstSlot : 0] : taps.column;
    factors.words[kFirstSlot][0] = read_at<kBytes + (kIsLeft ? 0 : kRow)>(from);
    factors.words[kFirstSlot][1] = read_at<kBytes + (kIsLeft ? 0 : kRow) + 32>(from);
    read_factors<kFirstSlot + 1, kProduct, kStage, kPart>(taps, factors);
  }
}

constexpr int kBlockSums = kNTiles * 4;       // of a lane, for one depth
constexpr int kSums = kFilterD * kBlockSums;  // in one product
constexpr int kWeightBlock = kNTiles * 8;     // rows of weights of one depth of the filter
constexpr int kWeightRows = (2 * kFilterD - 1) * kWeightBlock;

// What a thread block prepares: weights as [part][slot][depth of the filter, channel][lane][half]. Depths
// stand as K - 1, ..., 0, K - 1, ..., 1, so that each rotation of them is K neighbours.
struct Prepared {
  alignas(128) Factor weights[kParts][kSlots][kWeightRows][8];
  Scales scales;
};

// What sums begin at, by channels, and how far they are moved; each squad's own.
struct Starts {
  alignas(8) float of[kNTiles * 8];
  float moved[kNTiles * 8];
};

// Puts a weight where products look for it. Those of all depths but the first stand there twice.
__device__ inline void put_weight(Prepared& prepared, const Tap& tap, int row, float weight) {
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    Factor factor;
    assign(factor, weight);
    const int place = tap.element * 2 + tap.half;
    prepared.weights[part][tap.slot][row][place] = factor;
    if (row < (kFilterD - 1) * kWeightBlock)
      prepared.weights[part][tap.slot][row + kFilterD * kWeightBlock][place] = factor;
    weight -= to_real(factor);
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
    for (int i = 0; i < 2 * kFetches; ++i)
      if (kLinear != 0 || ((rows.inside >> i & 1) && depth >= 0 && depth < (int)a.in_d))
        ask_for(rows.first + rows.behind[i / 2][i % 2]);
  }
}

// Weights in the order of products. A thread has some taps of the filter, of one input channel each, and goes
// through output channels: their neighbours in memory are its neighbours'. The first weights are on their way
// while shared memory is cleared.
__device__ inline void prepare_weights(const Arguments& a, Prepared& prepared) {
  constexpr int kTaps = kInChannels * kFilterD * kFilterH * kFilterW;
  constexpr int kTogether = kThreads < kTaps ? 1 : kThreads / kTaps;  // output channels at a time
  constexpr int kEach = (kChannels + kTogether - 1) / kTogether, kSome = kEach < 8 ? kEach : 8;
  constexpr int kRounds = (kEach + kSome - 1) / kSome;
  const int thread = seldom_thread();
  const bool has_taps = kTogether == 1 || thread < kTogether * kTaps;
  const int first = kTogether == 1 ? 0 : thread / kTaps;
  int tap = kTogether == 1 ? thread : thread % kTaps;
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
        for (int i = thread; i < (int)(sizeof(prepared.weights) / kRowBytes); i += kThreads)
          reinterpret_cast<uint4*>(prepared.weights)[i] = make_uint4(0, 0, 0, 0);
        if (kRanged != 0) scale_weights(a, prepared.scales);
        __syncthreads();
        cleared = true;
      }
#pragma unroll
      for (int i = 0; i < kSome; ++i)
        if (there && k + i * kTogether < kChannels) {
          const int to_channel = k + i * kTogether;
          if (kRanged != 0)
            some[i] = times_power(some[i], prepared.scales.weights[to_channel] - prepared.scales.input[c]);
          put_weight(prepared, to, row + to_channel, some[i]);
        }
    }
    tap += kThreads;
  } while (kTogether == 1 && tap < kTaps);
  block::publish_rows();
}

// What a thread block does once.
__device__ inline void prepare(const Arguments& a, Prepared& prepared) {
  ask_ahead(a);
  if (kRanged != 0) begin_scales(prepared.scales);
  prepare_weights(a, prepared);
}

// Adds products of one plane to a warpgroup's sums, those of its first depths or of all, which begin at 0
// where they are `fresh`. `weights` is a place in shared memory.
template <int kCount>
__device__ inline void multiply(const Factors& factors, unsigned int weights, int rotation, bool fresh,
                                float (&sums)[kCount]) {
#pragma unroll
  for (int slot = 0; slot < kSlots; slot += 2)
    warpgroup::multiply_taken(
        sums, factors.words[slot][0], factors.words[slot][1], factors.words[slot + 1][0],
        factors.words[slot + 1][1],
        matrix_at(weights + slot * kWeightRows + (kFilterD - 1 - rotation) * kWeightBlock, kWeightRows),
        fresh && slot == 0 ? 0 : 1);
}
