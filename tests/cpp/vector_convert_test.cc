// Conversions between tensor elements and arrays against load_element and store_element, under each instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "cpu/vector/convert.h"
#include "fuseblock/tensor.h"
#include "vector_targets.h"

namespace fuseblock {
namespace {

constexpr DType kDTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};

template <class T>
bool same(T a, T b) {
  return a == b ? std::signbit(a) == std::signbit(b) : std::isnan(a) && std::isnan(b);
}

// Every 16-bit pattern.
std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> bits(65536);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  return bits;
}

// Every value of a 16-bit type, its neighbours, the points halfway between two values and their neighbours; and
// numbers of all sizes.
template <class T>
std::vector<T> rounding_cases(DType dtype) {
  const T inf = std::numeric_limits<T>::infinity();
  std::vector<T> x = {inf,
                      -inf,
                      std::numeric_limits<T>::quiet_NaN(),
                      std::numeric_limits<T>::max(),
                      std::numeric_limits<T>::min(),
                      std::numeric_limits<T>::denorm_min()};
  const std::vector<std::uint16_t> bits = all_patterns();
  for (std::int64_t i = 0; i + 1 < 32768; ++i) {
    const auto low = static_cast<T>(load_element(bits.data(), dtype, i));
    auto high = static_cast<T>(load_element(bits.data(), dtype, i + 1));
    if (std::isnan(high) || std::isinf(low)) break;
    // Beyond the largest value infinity takes the place of the next power of two.
    if (std::isinf(high)) high = low + (low - static_cast<T>(load_element(bits.data(), dtype, i - 1)));
    const T middle = low / 2 + high / 2;
    for (T v : {low, middle})
      for (T near : {v, std::nextafter(v, inf), std::nextafter(v, -inf)}) {
        x.push_back(near);
        x.push_back(-near);
      }
  }
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    if constexpr (std::is_same_v<T, float>)
      x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    else
      x.push_back(std::bit_cast<double>(random()));
  }
  return x;
}

double element_at(const std::vector<std::byte>& memory, DType dtype, std::int64_t i) {
  return load_element(memory.data(), dtype, i);
}

template <class T>
void expect_store(const std::vector<T>& x, DType dtype) {
  const auto bytes = static_cast<std::size_t>(byte_size(dtype));
  std::vector<std::byte> stored(x.size() * bytes);
  std::vector<std::byte> expected(x.size() * bytes);
  cpu::store_elements(x.data(), stored.data(), dtype, 1, x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    store_element(expected.data(), dtype, at, static_cast<double>(x[i]));
    ASSERT_TRUE(same(element_at(stored, dtype, at), element_at(expected, dtype, at)))
        << x[i] << " becomes " << element_at(stored, dtype, at) << ", not "
        << element_at(expected, dtype, at);
  }
}

template <class T>
class VectorConvert : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(VectorConvert, Types);

TYPED_TEST(VectorConvert, EverySixteenBitPatternLoadsExactly) {
  const std::vector<std::uint16_t> bits = all_patterns();
  for (std::int64_t target : vector_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const TargetScope scope(target);
    for (DType dtype : {DType::kBF16, DType::kF16}) {
      std::vector<TypeParam> x(bits.size());
      cpu::load_elements(bits.data(), dtype, 1, x.data(), x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto exact =
            static_cast<TypeParam>(load_element(bits.data(), dtype, static_cast<std::int64_t>(i)));
        ASSERT_TRUE(same(x[i], exact)) << to_string(dtype) << " pattern " << i << ": " << x[i];
      }
    }
  }
}

TYPED_TEST(VectorConvert, StoresRoundOnceTiesToEven) {
  for (DType dtype : kDTypes) {
    const std::vector<TypeParam> x = rounding_cases<TypeParam>(byte_size(dtype) == 2 ? dtype : DType::kF16);
    for (std::int64_t target : vector_targets()) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " under " + hwy::TargetName(target));
      const TargetScope scope(target);
      expect_store(x, dtype);
    }
  }
}

// Loads what was stored at a stride, and checks that nothing else was written.
template <class T>
void expect_round_trip(DType dtype, std::int64_t stride, std::size_t count) {
  const std::int64_t size = byte_size(dtype);
  const std::int64_t spread = std::abs(stride);
  const auto elements = static_cast<std::int64_t>(count) * std::max<std::int64_t>(spread, 1) + 2;
  std::vector<std::byte> memory(static_cast<std::size_t>(elements * size), std::byte{0x5a});
  // One element in, so that no vector is aligned.
  std::byte* begin = memory.data() + size + (stride < 0 ? (elements - 3) * size : 0);
  std::vector<T> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<T>(i % 200) - 100;
  cpu::store_elements(x.data(), begin, dtype, stride, count);
  std::vector<T> back(count + 1, T{77});
  cpu::load_elements(begin, dtype, stride, back.data(), count);
  for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(back[i], x[i]) << "element " << i;
  EXPECT_EQ(back[count], T{77});
  for (std::size_t i = 0; i < count; ++i)
    std::memset(begin + static_cast<std::int64_t>(i) * stride * size, 0x5a, static_cast<std::size_t>(size));
  for (std::byte byte : memory) ASSERT_EQ(byte, std::byte{0x5a}) << "written outside of the elements";
}

TYPED_TEST(VectorConvert, StridedAndUnalignedElements) {
  for (std::int64_t target : vector_targets()) {
    const TargetScope scope(target);
    for (DType dtype : kDTypes) {
      for (std::int64_t stride : {1, 2, 3, 37, -1, -5}) {
        for (std::size_t count : {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 255, 256, 257, 600}) {
          SCOPED_TRACE(std::string(to_string(dtype)) + ", stride " + std::to_string(stride) + ", " +
                       std::to_string(count) + " elements under " + hwy::TargetName(target));
          expect_round_trip<TypeParam>(dtype, stride, count);
        }
      }
    }
  }
}

TYPED_TEST(VectorConvert, StrideZeroRepeatsTheElement) {
  const float value = 2.5F;
  std::vector<TypeParam> x(300);
  cpu::load_elements(&value, DType::kF32, 0, x.data(), x.size());
  for (TypeParam v : x) EXPECT_EQ(v, 2.5);
}

}  // namespace
}  // namespace fuseblock
