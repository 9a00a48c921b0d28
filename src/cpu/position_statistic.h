// A statistic of one channel over some of its positions: along w, along h, along d, or two of them.
//
// Neighbouring axes of the same fate count as one, so positions are [outer][middle][last] at most:
//   rows     the last axis is reduced: a run of positions to one number, by the reductions of vector/reduce.h.
//            The outer axis, if it is reduced as well, adds to the numbers of the middle one.
//   columns  the last axis stays and the middle one is reduced: rows are added into a row of totals.
// Results are doubles, in the order of the positions that stay. They grow in the order of those that are
// taken.
#pragma once

#include <cstdint>

#include "cpu/conv/grid.h"
#include "cpu/finalise.h"
#include "cpu/row_program.h"
#include "cpu/rows.h"
#include "cpu/vector/tile_ops.h"

namespace fuseblock::cpu {

// The results of one channel; `second` for statistics of two components.
struct PositionTotals {
  double* first = nullptr;
  double* second = nullptr;
};

template <class T>
class PositionStatistic {
 public:
  // `axes`: those that are reduced; not all along which positions vary, and at least one of them.
  PositionStatistic(Statistic statistic, AxisSet axes, const PositionExtents& extents);

  // Of one channel and component.
  std::int64_t results() const { return results_; }
  // Positions [begin, end) can be taken by themselves where both are multiples of this.
  std::int64_t grain() const { return grain_; }
  // Whether all such parts add to all results: each has results of its own then, which `join` brings
  // together.
  bool crosses() const { return crosses_; }
  bool columns() const { return columns_; }
  // Neighbouring positions that are one row.
  std::int64_t row_length() const { return last_; }
  // For `take`, which has at most a chunk of positions at a time.
  static std::size_t scratch_elements() { return 3 * static_cast<std::size_t>(kChunkPitch); }

  // Takes in positions; those of a result come in ascending order. `begin` is the first position of all that
  // are taken into these totals, which need no values before.
  void take(const Range& positions, std::int64_t begin, TileOperand<T> value, const PositionTotals& totals,
            T* scratch) const;
  // Merges what was taken of further positions. `count` and `other_count` say how many elements a result
  // stands for.
  void join(const PositionTotals& totals, double count, const PositionTotals& other, double other_count,
            const Range& results) const;

 private:
  void take_row(std::int64_t row, const Range& part, std::int64_t begin, TileOperand<T> value,
                const PositionTotals& totals) const;
  // Whole rows, one result each.
  void take_short_rows(std::int64_t row, std::int64_t rows, const T* values, const PositionTotals& totals,
                       T* scratch) const;
  void take_short_exponentials(std::int64_t rows, const T* values, double* top, double* sum,
                               T* scratch) const;
  // Some rows of the same totals, `part` of each, one behind the other.
  void take_columns(std::int64_t row, std::int64_t rows, const Range& part, std::int64_t begin,
                    const T* values, const PositionTotals& totals, T* scratch) const;

  // Adds rows up in T until one is left, halves of them at a time.
  const T* folded(std::int64_t rows, const T* values, T* scratch) const;

  Statistic statistic_;
  std::int64_t outer_ = 1;
  std::int64_t middle_ = 1;
  std::int64_t last_ = 1;
  std::int64_t results_ = 1;
  std::int64_t grain_ = 1;
  bool columns_ = false;
  bool outer_reduced_ = false;
  bool crosses_ = false;
};

extern template class PositionStatistic<float>;
extern template class PositionStatistic<double>;

}  // namespace fuseblock::cpu
