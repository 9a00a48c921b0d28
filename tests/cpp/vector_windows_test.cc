// Windows over arrays against one element at a time, bit for bit, under each instruction set of the machine:
// all types of elements, distances, remainders of vectors, empty windows, NaN, ties and zeros of both signs.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cpu/vector/windows.h"
#include "fuseblock/tensor.h"
#include "vector_targets.h"

namespace fuseblock {
namespace {

using cpu::TapNumbers;
using cpu::Windows;

constexpr DType kDTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};
constexpr std::int64_t kCounts[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 100};
constexpr std::int64_t kStrides[] = {1, 2, 3, 5};
constexpr TapNumbers kNumbers = {4, {20, 5, 1}};

// Elements of one type, in memory of exactly their size.
struct Elements {
  DType dtype;
  std::vector<std::byte> memory;
  std::int64_t count;

  Elements(DType type, std::int64_t size, bool odd)
      : dtype(type), memory(static_cast<std::size_t>(size * byte_size(type))), count(size) {
    std::mt19937 random(static_cast<unsigned>(size) + 5);
    constexpr double kOdd[] = {std::numeric_limits<double>::quiet_NaN(),
                               std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(), -0.0, 0.0};
    std::normal_distribution<double> normal(0, 3);
    for (std::int64_t i = 0; i < size; ++i) {
      double value = random() % 3 == 0 ? std::round(normal(random)) : normal(random);
      if (odd && random() % 4 == 0) value = kOdd[random() % std::size(kOdd)];
      store_element(memory.data(), dtype, i, value);
    }
  }
  double operator[](std::int64_t i) const {
    EXPECT_TRUE(0 <= i && i < count);
    return load_element(memory.data(), dtype, i);
  }
};

// Windows of 2 x 3 x 2 taps, or fewer, whose results lie in three rows.
struct Shape {
  Windows windows;
  std::int64_t elements = 0;
  std::int64_t results = 0;

  Shape(std::int64_t count, std::int64_t stride, std::int64_t result_stride,
        std::array<std::int64_t, 3> taps) {
    const std::int64_t width = (count - 1) * stride + 4;
    windows = {
        count, stride, result_stride, 3, 2 * width, count * result_stride + 3, taps, {7 * width, width, 3}};
    elements = 7 * width + 2 * width + 2 * 2 * width + width;
    results = 2 * windows.result_row_stride + (count - 1) * result_stride + 1;
  }

  // Calls visit(first element of the window, place of the result).
  template <class Visit>
  void for_each_result(Visit visit) const {
    for (std::int64_t row = 0; row < windows.rows; ++row)
      for (std::int64_t j = 0; j < windows.count; ++j)
        visit(row * windows.row_stride + j * windows.stride,
              row * windows.result_row_stride + j * windows.result_stride);
  }
  // Calls visit(offset of the element, number) for each tap.
  template <class Visit>
  void for_each_tap(Visit visit) const {
    for (std::int64_t a = 0; a < windows.taps[0]; ++a)
      for (std::int64_t b = 0; b < windows.taps[1]; ++b)
        for (std::int64_t c = 0; c < windows.taps[2]; ++c)
          visit(a * windows.steps[0] + b * windows.steps[1] + c * windows.steps[2],
                kNumbers.first + a * kNumbers.steps[0] + b * kNumbers.steps[1] + c * kNumbers.steps[2]);
  }
};

constexpr std::array<std::int64_t, 3> kTaps[] = {{2, 3, 2}, {1, 1, 1}, {1, 2, 2}, {2, 0, 1}};

// Calls check(shape) under each instruction set.
template <class Check>
void for_each_shape(std::int64_t result_stride, Check check) {
  for (std::int64_t target : vector_targets()) {
    const TargetScope scope(target);
    for (const auto& taps : kTaps)
      for (std::int64_t stride : kStrides)
        for (std::int64_t count : kCounts) {
          SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", " + std::to_string(count) +
                       " windows at stride " + std::to_string(stride) + " of " +
                       std::to_string(taps[0] * taps[1] * taps[2]) + " taps");
          check(Shape(count, stride, result_stride, taps));
        }
  }
}

// The same bits, but any NaN for a NaN; nothing between and behind the results has changed.
template <class T>
void expect_same(const std::vector<T>& got, const std::vector<T>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto a = static_cast<double>(got[i]);
    const auto b = static_cast<double>(expected[i]);
    const bool same = std::isnan(b) ? std::isnan(a) : a == b && std::signbit(a) == std::signbit(b);
    ASSERT_TRUE(same) << "at " << i << ": " << got[i] << ", expected " << expected[i];
  }
}

template <class T>
std::vector<T> guarded(std::int64_t results) {
  return std::vector<T>(static_cast<std::size_t>(results) + 40, T{77});
}

// The tap of the largest element, as the reference engine finds it.
std::optional<std::pair<double, std::int64_t>> largest_of(const Shape& shape, const Elements& x,
                                                          std::int64_t begin) {
  std::optional<std::pair<double, std::int64_t>> largest;
  shape.for_each_tap([&](std::int64_t offset, std::int64_t number) {
    const double value = x[begin + offset];
    if (!largest || value > largest->first || std::isnan(value)) largest = {value, number};
  });
  return largest;
}

