#include "cpu/position_statistic.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "cpu/row_state.h"
#include "cpu/vector/reduce.h"
#include "cpu/vector/totals.h"

namespace fuseblock::cpu {
namespace {

// Rows up to this length are shorter than what a vector reduction needs to begin and to end.
constexpr std::int64_t kShortRow = 32;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct AxisGroup {
  std::int64_t extent = 1;
  bool reduced = false;
};

// Neighbouring axes of the same fate as one; axes of extent 1 count for nothing.
std::vector<AxisGroup> axis_groups(AxisSet axes, const PositionExtents& extents) {
  const std::int64_t sizes[] = {extents.d, extents.h, extents.w};
  const Axis names[] = {Axis::kD, Axis::kH, Axis::kW};
  std::vector<AxisGroup> groups;
  for (std::size_t i = 0; i < 3; ++i) {
    if (sizes[i] == 1) continue;
    const bool reduced = axes.contains(names[i]);
    if (!groups.empty() && groups.back().reduced == reduced)
      groups.back().extent *= sizes[i];
    else
      groups.push_back({sizes[i], reduced});
  }
  return groups;
}

template <class T>
double sum_of(const T* x, std::int64_t count) {
  double total = 0;
  for (std::int64_t i = 0; i < count; ++i) total += static_cast<double>(x[i]);
  return total;
}

// The element that goes before all others; NaN if one is.
template <class T, class Before>
double extreme_of(const T* x, std::int64_t count, Before before) {
  auto extreme = static_cast<double>(x[0]);
  for (std::int64_t i = 1; i < count; ++i) {
    const auto element = static_cast<double>(x[i]);
    if (before(element, extreme) || element != element) extreme = element;
  }
  return extreme;
}

}  // namespace

template <class T>
PositionStatistic<T>::PositionStatistic(Statistic statistic, AxisSet axes, const PositionExtents& extents)
    : statistic_(statistic) {
  const std::vector<AxisGroup> groups = axis_groups(axes, extents);
  columns_ = !groups.back().reduced;
  crosses_ = groups.front().reduced;
  outer_reduced_ = !columns_ && crosses_;
  last_ = groups.back().extent;
  const bool three = groups.size() == 3;
  if (three || !columns_) outer_ = groups.front().extent;
  if (three || columns_) middle_ = groups[groups.size() - 2].extent;
  results_ = columns_ ? outer_ * last_ : (outer_reduced_ ? middle_ : outer_);
  grain_ = columns_ && crosses_ ? last_ : middle_ * last_;
}

template <class T>
void PositionStatistic<T>::take(const Range& positions, std::int64_t begin, TileOperand<T> value,
                                const PositionTotals& totals, T* scratch) const {
  if (columns_ && value.uniform) {
    T* repeated = scratch + 2 * kChunkPitch;
    std::fill_n(repeated, positions.size(), *value.data);
    value = {repeated, false};
  }
  const bool short_rows = !columns_ && !outer_reduced_ && !value.uniform && last_ <= kShortRow;
  for (std::int64_t position = positions.begin; position < positions.end;) {
    const std::int64_t row = position / last_;
    const std::int64_t first = position % last_;
    const Range part = {first, std::min(last_, first + positions.end - position)};
    const T* values = value.uniform ? value.data : value.data + (position - positions.begin);
    std::int64_t rows = part.size() == last_ ? (positions.end - position) / last_ : 1;
    if (columns_) {
      rows = std::min(rows, middle_ - row % middle_);
      take_columns(row, rows, part, begin, values, totals, scratch);
    } else if (short_rows && part.size() == last_) {
      take_short_rows(row, rows, values, totals, scratch);
    } else {
      rows = 1;
      take_row(row, part, begin, {values, value.uniform}, totals);
    }
    position += rows * part.size();
  }
}

template <class T>
void PositionStatistic<T>::take_row(std::int64_t row, const Range& part, std::int64_t begin,
                                    TileOperand<T> value, const PositionTotals& totals) const {
  const auto result = at(outer_reduced_ ? row % middle_ : row);
  std::int64_t count = part.begin;
  if (outer_reduced_) count += (row / middle_ - begin / (middle_ * last_)) * last_;
  State state;  // of nothing, where these are the first elements
  if (count > 0)
    state = {totals.first[result], totals.second != nullptr ? totals.second[result] : 0,
             static_cast<double>(count)};
  state = merge(statistic_, state, row_state(statistic_, value, at(part.size()), state));
  totals.first[result] = state.first;
  if (totals.second != nullptr) totals.second[result] = state.second;
}

template <class T>
void PositionStatistic<T>::take_short_rows(std::int64_t row, std::int64_t rows, const T* values,
                                           const PositionTotals& totals, T* scratch) const {
  double* first = totals.first + row;
  const auto each = [&](auto reduce) {
    for (std::int64_t i = 0; i < rows; ++i) reduce(i, values + i * last_);
  };
  switch (statistic_) {
    case Statistic::kSum: each([&](std::int64_t i, const T* x) { first[i] = sum_of(x, last_); }); return;
    case Statistic::kMax:
      each([&](std::int64_t i, const T* x) {
        first[i] = extreme_of(x, last_, [](double a, double b) { return a > b; });
      });
      return;
    case Statistic::kMin:
      each([&](std::int64_t i, const T* x) {
        first[i] = extreme_of(x, last_, [](double a, double b) { return a < b; });
      });
      return;
    case Statistic::kMoments:
      each([&](std::int64_t i, const T* x) {
        first[i] = sum_of(x, last_) / static_cast<double>(last_);
        double& squares = totals.second[row + i];
        squares = 0;
        for (std::int64_t k = 0; k < last_; ++k) {
          const double distance = static_cast<double>(x[k]) - first[i];
          squares += distance * distance;
        }
      });
      return;
    case Statistic::kExpSum:
      take_short_exponentials(rows, values, first, totals.second + row, scratch);
      return;
  }
}

template <class T>
void PositionStatistic<T>::take_short_exponentials(std::int64_t rows, const T* values, double* top,
                                                   double* sum, T* scratch) const {
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* x = values + i * last_;
    top[i] = extreme_of(x, last_, [](double a, double b) { return a > b; });
    for (std::int64_t k = 0; k < last_; ++k) scratch[i * last_ + k] = x[k] - static_cast<T>(top[i]);
  }
  const TileOperand<T> unused = {nullptr, true};
  apply(Primitive::kExp, TileOperand<T>{scratch, false}, unused, unused, scratch, at(rows * last_));
  // Nothing but -inf counts each element as its own maximum.
  for (std::int64_t i = 0; i < rows; ++i)
    sum[i] = top[i] == -std::numeric_limits<double>::infinity() ? static_cast<double>(last_)
                                                                : sum_of(scratch + i * last_, last_);
}

