// Reductions down columns against one element at a time, bit for bit, under each instruction set of the machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cpu/vector/columns.h"
#include "vector_targets.h"

namespace fuseblock {
namespace {

constexpr std::size_t kColumns[] = {1, 2, 3, 7, 8, 16, 17, 33, 64, 65, 100, 320};
constexpr std::size_t kGuards = 40;

template <class T>
std::vector<T> random_array(std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(count) + 7);
  std::normal_distribution<double> normal(0.3, 2);
  std::vector<T> x(count);
  for (T& v : x) v = static_cast<T>(normal(random));
  return x;
}

// Whole rows, a begun one, less than one, none.
std::vector<std::size_t> counts(std::size_t columns) {
  return {0, columns / 2, columns, 5 * columns, 5 * columns + columns / 2, 6 * columns - 1};
}

template <class T>
class VectorColumns : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(VectorColumns, Types);

template <class Check>
void for_each_shape(Check check) {
  for (std::int64_t target : vector_targets()) {
    const TargetScope scope(target);
    for (std::size_t columns : kColumns)
      for (std::size_t count : counts(columns)) {
        SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", " + std::to_string(columns) + " columns, " +
                     std::to_string(count) + " elements");
        check(columns, count);
      }
  }
}

TYPED_TEST(VectorColumns, SumsAndExtremesGoDownTheColumnsInOrder) {
  using T = TypeParam;
  for_each_shape([](std::size_t columns, std::size_t count) {
    std::vector<T> x = random_array<T>(count);
    const std::vector<T> before = random_array<T>(columns + kGuards);
    std::vector<T> sums = before;
    std::vector<T> largest = before;
    std::vector<T> smallest = before;
    std::vector<T> expected_sums = before;
    std::vector<T> expected_largest = before;
    std::vector<T> expected_smallest = before;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t j = i % columns;
      expected_sums[j] += x[i];
      expected_largest[j] = std::max(expected_largest[j], x[i]);
      expected_smallest[j] = std::min(expected_smallest[j], x[i]);
    }
    // What lies behind must not count.
    x.resize(count + kGuards, std::numeric_limits<T>::quiet_NaN());
    cpu::add_columns(sums.data(), x.data(), columns, count);
    cpu::maximum_columns(largest.data(), x.data(), columns, count);
    cpu::minimum_columns(smallest.data(), x.data(), columns, count);
    EXPECT_EQ(sums, expected_sums);
    EXPECT_EQ(largest, expected_largest);
    EXPECT_EQ(smallest, expected_smallest);
  });
}

TYPED_TEST(VectorColumns, DistancesGoDownTheColumnsInOrder) {
  using T = TypeParam;
  for_each_shape([](std::size_t columns, std::size_t count) {
    std::vector<T> x = random_array<T>(count);
    const std::vector<T> shift = random_array<T>(columns);
    std::vector<T> sums = random_array<T>(columns + kGuards);
    std::vector<T> squares = random_array<T>(columns + kGuards);
    std::vector<T> expected_sums = sums;
    std::vector<T> expected_squares = squares;
    for (std::size_t i = 0; i < count; ++i) {
      const T distance = x[i] - shift[i % columns];
      expected_sums[i % columns] += distance;
      // Rounded before it is added.
      const volatile T square = distance * distance;
      expected_squares[i % columns] += square;
    }
    x.resize(count + kGuards, std::numeric_limits<T>::quiet_NaN());
    cpu::add_column_distances(sums.data(), squares.data(), shift.data(), x.data(), columns, count);
    EXPECT_EQ(sums, expected_sums);
    EXPECT_EQ(squares, expected_squares);
  });
}

TYPED_TEST(VectorColumns, NaNStaysInItsColumn) {
  using T = TypeParam;
  constexpr auto kNaN = std::numeric_limits<T>::quiet_NaN();
  for_each_shape([](std::size_t columns, std::size_t count) {
    if (count < 2 * columns) return;
    std::vector<T> x = random_array<T>(count);
    const std::size_t which = columns / 2;
    x[columns + which] = kNaN;
    std::vector<T> sums(columns, T{0});
    std::vector<T> largest(columns, T{0});
    std::vector<T> smallest(columns, T{0});
    cpu::add_columns(sums.data(), x.data(), columns, count);
    cpu::maximum_columns(largest.data(), x.data(), columns, count);
    cpu::minimum_columns(smallest.data(), x.data(), columns, count);
    for (std::size_t j = 0; j < columns; ++j) {
      EXPECT_EQ(std::isnan(sums[j]), j == which);
      EXPECT_EQ(std::isnan(largest[j]), j == which);
      EXPECT_EQ(std::isnan(smallest[j]), j == which);
    }
  });
}

TYPED_TEST(VectorColumns, NumbersAreRepeatedAlongRows) {
  using T = TypeParam;
  for_each_shape([](std::size_t columns, std::size_t count) {
    const std::size_t rows = count / columns;
    const std::vector<T> values = random_array<T>(rows);
    constexpr auto kGuard = static_cast<T>(-99);
    std::vector<T> out(rows * columns + kGuards, kGuard);
    cpu::repeat_along_rows(values.data(), rows, columns, out.data());
    for (std::size_t i = 0; i < out.size(); ++i)
      EXPECT_EQ(out[i], i < rows * columns ? values[i / columns] : kGuard) << i;
  });
}

}  // namespace
}  // namespace fuseblock