template <class T>
void check_maxima(const Shape& shape, const Elements& x) {
  std::vector<T> expected = guarded<T>(shape.results);
  std::vector<T> got = expected;
  shape.for_each_result([&](std::int64_t begin, std::int64_t at) {
    const auto largest = largest_of(shape, x, begin);
    expected[static_cast<std::size_t>(at)] =
        largest ? static_cast<T>(largest->first) : -std::numeric_limits<T>::infinity();
  });
  cpu::window_maxima(x.memory.data(), x.dtype, shape.windows, got.data());
  expect_same(got, expected);
}

TEST(VectorWindows, MaximaAndTheirPlaces) {
  for (DType dtype : kDTypes)
    for (bool odd : {false, true})
      for_each_shape(1, [&](const Shape& shape) {
        SCOPED_TRACE(to_string(dtype));
        const Elements x(dtype, shape.elements, odd);
        if (dtype == DType::kF64)
          check_maxima<double>(shape, x);
        else
          check_maxima<float>(shape, x);
        std::vector<std::int32_t> expected = guarded<std::int32_t>(shape.results);
        std::vector<std::int32_t> got = expected;
        shape.for_each_result([&](std::int64_t begin, std::int64_t at) {
          const auto largest = largest_of(shape, x, begin);
          expected[static_cast<std::size_t>(at)] = largest ? static_cast<std::int32_t>(largest->second) : -1;
        });
        cpu::window_places(x.memory.data(), dtype, shape.windows, kNumbers, got.data());
        expect_same(got, expected);
      });
}

template <class T>
class VectorWindowSums : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(VectorWindowSums, Types);

TYPED_TEST(VectorWindowSums, MeansAreRoundedOnce) {
  using T = TypeParam;
  for (DType dtype : kDTypes)
    for (double divisor : {4.0, 9.0})
      for_each_shape(1, [&](const Shape& shape) {
        SCOPED_TRACE(std::string(to_string(dtype)) + " over " + std::to_string(divisor));
        const Elements x(dtype, shape.elements, false);
        std::vector<T> expected = guarded<T>(shape.results);
        std::vector<T> got = expected;
        shape.for_each_result([&](std::int64_t begin, std::int64_t at) {
          double total = 0;
          shape.for_each_tap([&](std::int64_t offset, std::int64_t) { total += x[begin + offset]; });
          expected[static_cast<std::size_t>(at)] = static_cast<T>(total / divisor);
        });
        cpu::window_means(x.memory.data(), dtype, shape.windows, divisor, got.data());
        expect_same(got, expected);
      });
}

TYPED_TEST(VectorWindowSums, SharesAreDividedFirst) {
  using T = TypeParam;
  for (DType dtype : kDTypes)
    for (double divisor : {4.0, 9.0})
      for (std::int64_t result_stride : {1, 2})
        for_each_shape(result_stride, [&](const Shape& shape) {
          SCOPED_TRACE(std::string(to_string(dtype)) + " over " + std::to_string(divisor));
          const Elements x(dtype, shape.elements, true);
          std::vector<T> expected = guarded<T>(shape.results);
          std::vector<T> got = expected;
          shape.for_each_result([&](std::int64_t begin, std::int64_t at) {
            double total = 0;
            shape.for_each_tap(
                [&](std::int64_t offset, std::int64_t) { total += x[begin + offset] / divisor; });
            expected[static_cast<std::size_t>(at)] = static_cast<T>(total);
          });
          cpu::window_shares(x.memory.data(), dtype, shape.windows, divisor, got.data());
          expect_same(got, expected);
        });
}

TYPED_TEST(VectorWindowSums, OnlyChosenElementsAreAdded) {
  using T = TypeParam;
  for (DType dtype : kDTypes)
    for (std::int64_t result_stride : {1, 2})
      for_each_shape(result_stride, [&](const Shape& shape) {
        SCOPED_TRACE(to_string(dtype));
        const Elements x(dtype, shape.elements, true);
        // Places of the elements, as dense along a row as they may be.
        const Windows& windows = shape.windows;
        const std::int64_t width = windows.count + 4;
        const cpu::PlacesBeside layout = {nullptr, 2 * width, {7 * width, width, 3}};
        std::vector<std::int32_t> places(static_cast<std::size_t>(14 * width));
        std::mt19937 random(3);
        for (std::int32_t& place : places) place = static_cast<std::int32_t>(random() % 3);
        const TapNumbers numbers = {2, {0, -1, 1}};
        std::vector<T> expected = guarded<T>(shape.results);
        std::vector<T> got = expected;
        for (std::int64_t row = 0; row < windows.rows; ++row)
          for (std::int64_t j = 0; j < windows.count; ++j) {
            double total = 0;
            for (std::int64_t a = 0; a < windows.taps[0]; ++a)
              for (std::int64_t b = 0; b < windows.taps[1]; ++b)
                for (std::int64_t c = 0; c < windows.taps[2]; ++c) {
                  const std::int64_t place = row * layout.row_stride + j + a * layout.steps[0] +
                                             b * layout.steps[1] + c * layout.steps[2];
                  if (places[static_cast<std::size_t>(place)] != 2 - b + c) continue;
                  total += x[row * windows.row_stride + j * windows.stride + a * windows.steps[0] +
                             b * windows.steps[1] + c * windows.steps[2]];
                }
            expected[static_cast<std::size_t>(row * windows.result_row_stride + j * windows.result_stride)] =
                static_cast<T>(total);
          }
        cpu::window_chosen(x.memory.data(), dtype, windows, {places.data(), layout.row_stride, layout.steps},
                           numbers, got.data());
        expect_same(got, expected);
      });
}

}  // namespace
}  // namespace fuseblock
