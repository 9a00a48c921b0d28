// Rows into totals of double against one element at a time, under each instruction set of the machine: bit
// for bit, but for exponentials.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cpu/vector/totals.h"
#include "vector_targets.h"

namespace fuseblock {
namespace {

constexpr std::size_t kCounts[] = {0, 1, 2, 3, 7, 8, 9, 16, 17, 31, 64, 100};
constexpr std::size_t kGuards = 24;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class T>
std::vector<T> random_array(std::size_t count, unsigned seed) {
  std::mt19937 random(static_cast<unsigned>(count) + seed);
  std::normal_distribution<double> normal(0.3, 2);
  std::vector<T> x(count);
  for (T& v : x) v = static_cast<T>(normal(random));
  return x;
}

template <class T>
class VectorTotals : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(VectorTotals, Types);

template <class Check>
void for_each_count(Check check) {
  for (std::int64_t target : vector_targets()) {
    const TargetScope scope(target);
    for (std::size_t count : kCounts) {
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", " + std::to_string(count) + " elements");
      check(count);
    }
  }
}

TYPED_TEST(VectorTotals, TakeInRows) {
  using T = TypeParam;
  for_each_count([](std::size_t count) {
    std::vector<T> row = random_array<T>(count, 1);
    const std::vector<double> before = random_array<double>(count + kGuards, 2);
    std::vector<double> expected[4] = {before, before, before, before};
    for (std::size_t i = 0; i < count; ++i) {
      const auto element = static_cast<double>(row[i]);
      expected[0][i] = element;
      expected[1][i] += element;
      expected[2][i] = std::max(expected[2][i], element);
      expected[3][i] = std::min(expected[3][i], element);
    }
    row.resize(count + kGuards, std::numeric_limits<T>::quiet_NaN());
    std::vector<double> totals[4] = {before, before, before, before};
    cpu::set_totals(totals[0].data(), row.data(), count);
    cpu::add_to_totals(totals[1].data(), row.data(), count);
    cpu::maximum_to_totals(totals[2].data(), row.data(), count);
    cpu::minimum_to_totals(totals[3].data(), row.data(), count);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(totals[i], expected[i]) << i;
  });
}

TYPED_TEST(VectorTotals, ExtremesKeepNaN) {
  using T = TypeParam;
  for_each_count([](std::size_t count) {
    if (count < 3) return;
    std::vector<T> row = random_array<T>(count, 1);
    std::vector<double> largest = random_array<double>(count, 2);
    row[0] = std::numeric_limits<T>::quiet_NaN();
    largest[count - 1] = kNaN;
    std::vector<double> smallest = largest;
    cpu::maximum_to_totals(largest.data(), row.data(), count);
    cpu::minimum_to_totals(smallest.data(), row.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(std::isnan(largest[i]), i == 0 || i == count - 1) << i;
      EXPECT_EQ(std::isnan(smallest[i]), i == 0 || i == count - 1) << i;
    }
  });
}

TYPED_TEST(VectorTotals, MomentsTakeInRows) {
  using T = TypeParam;
  for_each_count([](std::size_t count) {
    const std::vector<T> row = random_array<T>(count, 1);
    std::vector<double> mean = random_array<double>(count + kGuards, 2);
    std::vector<double> m2(count + kGuards, 3.5);
    std::vector<double> expected_mean = mean;
    std::vector<double> expected_m2 = m2;
    for (std::size_t i = 0; i < count; ++i) {
      const double distance = static_cast<double>(row[i]) - mean[i];
      // Rounded before they are added.
      const volatile double step = distance * (1.0 / 5);
      const volatile double square = distance * distance * (4.0 / 5);
      expected_mean[i] += step;
      expected_m2[i] += square;
    }
    cpu::moments_to_totals(mean.data(), m2.data(), row.data(), count, 5);
    EXPECT_EQ(mean, expected_mean);
    EXPECT_EQ(m2, expected_m2);
  });
}

TYPED_TEST(VectorTotals, SumsOfExponentialsTakeInOthers) {
  using T = TypeParam;
  for_each_count([](std::size_t count) {
    const std::vector<T> other_top = random_array<T>(count, 1);
    const std::vector<T> other_sum(count, T{2});
    std::vector<double> top = random_array<double>(count + kGuards, 2);
    for (double& value : top) value = static_cast<double>(static_cast<T>(value));
    std::vector<double> sum(count + kGuards, 3.0);
    const std::vector<double> before = top;
    cpu::exp_sums_to_totals(top.data(), sum.data(), other_top.data(), other_sum.data(), count);
    for (std::size_t i = 0; i < count + kGuards; ++i) {
      const double other = i < count ? static_cast<double>(other_top[i]) : -kInfinity;
      const double largest = std::max(before[i], other);
      EXPECT_EQ(top[i], largest) << i;
      EXPECT_NEAR(sum[i], 3 * std::exp(before[i] - largest) + 2 * std::exp(other - largest),
                  4 * static_cast<double>(std::numeric_limits<T>::epsilon()))
          << i;
    }
  });
}

// The sums of nothing but -infinity, which are not numbers, add nothing to finite ones.
TYPED_TEST(VectorTotals, InfinitiesAddNothingToFiniteExponentials) {
  using T = TypeParam;
  constexpr T kOtherInfinity = std::numeric_limits<T>::infinity();
  constexpr T kOtherNaN = std::numeric_limits<T>::quiet_NaN();
  for (std::int64_t target : vector_targets()) {
    const TargetScope scope(target);
    std::vector<double> top = {-kInfinity, 1, -kInfinity, 1, kInfinity, kNaN};
    std::vector<double> sum = {kNaN, 3, kNaN, 3, kNaN, kNaN};
    const std::vector<T> other_top = {1, -kOtherInfinity, -kOtherInfinity, kOtherNaN, 1, 1};
    const std::vector<T> other_sum = {2, kOtherNaN, kOtherNaN, kOtherNaN, 2, 2};
    cpu::exp_sums_to_totals(top.data(), sum.data(), other_top.data(), other_sum.data(), top.size());
    EXPECT_EQ(top[0], 1);
    EXPECT_EQ(sum[0], 2);
    EXPECT_EQ(top[1], 1);
    EXPECT_EQ(sum[1], 3);
    EXPECT_EQ(top[2], -kInfinity);
    EXPECT_TRUE(std::isnan(top[3]) && std::isnan(sum[3]));
    EXPECT_EQ(top[4], kInfinity);
    EXPECT_TRUE(std::isnan(top[5]) && std::isnan(sum[5]));
  }
}

}  // namespace
}  // namespace fuseblock
