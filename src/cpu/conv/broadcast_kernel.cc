#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/conv/broadcast_kernel.cc"  // NOLINT
#include "cpu/conv/targets.h"
// clang-format: the two includes below stay in this order.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>

#include "cpu/conv/broadcast_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The sums of two vectors of channels at these positions, the weights of a segment and one element of the source fill
// the registers.
#if HWY_TARGET <= HWY_AVX3
constexpr int kPositions = kMaxBroadcastPositions;
constexpr int kMaxTaps = kMaxSegmentTaps;
#elif HWY_ARCH_ARM_A64
constexpr int kPositions = kMaxBroadcastPositions;
constexpr int kMaxTaps = 1;
#else
constexpr int kPositions = 6;
constexpr int kMaxTaps = 1;
#endif

template <typename T>
using Tag = hn::CappedTag<T, kMaxBroadcastChannels / kBroadcastVectors>;

// The terms of one segment: element i of the source meets tap t at position i - t. With `masked` only those of elements
// whose bits are set in `real`.
template <typename T, int vectors, int positions, int taps, bool masked>
HWY_INLINE void add_segment(const T* source, const T* weights, std::int64_t step,
                            [[maybe_unused]] std::uint64_t real, hn::Vec<Tag<T>> (&sum)[positions][vectors]) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag<T>()));
  V w[taps][vectors];
  FUSEBLOCK_UNROLL
  for (int tap = 0; tap < taps; ++tap) {
    FUSEBLOCK_UNROLL
    for (int v = 0; v < vectors; ++v) w[tap][v] = hn::LoadU(d, weights + tap * step + v * kLanes);
  }
  FUSEBLOCK_UNROLL
  for (int i = 0; i < positions + taps - 1; ++i) {
    if (masked && (real & std::uint64_t{1} << i) == 0) continue;
    const V x = hn::Set(d, source[i]);
    FUSEBLOCK_UNROLL
    for (int tap = 0; tap < taps; ++tap) {
      if (i - tap < 0 || i - tap >= positions) continue;
      FUSEBLOCK_UNROLL
      for (int v = 0; v < vectors; ++v) sum[i - tap][v] = hn::MulAdd(w[tap][v], x, sum[i - tap][v]);
    }
  }
}

// A bit for each element that `positions` positions meet, counted from that of the first tap of a row: whether it is not
// one of the zeros that pad rows.
HWY_INLINE std::uint64_t real_elements(const PaddedColumns& padded, std::int64_t position,
                                       std::int64_t positions) {
  const std::int64_t elements = positions + padded.reach;
  if (padded.pitch == 0 || elements > kMaxMaskedElements) return ~std::uint64_t{0};
  std::uint64_t zeros = 0;
  const std::uint64_t run =
      (std::uint64_t{1} << std::min<std::int64_t>(padded.zeros, kMaxMaskedElements - 1)) - 1;
  // From the last zeros that begin in front of the elements on.
  std::int64_t first = (padded.first - position) % padded.pitch;
  if (first > 0) first -= padded.pitch;
  for (; first < elements; first += padded.pitch) {
    if (first >= 0)
      zeros |= run << first;
    else if (first > -kMaxMaskedElements)
      zeros |= run >> -first;
  }
  return ~zeros;
}

// `positions` neighbouring positions, kept in registers over all channels and taps.
template <typename T, int vectors, int positions, bool masked>
HWY_INLINE void add_block(const BroadcastTask<T>& task, std::int64_t position, std::uint64_t real) {
  const Tag<T> d;
  using V = hn::Vec<Tag<T>>;
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag<T>()));
  constexpr int kChannels = kBroadcastVectors * kLanes;
  V sum[positions][vectors];
  FUSEBLOCK_UNROLL
  for (int p = 0; p < positions; ++p) {
    FUSEBLOCK_UNROLL
    for (int v = 0; v < vectors; ++v) sum[p][v] = hn::Zero(d);
  }
  const T* channel = task.staged + position;
  const T* weights = task.weights;
  const TapSegment* const end = task.segments + task.segment_count;
  for (std::int64_t c = 0; c < task.channels; ++c) {
    for (const TapSegment* segment = task.segments; segment != end; ++segment) {
      const T* const source = channel + segment->offset;
      const T* const factors = weights + segment->weights;
      const std::uint64_t met = masked ? real >> segment->column : 0;
      if (kMaxTaps >= 3 && segment->taps == 3)
        add_segment<T, vectors, positions, kMaxTaps >= 3 ? 3 : 1, masked>(source, factors, segment->step, met,
                                                                          sum);
      else if (kMaxTaps >= 2 && segment->taps == 2)
        add_segment<T, vectors, positions, kMaxTaps >= 2 ? 2 : 1, masked>(source, factors, segment->step, met,
                                                                          sum);
      else
        add_segment<T, vectors, positions, 1, masked>(source, factors, 0, met, sum);
    }
    channel += task.channel_stride;
    weights += task.filter_taps * kChannels;
  }
  T* const out = task.sums + position * kChannels;
  if (!task.first) {
    FUSEBLOCK_UNROLL
    for (int p = 0; p < positions; ++p) {
      FUSEBLOCK_UNROLL
      for (int v = 0; v < vectors; ++v)
        sum[p][v] = hn::Add(hn::LoadU(d, out + p * kChannels + v * kLanes), sum[p][v]);
    }
  } else if (task.bias != nullptr) {
    // Behind the products: beside a large bias small products would lose their last digits one by one.
    FUSEBLOCK_UNROLL
    for (int v = 0; v < vectors; ++v) {
      HWY_ALIGN T lanes[kLanes] = {};
      std::copy_n(task.bias + v * kLanes, std::clamp(task.bias_channels - v * kLanes, 0, kLanes), lanes);
      const V bias = hn::Load(d, lanes);
      FUSEBLOCK_UNROLL
      for (int p = 0; p < positions; ++p) sum[p][v] = hn::Add(sum[p][v], bias);
    }
  }
  FUSEBLOCK_UNROLL
  for (int p = 0; p < positions; ++p) {
    FUSEBLOCK_UNROLL
    for (int v = 0; v < vectors; ++v) hn::StoreU(sum[p][v], d, out + p * kChannels + v * kLanes);
  }
}

