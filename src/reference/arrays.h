// Dense arrays of doubles over the five axes n c d h w, and loops over their positions.
//
// An axis of extent 1 has stride 0, so that an array can be read at any position of an array it broadcasts
// to: a parameter of extents {1,C,1,1,1} gives its element c at each position {n,c,d,h,w}.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "block/geometry.h"
#include "fuseblock/type.h"

namespace fuseblock::reference {

using Extents = std::array<std::int64_t, kAxisCount>;
using Position = std::array<std::int64_t, kAxisCount>;

template <typename Element>
struct BasicArray {
  Element* data = nullptr;
  Extents extents = {1, 1, 1, 1, 1};
  Extents strides = {0, 0, 0, 0, 0};

  BasicArray() = default;
  BasicArray(Element* elements, const Extents& extents_of_axes) : data(elements), extents(extents_of_axes) {
    std::int64_t step = 1;
    for (int axis = kAxisCount - 1; axis >= 0; --axis) {
      strides[axis] = extents[axis] == 1 ? 0 : step;
      step *= extents[axis];
    }
  }

  Element& operator[](const Position& at) const {
    return data[at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3] +
                at[4] * strides[4]];
  }

  // NOLINTNEXTLINE(google-explicit-constructor)
  operator BasicArray<const Element>() const { return {data, extents}; }
};

using Array = BasicArray<double>;
using ConstArray = BasicArray<const double>;

// Positions from `begin` up to, not including, `end` along each axis.
struct Box {
  Position begin = {};
  Position end = {};
};

// Calls visit(position) for each position of the box, the last axis fastest.
template <typename Visit>
void for_each(const Box& box, Visit visit) {
  Position at;
  for (at[0] = box.begin[0]; at[0] < box.end[0]; ++at[0]) {
    for (at[1] = box.begin[1]; at[1] < box.end[1]; ++at[1]) {
      for (at[2] = box.begin[2]; at[2] < box.end[2]; ++at[2]) {
        for (at[3] = box.begin[3]; at[3] < box.end[3]; ++at[3])
          for (at[4] = box.begin[4]; at[4] < box.end[4]; ++at[4]) visit(std::as_const(at));
      }
    }
  }
}

template <typename Visit>
void for_each(const Extents& extents, Visit visit) {
  for_each(Box{{}, extents}, visit);
}

// Calls visit(box) for each set of elements that shares one statistic. Such a set is always a box: the full
// extent of the axes of the statistic (along c one group's channels), one position of the others.
template <typename Visit>
void for_each_set(const Extents& extents, const StatisticsGeometry& geometry, Visit visit) {
  Extents sets = extents;
  Extents set_extents = {1, 1, 1, 1, 1};
  for (Axis axis : geometry.axes.list()) {
    sets[index(axis)] = axis == Axis::kC ? geometry.groups : 1;
    set_extents[index(axis)] = extents[index(axis)] / sets[index(axis)];
  }
  for_each(sets, [&](const Position& set) {
    Box box;
    for (int axis = 0; axis < kAxisCount; ++axis) {
      box.begin[axis] = set[axis] * set_extents[axis];
      box.end[axis] = box.begin[axis] + set_extents[axis];
    }
    visit(box);
  });
}

}  // namespace fuseblock::reference
