// Reductions of arrays against long double, and their bits against the order that reduce.h promises, under each
// instruction set of the machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "cpu/vector/reduce.h"
#include "vector_targets.h"

namespace fuseblock {
namespace {

constexpr std::size_t kCounts[] = {0,  1,  2,  3,  15,  16,  17,   29,   31,   32,
                                   33, 63, 64, 65, 100, 841, 1023, 1024, 1025, 4999};

template <class T>
std::vector<T> random_array(std::size_t count, double mean = 0, double deviation = 1) {
  std::mt19937 random(static_cast<unsigned>(count) + 1);
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<T> x(count);
  for (T& v : x) v = static_cast<T>(normal(random));
  return x;
}

bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

// The order of a sum as reduce.h tells it, one element at a time.
template <class T>
double sum_in_order(const std::vector<T>& x) {
  constexpr std::size_t kPartials = 256 / sizeof(T);
  double total = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += 16 * kPartials) {
    T partials[kPartials] = {};
    for (std::size_t i = begin; i < std::min(x.size(), begin + 16 * kPartials); ++i)
      partials[(i - begin) % kPartials] += x[i];
    for (std::size_t half = kPartials / 2; half > 0; half /= 2)
      for (std::size_t j = 0; j < half; ++j) partials[j] += partials[j + half];
    total += static_cast<double>(partials[0]);
  }
  return total;
}

template <class T>
class VectorReduce : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(VectorReduce, Types);

template <class Check>
void for_each_target(Check check) {
  for (std::int64_t target : vector_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const TargetScope scope(target);
    check(target);
  }
}

TYPED_TEST(VectorReduce, SumsHaveTheBitsOfTheStatedOrder) {
  for_each_target([](std::int64_t) {
    for (std::size_t count : kCounts) {
      const std::vector<TypeParam> x = random_array<TypeParam>(count, 0.1);
      EXPECT_TRUE(same_bits(cpu::sum(x.data(), count), sum_in_order(x))) << count << " elements";
    }
  });
}

TYPED_TEST(VectorReduce, SumsAreNearTheExactOnes) {
  const double epsilon = static_cast<double>(std::numeric_limits<TypeParam>::epsilon());
  for (std::size_t count : kCounts) {
    const std::vector<TypeParam> x = random_array<TypeParam>(count);
    long double exact = 0;
    long double size = 0;
    for (TypeParam v : x) {
      exact += v;
      size += std::fabs(v);
    }
    EXPECT_NEAR(cpu::sum(x.data(), count), static_cast<double>(exact), static_cast<double>(size) * epsilon)
        << count << " elements";
  }
}

TYPED_TEST(VectorReduce, ElementsBehindTheArrayDoNotCount) {
  for_each_target([](std::int64_t) {
    for (std::size_t count = 0; count < 70; ++count) {
      std::vector<TypeParam> x = random_array<TypeParam>(count);
      const double sum = cpu::sum(x.data(), count);
      const double sum_exp = cpu::sum_exp(x.data(), TypeParam{1}, count);
      const TypeParam largest = cpu::largest(x.data(), count);
      const TypeParam smallest = cpu::smallest(x.data(), count);
      const cpu::TileMoments moments = cpu::moments(x.data(), count);
      x.resize(count + 64, std::numeric_limits<TypeParam>::quiet_NaN());
      EXPECT_TRUE(same_bits(cpu::sum(x.data(), count), sum));
      EXPECT_TRUE(same_bits(cpu::sum_exp(x.data(), TypeParam{1}, count), sum_exp));
      EXPECT_EQ(cpu::largest(x.data(), count), largest);
      EXPECT_EQ(cpu::smallest(x.data(), count), smallest);
      EXPECT_TRUE(same_bits(cpu::moments(x.data(), count).m2, moments.m2));
    }
  });
}

TYPED_TEST(VectorReduce, ExtremesAndNaN) {
  for_each_target([](std::int64_t) {
    constexpr auto kInf = std::numeric_limits<TypeParam>::infinity();
    EXPECT_EQ(cpu::largest<TypeParam>(nullptr, 0), -kInf);
    EXPECT_EQ(cpu::smallest<TypeParam>(nullptr, 0), kInf);
    for (std::size_t count : {1, 5, 31, 64, 130, 333}) {
      std::vector<TypeParam> x = random_array<TypeParam>(count);
      EXPECT_EQ(cpu::largest(x.data(), count), *std::max_element(x.begin(), x.end()));
      EXPECT_EQ(cpu::smallest(x.data(), count), *std::min_element(x.begin(), x.end()));
      for (std::size_t at = 0; at < count; at += 7) {
        std::vector<TypeParam> y = x;
        y[at] = std::numeric_limits<TypeParam>::quiet_NaN();
        EXPECT_TRUE(std::isnan(cpu::largest(y.data(), count))) << at << " of " << count;
        EXPECT_TRUE(std::isnan(cpu::smallest(y.data(), count))) << at << " of " << count;
        EXPECT_TRUE(std::isnan(cpu::sum(y.data(), count))) << at << " of " << count;
        EXPECT_TRUE(std::isnan(cpu::moments(y.data(), count).mean)) << at << " of " << count;
      }
    }
  });
}

TYPED_TEST(VectorReduce, SumOfExponentials) {
  double first[std::size(kCounts)] = {};
  for_each_target([&](std::int64_t target) {
    for (std::size_t c = 0; c < std::size(kCounts); ++c) {
      const std::size_t count = kCounts[c];
      const std::vector<TypeParam> x = random_array<TypeParam>(count, 3, 4);
      const TypeParam shift = count == 0 ? TypeParam{0} : cpu::largest(x.data(), count);
      long double exact = 0;
      for (TypeParam v : x) exact += std::exp(static_cast<long double>(v - shift));
      const double value = cpu::sum_exp(x.data(), shift, count);
      EXPECT_NEAR(
          value, static_cast<double>(exact),
          3 * static_cast<double>(exact) * static_cast<double>(std::numeric_limits<TypeParam>::epsilon()));
      if (target == vector_targets().front()) first[c] = value;
      if (has_fma(target)) {
        EXPECT_TRUE(same_bits(value, first[c])) << count << " elements";
      }
    }
  });
}

template <class T>
void expect_moments(const std::vector<T>& x, double tolerance) {
  const cpu::TileMoments moments = cpu::moments(x.data(), x.size());
  long double mean = 0;
  for (T v : x) mean += v;
  mean /= static_cast<long double>(x.size());
  long double m2 = 0;
  for (T v : x) m2 += (v - mean) * (v - mean);
  const double deviation = std::sqrt(static_cast<double>(m2) / static_cast<double>(x.size()));
  EXPECT_NEAR(moments.mean, static_cast<double>(mean),
              tolerance * deviation + DBL_EPSILON * std::fabs(moments.mean))
      << x.size() << " elements";
  EXPECT_NEAR(moments.m2, static_cast<double>(m2), tolerance * static_cast<double>(m2))
      << x.size() << " elements";
}

TYPED_TEST(VectorReduce, MomentsAlsoWhereTheMeanIsFarAboveTheDeviation) {
  const double epsilon = static_cast<double>(std::numeric_limits<TypeParam>::epsilon());
  for_each_target([&](std::int64_t) {
    for (double mean : {0.0, 1.0, -1e4}) {
      for (double deviation : {1e-2, 1.0, 1e3})
        for (std::size_t count : {2, 3, 29, 64, 841, 1025, 4999})
          expect_moments(random_array<TypeParam>(count, mean, deviation), 4 * epsilon);
    }
  });
}

TYPED_TEST(VectorReduce, MomentsOfEqualElementsAreExact) {
  for (std::size_t count : {1, 3, 10, 841, 2000}) {
    const std::vector<TypeParam> x(count, static_cast<TypeParam>(0.1));
    const cpu::TileMoments moments = cpu::moments(x.data(), count);
    EXPECT_EQ(moments.mean, static_cast<double>(x[0]));
    EXPECT_EQ(moments.m2, 0);
  }
  const cpu::TileMoments none = cpu::moments<TypeParam>(nullptr, 0);
  EXPECT_EQ(none.mean, 0);
  EXPECT_EQ(none.m2, 0);
}

TYPED_TEST(VectorReduce, MomentsWithInfinities) {
  std::vector<TypeParam> x = random_array<TypeParam>(100);
  x[40] = std::numeric_limits<TypeParam>::infinity();
  const cpu::TileMoments moments = cpu::moments(x.data(), x.size());
  EXPECT_EQ(moments.mean, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(moments.m2));
}

TEST(VectorReduceOfFloat, MomentsWhoseSquaresOverflowFloat) {
  for (double scale : {1e20, 2e38}) {
    std::vector<float> x = random_array<float>(1000, 0, 0.1);
    for (float& v : x) v = static_cast<float>(v * scale);
    expect_moments(x, 1e-6);
  }
}

TYPED_TEST(VectorReduce, MomentsHaveTheSameBitsOnAllTargets) {
  std::vector<cpu::TileMoments> first;
  for_each_target([&](std::int64_t target) {
    for (std::size_t c = 0; c < std::size(kCounts); ++c) {
      const std::vector<TypeParam> x = random_array<TypeParam>(kCounts[c], 5);
      const cpu::TileMoments moments = cpu::moments(x.data(), x.size());
      if (target == vector_targets().front()) first.push_back(moments);
      EXPECT_TRUE(same_bits(moments.mean, first[c].mean)) << x.size() << " elements";
      EXPECT_TRUE(same_bits(moments.m2, first[c].m2)) << x.size() << " elements";
    }
  });
}

// Rows of samples; column i has the mean i and grows wider.
template <class T>
std::vector<std::vector<T>> sample_rows(std::size_t rows, std::size_t count) {
  std::vector<std::vector<T>> samples;
  for (std::size_t r = 0; r < rows; ++r) {
    std::vector<T> row = random_array<T>(count + r);
    row.resize(count);
    for (std::size_t i = 0; i < count; ++i)
      row[i] = row[i] * static_cast<T>(0.5 + 0.01 * static_cast<double>(i)) + static_cast<T>(i);
    samples.push_back(row);
  }
  return samples;
}

TYPED_TEST(VectorReduce, RowsAccumulateElementByElement) {
  constexpr auto kGuard = static_cast<TypeParam>(-99);
  for_each_target([&](std::int64_t) {
    for (std::size_t count : {0, 1, 7, 16, 53}) {
      const std::vector<std::vector<TypeParam>> rows = sample_rows<TypeParam>(5, count);
      std::vector<TypeParam> sum(count + 40, kGuard), largest(count + 40, kGuard),
          smallest(count + 40, kGuard);
      std::copy_n(rows[0].begin(), count, sum.begin());
      std::copy_n(rows[0].begin(), count, largest.begin());
      std::copy_n(rows[0].begin(), count, smallest.begin());
      for (std::size_t r = 1; r < rows.size(); ++r) {
        cpu::add_row(sum.data(), rows[r].data(), count);
        cpu::maximum_row(largest.data(), rows[r].data(), count);
        cpu::minimum_row(smallest.data(), rows[r].data(), count);
      }
      for (std::size_t i = 0; i < count; ++i) {
        TypeParam total = rows[0][i];
        TypeParam high = rows[0][i];
        TypeParam low = rows[0][i];
        for (std::size_t r = 1; r < rows.size(); ++r) {
          total += rows[r][i];
          high = std::max(high, rows[r][i]);
          low = std::min(low, rows[r][i]);
        }
        EXPECT_EQ(sum[i], total);
        EXPECT_EQ(largest[i], high);
        EXPECT_EQ(smallest[i], low);
      }
      for (std::size_t i = count; i < count + 40; ++i) {
        EXPECT_EQ(sum[i], kGuard);
        EXPECT_EQ(largest[i], kGuard);
        EXPECT_EQ(smallest[i], kGuard);
      }
    }
  });
}

// Moments from a guess are those without one, whether the guess is good, far off or not a number at all.
TYPED_TEST(VectorReduce, MomentsFromAGuessOfTheMean) {
  for_each_target([&](std::int64_t) {
    for (std::size_t count : {0, 1, 7, 53, 1024}) {
      for (double centre : {0.0, 1e4, -3e-3}) {
        std::vector<TypeParam> x(count);
        for (std::size_t i = 0; i < count; ++i)
          x[i] = static_cast<TypeParam>(centre + 0.01 * static_cast<double>(i * 37 % 101));
        const cpu::TileMoments plain = cpu::moments(x.data(), count);
        for (double near : {centre, centre + 0.4, 0.0, 1e30, std::numeric_limits<double>::quiet_NaN()}) {
          const cpu::TileMoments result = cpu::moments(x.data(), count, near);
          EXPECT_NEAR(result.mean, plain.mean, 1e-6 * (std::fabs(plain.mean) + 1e-3));
          EXPECT_NEAR(result.m2, plain.m2, 1e-5 * plain.m2 + 1e-12) << near << " for " << centre;
        }
      }
    }
  });
}

TYPED_TEST(VectorReduce, ExponentialsOfRowsAccumulate) {
  constexpr auto kGuard = static_cast<TypeParam>(-99);
  for_each_target([&](std::int64_t) {
    for (std::size_t count : {0, 1, 7, 16, 53}) {
      const std::vector<std::vector<TypeParam>> rows = sample_rows<TypeParam>(2, count);
      std::vector<TypeParam> total(count + 40, kGuard);
      std::vector<TypeParam> top(count);
      for (std::size_t i = 0; i < count; ++i) {
        total[i] = TypeParam{1};
        top[i] = rows[0][i] + static_cast<TypeParam>(0.25);
      }
      cpu::add_exp_row(total.data(), rows[0].data(), top.data(), count);
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_NEAR(total[i], 1 + std::exp(static_cast<double>(rows[0][i]) - static_cast<double>(top[i])),
                    1e-6);
      for (std::size_t i = count; i < count + 40; ++i) EXPECT_EQ(total[i], kGuard);
    }
  });
}

TYPED_TEST(VectorReduce, RowsPropagateNaN) {
  const auto nan = std::numeric_limits<TypeParam>::quiet_NaN();
  for_each_target([&](std::int64_t) {
    std::vector<TypeParam> total = {nan, 1, nan, 2};
    const std::vector<TypeParam> row = {1, nan, nan, 3};
    cpu::maximum_row(total.data(), row.data(), 4);
    EXPECT_TRUE(std::isnan(total[0]) && std::isnan(total[1]) && std::isnan(total[2]));
    EXPECT_EQ(total[3], 3);
    total = {nan, 1, nan, 2};
    cpu::minimum_row(total.data(), row.data(), 4);
    EXPECT_TRUE(std::isnan(total[0]) && std::isnan(total[1]) && std::isnan(total[2]));
    EXPECT_EQ(total[3], 2);
  });
}

TYPED_TEST(VectorReduce, MomentsOfRowsAndTheirMerge) {
  constexpr std::size_t kCount = 45;
  constexpr std::size_t kRows = 40;
  const double epsilon = static_cast<double>(std::numeric_limits<TypeParam>::epsilon());
  const std::vector<std::vector<TypeParam>> rows = sample_rows<TypeParam>(kRows, kCount);
  std::vector<TypeParam> first_mean;
  std::vector<TypeParam> first_m2;
  for_each_target([&](std::int64_t) {
    // Rows 0 to 11 one after the other, the rest likewise, and both together. NaN shows what is read unwritten.
    const auto nan = std::numeric_limits<TypeParam>::quiet_NaN();
    std::vector<TypeParam> mean(kCount + 1, nan), m2(kCount + 1, nan), other_mean(kCount, nan),
        other_m2(kCount, nan);
    for (std::size_t r = 0; r < 12; ++r)
      cpu::moments_row(mean.data(), m2.data(), rows[r].data(), kCount, static_cast<std::int64_t>(r) + 1);
    for (std::size_t r = 12; r < kRows; ++r)
      cpu::moments_row(other_mean.data(), other_m2.data(), rows[r].data(), kCount,
                       static_cast<std::int64_t>(r) - 11);
    cpu::merge_moments(mean.data(), m2.data(), 12, other_mean.data(), other_m2.data(), 28, kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      long double exact_mean = 0;
      long double exact_m2 = 0;
      for (const auto& row : rows) exact_mean += row[i];
      exact_mean /= kRows;
      for (const auto& row : rows) exact_m2 += (row[i] - exact_mean) * (row[i] - exact_mean);
      EXPECT_NEAR(mean[i], static_cast<double>(exact_mean),
                  4 * epsilon * (static_cast<double>(exact_mean) + 1));
      EXPECT_NEAR(m2[i], static_cast<double>(exact_m2), 200 * epsilon * static_cast<double>(exact_m2));
    }
    EXPECT_TRUE(std::isnan(mean[kCount]) && std::isnan(m2[kCount]));
    mean.resize(kCount);
    m2.resize(kCount);
    if (first_mean.empty()) {
      first_mean = mean;
      first_m2 = m2;
    }
    EXPECT_EQ(mean, first_mean);
    EXPECT_EQ(m2, first_m2);
    // No samples on one side.
    cpu::merge_moments(mean.data(), m2.data(), 40, other_mean.data(), other_m2.data(), 0, kCount);
    EXPECT_EQ(mean, first_mean);
    cpu::merge_moments(mean.data(), m2.data(), 0, other_mean.data(), other_m2.data(), 28, kCount);
    EXPECT_EQ(mean, other_mean);
    EXPECT_EQ(m2, other_m2);
  });
}

}  // namespace
}  // namespace fuseblock
