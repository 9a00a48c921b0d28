// Rows of a slot: the elements of one channel at a run of neighbouring positions, converted to the
// arithmetic's type.
#pragma once

#include <cstdint>

#include "cpu/memory.h"
#include "cpu/vector/tile_ops.h"

namespace fuseblock::cpu {

// Positions are numbered (d * H + h) * W + w.
struct PositionExtents {
  std::int64_t d = 1;
  std::int64_t h = 1;
  std::int64_t w = 1;

  std::int64_t count() const { return d * h * w; }
};

// The elements at positions [begin, begin + count) of (n, c): a pointer into the slot itself where it holds
// them one behind the other in type T, else converted into `buffer`.
template <class T>
const T* load_positions(const SlotView& view, const PositionExtents& extents, std::int64_t n, std::int64_t c,
                        std::int64_t begin, std::int64_t count, T* buffer);
template <class T>
void store_positions(const SlotView& view, const PositionExtents& extents, std::int64_t n, std::int64_t c,
                     std::int64_t begin, std::int64_t count, TileOperand<T> values);
// Where elements of type T can be written one behind the other at once; null where they must be converted or spread.
template <class T>
T* positions_in_place(const SlotView& view, const PositionExtents& extents, std::int64_t n, std::int64_t c,
                      std::int64_t begin);
// All channels at positions [begin, begin + count) of sample n, the channels of a position one behind the other: a
// pointer into the slot itself where it holds them so in type T, else converted into `buffer`.
template <class T>
const T* load_points(const SlotView& view, const PositionExtents& extents, std::int64_t channels,
                     std::int64_t n, std::int64_t begin, std::int64_t count, T* buffer);
template <class T>
void store_points(const SlotView& view, const PositionExtents& extents, std::int64_t channels, std::int64_t n,
                  std::int64_t begin, std::int64_t count, const T* values);
template <class T>
T* points_in_place(const SlotView& view, const PositionExtents& extents, std::int64_t channels,
                   std::int64_t n, std::int64_t begin);
// Where float's programs can read elements as they are: bf16, one behind the other; null elsewhere. A program reads them
// while it computes, and nothing waits for a conversion.
const std::uint16_t* bf16_positions(const SlotView& view, const PositionExtents& extents, std::int64_t n,
                                    std::int64_t c, std::int64_t begin);
const std::uint16_t* bf16_points(const SlotView& view, const PositionExtents& extents, std::int64_t channels,
                                 std::int64_t n, std::int64_t begin);
// One element that stands for all positions.
template <class T>
T load_uniform(const SlotView& view, std::int64_t n, std::int64_t c);

}  // namespace fuseblock::cpu
