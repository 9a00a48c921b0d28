#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/conv/sum_kernel.cc"  // NOLINT
#include "cpu/conv/targets.h"
// clang-format: the two includes below stay in this order.
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "cpu/conv/sum_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// With 32 registers a block of 8 channels x 3 vectors; with 16, of 4 x 3: the accumulators, the vectors of the
// source and one broadcast weight fill the register file. README.md compares other shapes.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
constexpr int kBlockChannels = 8;
constexpr int kVectors[kBlockChannels + 1] = {0, 8, 8, 8, 6, 4, 4, 3, 3};
#else
constexpr int kBlockChannels = 4;
constexpr int kVectors[kBlockChannels + 1] = {0, 8, 4, 3, 3};
#endif

// `vectors` neighbouring vectors of positions for `block` channels, kept in registers over all channels and taps.
template <typename T, int block, int vectors>
HWY_INLINE void add_block(const SumTask<T>& task, std::int64_t position) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sum[block][vectors];
  FUSEBLOCK_UNROLL
  for (int k = 0; k < block; ++k) {
    FUSEBLOCK_UNROLL
    for (int v = 0; v < vectors; ++v) sum[k][v] = hn::Zero(d);
  }
  const T* channel = task.staged + position;
  const T* weights = task.weights;
  const GridTap* const taps_end = task.taps + task.tap_count;
  for (std::int64_t c = 0; c < task.channels; ++c) {
    for (const GridTap* tap = task.taps; tap != taps_end; ++tap) {
      const T* const source = channel + tap->offset;
      const T* const factors = weights + tap->tap * block;
      V x[vectors];
      FUSEBLOCK_UNROLL
      for (int v = 0; v < vectors; ++v) x[v] = hn::LoadU(d, source + v * lanes);
      FUSEBLOCK_UNROLL
      for (int k = 0; k < block; ++k) {
        const V factor = hn::Set(d, factors[k]);
        FUSEBLOCK_UNROLL
        for (int v = 0; v < vectors; ++v) sum[k][v] = hn::MulAdd(factor, x[v], sum[k][v]);
      }
    }
    channel += task.channel_stride;
    weights += task.filter_taps * block;
  }
  T* const out = task.out + position;
  if (!task.first) {
    FUSEBLOCK_UNROLL
    for (int k = 0; k < block; ++k) {
      FUSEBLOCK_UNROLL
      for (int v = 0; v < vectors; ++v)
        sum[k][v] = hn::Add(hn::LoadU(d, out + k * kPiecePositions + v * lanes), sum[k][v]);
    }
  } else if (task.bias != nullptr) {
    // Behind the products: beside a large bias small products would lose their last digits one by one.
    FUSEBLOCK_UNROLL
    for (int k = 0; k < block; ++k) {
      const V bias = hn::Set(d, task.bias[k]);
      FUSEBLOCK_UNROLL
      for (int v = 0; v < vectors; ++v) sum[k][v] = hn::Add(sum[k][v], bias);
    }
  }
  FUSEBLOCK_UNROLL
  for (int k = 0; k < block; ++k) {
    FUSEBLOCK_UNROLL
    for (int v = 0; v < vectors; ++v) hn::StoreU(sum[k][v], d, out + k * kPiecePositions + v * lanes);
  }
}

// A piece in blocks of `vectors`, what remains in ever smaller ones.
template <typename T, int block, int vectors>
HWY_INLINE void add_from(const SumTask<T>& task, std::int64_t position) {
  const std::int64_t step = vectors * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  // The last vector may be partly behind the piece: a block fits as long as each of its vectors begins inside.
  const std::int64_t fits = step - step / vectors;
  for (; position + fits < task.positions; position += step) add_block<T, block, vectors>(task, position);
  if constexpr (vectors > 1) add_from<T, block, (vectors > 4 ? vectors / 2 : vectors - 1)>(task, position);
}

template <typename T, int block>
void add_piece(const SumTask<T>& task) {
  add_from<T, block, kVectors[block]>(task, 0);
}

template <typename T>
void add(const SumTask<T>& task) {
  switch (task.block_channels) {
    case 1: return add_piece<T, 1>(task);
    case 2: return add_piece<T, 2>(task);
    case 3: return add_piece<T, 3>(task);
    case 4: return add_piece<T, 4>(task);
    default: break;
  }
  if constexpr (kBlockChannels > 4) {
    switch (task.block_channels) {
      case 5: return add_piece<T, 5>(task);
      case 6: return add_piece<T, 6>(task);
      case 7: return add_piece<T, 7>(task);
      default: return add_piece<T, 8>(task);
    }
  }
}

// Whole vectors of each row, the last of them moved back to end with the row.
template <typename T>
void copy(const T* from, std::int64_t from_pitch, std::int64_t rows, std::int64_t columns, T* to,
          std::int64_t to_pitch) {
  const hn::ScalableTag<T> d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t last = columns - lanes;
  for (; rows > 0; --rows, from += from_pitch, to += to_pitch) {
    if (last < 0) {
      for (std::int64_t i = 0; i < columns; ++i) to[i] = from[i];
    } else {
      for (std::int64_t i = 0; i < last; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
      hn::StoreU(hn::LoadU(d, from + last), d, to + last);
    }
  }
}

const SumKernel<float>* sum_kernel_f32();
const SumKernel<double>* sum_kernel_f64();

const SumKernel<float>* sum_kernel_f32() {
  static constexpr SumKernel<float> kKernel = {kBlockChannels, add<float>, copy<float>};
  return &kKernel;
}

const SumKernel<double>* sum_kernel_f64() {
  static constexpr SumKernel<double> kKernel = {kBlockChannels, add<double>, copy<double>};
  return &kKernel;
}

}  // namespace HWY_NAMESPACE
}  // namespace fuseblock::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fuseblock::cpu {
HWY_EXPORT(sum_kernel_f32);
HWY_EXPORT(sum_kernel_f64);

template <>
const SumKernel<float>& sum_kernel<float>() {
  return *HWY_DYNAMIC_DISPATCH(sum_kernel_f32)();
}

template <>
const SumKernel<double>& sum_kernel<double>() {
  return *HWY_DYNAMIC_DISPATCH(sum_kernel_f64)();
}

}  // namespace fuseblock::cpu
#endif