template <class T>
const T* PositionStatistic<T>::folded(std::int64_t rows, const T* values, T* scratch) const {
  while (rows > 1) {
    const std::int64_t half = rows / 2;
    const std::int64_t rest = rows - half;  // these stay, the others are added to the first of them
    if (values != scratch) std::copy_n(values, rest * last_, scratch);
    const T* added = values + rest * last_;
    const auto count = at(half * last_);
    if (statistic_ == Statistic::kSum)
      add_row(scratch, added, count);
    else if (statistic_ == Statistic::kMax)
      maximum_row(scratch, added, count);
    else
      minimum_row(scratch, added, count);
    values = scratch;
    rows = rest;
  }
  return values;
}

template <class T>
void PositionStatistic<T>::take_columns(std::int64_t row, std::int64_t rows, const Range& part,
                                        std::int64_t begin, const T* values, const PositionTotals& totals,
                                        T* scratch) const {
  const auto count = at(part.size());
  const std::int64_t place = row / middle_ * last_ + part.begin;
  double* first = totals.first + place;
  double* second = totals.second == nullptr ? nullptr : totals.second + place;
  const std::int64_t before = crosses_ ? row - begin / last_ : row % middle_;
  if (last_ <= kShortRow && rows > 1 && component_count(statistic_) == 1) {
    values = folded(rows, values, scratch);
    rows = 1;
  }
  if (statistic_ == Statistic::kExpSum) {
    T* top = scratch;
    T* sum = scratch + kChunkPitch;
    std::copy_n(values, count, top);
    for (std::int64_t i = 1; i < rows; ++i) maximum_row(top, values + i * part.size(), count);
    std::fill_n(sum, count, T{0});
    for (std::int64_t i = 0; i < rows; ++i) add_exp_row(sum, values + i * part.size(), top, count);
    if (before == 0) {
      set_totals(first, top, count);
      set_totals(second, sum, count);
    } else {
      exp_sums_to_totals(first, second, top, sum, count);
    }
    return;
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* one = values + i * part.size();
    if (before + i == 0) {
      set_totals(first, one, count);
      if (second != nullptr) std::fill_n(second, count, 0.0);
      continue;
    }
    switch (statistic_) {
      case Statistic::kMax: maximum_to_totals(first, one, count); break;
      case Statistic::kMin: minimum_to_totals(first, one, count); break;
      case Statistic::kMoments: moments_to_totals(first, second, one, count, before + i + 1); break;
      default: add_to_totals(first, one, count); break;
    }
  }
}

template <class T>
void PositionStatistic<T>::join(const PositionTotals& totals, double count, const PositionTotals& other,
                                double other_count, const Range& results) const {
  const auto state_of = [](const PositionTotals& from, std::int64_t i, double elements) {
    return State{from.first[i], from.second != nullptr ? from.second[i] : 0, elements};
  };
  for (std::int64_t i = results.begin; i < results.end; ++i) {
    const State state = merge(statistic_, state_of(totals, i, count), state_of(other, i, other_count));
    totals.first[i] = state.first;
    if (totals.second != nullptr) totals.second[i] = state.second;
  }
}

template class PositionStatistic<float>;
template class PositionStatistic<double>;

}  // namespace fuseblock::cpu
