#include "cpu/vector/columns.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "cpu/vector/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/vector/columns.cc"  // NOLINT(readability-identifier-naming): Highway's name
#include "hwy/foreach_target.h"                     // IWYU pragma: keep
#include "hwy/highway.h"

#include "cpu/vector/lanes-inl.h"

#ifndef FUSEBLOCK_CPU_VECTOR_COLUMNS_ONCE
#define FUSEBLOCK_CPU_VECTOR_COLUMNS_ONCE

namespace fuseblock::cpu {
namespace {

// One target's loops for T. x has whole rows, `pitch` elements apart.
template <class T>
struct ColumnLoops {
  void (*add)(T* sums, const T* x, std::size_t columns, std::size_t rows, std::size_t pitch);
  void (*distances)(T* sums, T* squares, const T* shift, const T* x, std::size_t columns, std::size_t rows,
                    std::size_t pitch);
  void (*maximum)(T* largest, const T* x, std::size_t columns, std::size_t rows, std::size_t pitch);
  void (*minimum)(T* smallest, const T* x, std::size_t columns, std::size_t rows, std::size_t pitch);
  void (*repeat)(const T* values, std::size_t rows, std::size_t columns, T* out);
};

}  // namespace
}  // namespace fuseblock::cpu

#endif

HWY_BEFORE_NAMESPACE();
namespace fuseblock::cpu::HWY_NAMESPACE {
namespace {

// Vectors of columns whose chains run side by side.
constexpr std::size_t kSideBySide = 4;

// totals[j] = combine(totals[j], x) for the elements x of column j, in the order of the rows.
template <class T, class Combine>
HWY_INLINE void combine_columns(T* totals, const T* x, std::size_t columns, std::size_t rows,
                                std::size_t pitch, Combine combine) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  std::size_t j = 0;
  for (; j + kSideBySide * kLanes <= columns; j += kSideBySide * kLanes) {
    V total[kSideBySide];
    for (std::size_t v = 0; v < kSideBySide; ++v) total[v] = hn::LoadU(d, totals + j + v * kLanes);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t v = 0; v < kSideBySide; ++v)
        total[v] = combine(total[v], hn::LoadU(d, x + r * pitch + j + v * kLanes));
    for (std::size_t v = 0; v < kSideBySide; ++v) hn::StoreU(total[v], d, totals + j + v * kLanes);
  }
  for (; j + kLanes <= columns; j += kLanes) {
    V total = hn::LoadU(d, totals + j);
    for (std::size_t r = 0; r < rows; ++r) total = combine(total, hn::LoadU(d, x + r * pitch + j));
    hn::StoreU(total, d, totals + j);
  }
  if (j == columns) return;
  const std::size_t rest = columns - j;
  V total = load_first(d, totals + j, rest);
  for (std::size_t r = 0; r < rows; ++r) total = combine(total, load_first(d, x + r * pitch + j, rest));
  store_first(d, total, totals + j, rest);
}

template <class T>
void add_any(T* sums, const T* x, std::size_t columns, std::size_t rows, std::size_t pitch) {
  combine_columns(sums, x, columns, rows, pitch, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
}

template <class T>
void distances_any(T* sums, T* squares, const T* shift, const T* x, std::size_t columns, std::size_t rows,
                   std::size_t pitch) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const auto add = [](V& sum, V& square, V from, V element) HWY_ATTR {
    const V distance = hn::Sub(element, from);
    sum = hn::Add(sum, distance);
    square = hn::Add(square, hn::Mul(distance, distance));
  };
  std::size_t j = 0;
  for (; j + kSideBySide * kLanes <= columns; j += kSideBySide * kLanes) {
    V sum[kSideBySide];
    V square[kSideBySide];
    V from[kSideBySide];
    for (std::size_t v = 0; v < kSideBySide; ++v) {
      sum[v] = hn::LoadU(d, sums + j + v * kLanes);
      square[v] = hn::LoadU(d, squares + j + v * kLanes);
      from[v] = hn::LoadU(d, shift + j + v * kLanes);
    }
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t v = 0; v < kSideBySide; ++v)
        add(sum[v], square[v], from[v], hn::LoadU(d, x + r * pitch + j + v * kLanes));
    for (std::size_t v = 0; v < kSideBySide; ++v) {
      hn::StoreU(sum[v], d, sums + j + v * kLanes);
      hn::StoreU(square[v], d, squares + j + v * kLanes);
    }
  }
  for (; j < columns; j += kLanes) {
    const std::size_t rest = std::min(kLanes, columns - j);
    const auto load = [d, rest](const T* from) HWY_ATTR {
      return rest == kLanes ? hn::LoadU(d, from) : load_first(d, from, rest);
    };
    V sum = load(sums + j);
    V square = load(squares + j);
    const V from = load(shift + j);
    for (std::size_t r = 0; r < rows; ++r) add(sum, square, from, load(x + r * pitch + j));
    if (rest == kLanes) {
      hn::StoreU(sum, d, sums + j);
      hn::StoreU(square, d, squares + j);
    } else {
      store_first(d, sum, sums + j, rest);
      store_first(d, square, squares + j, rest);
    }
  }
}