// A piece in register blocks of the same even number of positions.
template <typename T, int vectors, int positions>
void add_blocks(const BroadcastTask<T>& task, std::int64_t size) {
  if constexpr (positions > 2) {
    if (size <= positions - 2) return add_blocks<T, vectors, positions - 2>(task, size);
  }
  for (std::int64_t position = 0; position < task.positions; position += positions) {
    const std::uint64_t real = real_elements(task.padded, position, positions);
    if (real == ~std::uint64_t{0})
      add_block<T, vectors, positions, false>(task, position, real);
    else
      add_block<T, vectors, positions, true>(task, position, real);
  }
}

template <typename T>
void add(const BroadcastTask<T>& task) {
  const std::int64_t blocks = (task.positions + kPositions - 1) / kPositions;
  const std::int64_t size = (task.positions + blocks - 1) / blocks;
  if (task.vectors == 2) return add_blocks<T, 2, kPositions>(task, size);
  add_blocks<T, 1, kPositions>(task, size);
}

// Sixteen positions of a vector of channels at a time: interleaving them by fours twice makes the positions of a channel
// neighbours, first {0, 4, 8, 12}, {1, 5, 9, 13} and so on, then these four.
template <typename T>
void transpose(const T* from, std::int64_t positions, T* to, std::int64_t pitch) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag<T>()));
  constexpr int kChannels = kBroadcastVectors * kLanes;
#if HWY_TARGET == HWY_SCALAR
  for (int channel = 0; channel < kChannels; ++channel)
    for (std::int64_t position = 0; position < positions; ++position)
      to[channel * pitch + position] = from[position * kChannels + channel];
#else
  const Tag<T> d;
  constexpr int kRows = 4;
  constexpr int kSquare = kTransposedPositions;
  for (std::int64_t position = 0; position < positions; position += kSquare, from += kSquare * kChannels) {
    for (int channel = 0; channel < kChannels; channel += kLanes) {
      HWY_ALIGN T quarter[kRows][kRows * kLanes];
      HWY_ALIGN T rows[kLanes * kSquare];  // [channel][position]
      const auto load = [&](int row) HWY_ATTR { return hn::LoadU(d, from + row * kChannels + channel); };
      for (int q = 0; q < kRows; ++q)
        hn::StoreInterleaved4(load(q), load(kRows + q), load(2 * kRows + q), load(3 * kRows + q), d,
                              quarter[q]);
      for (int part = 0; part < kRows; ++part)
        hn::StoreInterleaved4(hn::Load(d, quarter[0] + part * kLanes),
                              hn::Load(d, quarter[1] + part * kLanes),
                              hn::Load(d, quarter[2] + part * kLanes),
                              hn::Load(d, quarter[3] + part * kLanes), d, rows + part * kRows * kLanes);
      for (int k = 0; k < kLanes; ++k) {
        T* const row = to + (channel + k) * pitch + position;
        for (int i = 0; i < kSquare; i += kLanes) hn::StoreU(hn::Load(d, rows + k * kSquare + i), d, row + i);
      }
    }
  }
#endif
}

template <typename T>
constexpr BroadcastKernel<T> make_kernel() {
  return {static_cast<int>(hn::MaxLanes(Tag<T>())), kMaxTaps, add<T>, transpose<T>};
}

const BroadcastKernel<float>* broadcast_kernel_f32();
const BroadcastKernel<double>* broadcast_kernel_f64();

const BroadcastKernel<float>* broadcast_kernel_f32() {
  static constexpr BroadcastKernel<float> kKernel = make_kernel<float>();
  return &kKernel;
}

const BroadcastKernel<double>* broadcast_kernel_f64() {
  static constexpr BroadcastKernel<double> kKernel = make_kernel<double>();
  return &kKernel;
}

}  // namespace HWY_NAMESPACE
}  // namespace fuseblock::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fuseblock::cpu {
HWY_EXPORT(broadcast_kernel_f32);
HWY_EXPORT(broadcast_kernel_f64);

template <>
const BroadcastKernel<float>& broadcast_kernel<float>() {
  return *HWY_DYNAMIC_DISPATCH(broadcast_kernel_f32)();
}

template <>
const BroadcastKernel<double>& broadcast_kernel<double>() {
  return *HWY_DYNAMIC_DISPATCH(broadcast_kernel_f64)();
}

}  // namespace fuseblock::cpu
#endif