template <class T>
void maximum_any(T* largest, const T* x, std::size_t columns, std::size_t rows, std::size_t pitch) {
  combine_columns(largest, x, columns, rows, pitch, [](auto a, auto b) HWY_ATTR {
    return hn::IfThenElse(hn::IsNaN(b), b, hn::IfThenElse(hn::Gt(b, a), b, a));
  });
}

template <class T>
void minimum_any(T* smallest, const T* x, std::size_t columns, std::size_t rows, std::size_t pitch) {
  combine_columns(smallest, x, columns, rows, pitch, [](auto a, auto b) HWY_ATTR {
    return hn::IfThenElse(hn::IsNaN(b), b, hn::IfThenElse(hn::Lt(b, a), b, a));
  });
}

template <class T>
void repeat_any(const T* values, std::size_t rows, std::size_t columns, T* out) {
  const hn::ScalableTag<T> d;
  const std::size_t step = hn::Lanes(d);
  for (std::size_t r = 0; r < rows; ++r, out += columns) {
    const auto value = hn::Set(d, values[r]);
    std::size_t j = 0;
    for (; j + step <= columns; j += step) hn::StoreU(value, d, out + j);
    if (j < columns) store_first(d, value, out + j, columns - j);
  }
}

template <class T>
constexpr ColumnLoops<T> kLoops = {&add_any<T>, &distances_any<T>, &maximum_any<T>, &minimum_any<T>,
                                   &repeat_any<T>};

const ColumnLoops<float>& column_loops_f32() { return kLoops<float>; }
const ColumnLoops<double>& column_loops_f64() { return kLoops<double>; }

}  // namespace
}  // namespace fuseblock::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace fuseblock::cpu {
namespace {

HWY_EXPORT(column_loops_f32);
HWY_EXPORT(column_loops_f64);

// The loops of the machine's best target.
template <class T>
const ColumnLoops<T>& loops() {
  if constexpr (std::is_same_v<T, float>)
    return HWY_DYNAMIC_DISPATCH(column_loops_f32)();
  else
    return HWY_DYNAMIC_DISPATCH(column_loops_f64)();
}

// Calls visit(x, columns, rows): the whole rows, then the begun one.
template <class T, class Visit>
void for_rows(const T* x, std::size_t columns, std::size_t count, Visit visit) {
  if (columns == 0) return;
  const std::size_t rows = count / columns;
  const std::size_t rest = count % columns;
  if (rows > 0) visit(x, columns, rows);
  if (rest > 0) visit(x + rows * columns, rest, std::size_t{1});
}

}  // namespace

template <class T>
void add_columns(T* sums, const T* x, std::size_t columns, std::size_t count) {
  for_rows(x, columns, count, [&](const T* part, std::size_t width, std::size_t rows) {
    loops<T>().add(sums, part, width, rows, columns);
  });
}

template <class T>
void add_column_distances(T* sums, T* squares, const T* shift, const T* x, std::size_t columns,
                          std::size_t count) {
  for_rows(x, columns, count, [&](const T* part, std::size_t width, std::size_t rows) {
    loops<T>().distances(sums, squares, shift, part, width, rows, columns);
  });
}

template <class T>
void maximum_columns(T* largest, const T* x, std::size_t columns, std::size_t count) {
  for_rows(x, columns, count, [&](const T* part, std::size_t width, std::size_t rows) {
    loops<T>().maximum(largest, part, width, rows, columns);
  });
}

template <class T>
void minimum_columns(T* smallest, const T* x, std::size_t columns, std::size_t count) {
  for_rows(x, columns, count, [&](const T* part, std::size_t width, std::size_t rows) {
    loops<T>().minimum(smallest, part, width, rows, columns);
  });
}

template <class T>
void repeat_along_rows(const T* values, std::size_t rows, std::size_t columns, T* out) {
  loops<T>().repeat(values, rows, columns, out);
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type
#define FUSEBLOCK_INSTANTIATE(T)                                                            \
  template void add_columns(T*, const T*, std::size_t, std::size_t);                        \
  template void add_column_distances(T*, T*, const T*, const T*, std::size_t, std::size_t); \
  template void maximum_columns(T*, const T*, std::size_t, std::size_t);                    \
  template void minimum_columns(T*, const T*, std::size_t, std::size_t);                    \
  template void repeat_along_rows(const T*, std::size_t, std::size_t, T*);

FUSEBLOCK_INSTANTIATE(float)
FUSEBLOCK_INSTANTIATE(double)
#undef FUSEBLOCK_INSTANTIATE
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace fuseblock::cpu

#endif  // HWY_ONCE
