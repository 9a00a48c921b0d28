// Types as text and in memory, and tensors: extents, labels, strides, and the rounding of 16-bit elements.
#include "fuseblock/type.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "fuseblock/tensor.h"
#include "refusal.h"

namespace fuseblock {
namespace {

using Extents = std::vector<std::int64_t>;

TEST(TypeText, ReadsAndPrints) {
  struct Case {
    std::string text;
    DType dtype;
    Extents extents;
    AxisSet axes;  // empty: the text has no labels
    Layout layout;
    std::string printed;
  };
  constexpr auto kPlain = Layout::kContiguous;
  const std::vector<Case> cases = {
      {"f32[128,3,24,32,32]", DType::kF32, {128, 3, 24, 32, 32}, {}, kPlain, "f32[128,3,24,32,32]"},
      {"bf16[2,320,64,64]:cl",
       DType::kBF16,
       {2, 320, 64, 64},
       {},
       Layout::kChannelsLast,
       "bf16[2,320,64,64]:cl"},
      {"f16[2,8,5]:cl", DType::kF16, {2, 8, 5}, {}, Layout::kChannelsLast, "f16[2,8,5]:cl"},
      {"f64[4,6]", DType::kF64, {4, 6}, {}, kPlain, "f64[4,6]"},
      {"f32[24]", DType::kF32, {24}, {}, kPlain, "f32[24]"},
      {"f32[]", DType::kF32, {}, {}, kPlain, "f32[]"},
      {"f32[0,3]", DType::kF32, {0, 3}, {}, kPlain, "f32[0,3]"},
      {" f32 [ 2 , 3 , 5 ] : cl # five columns",
       DType::kF32,
       {2, 3, 5},
       {},
       Layout::kChannelsLast,
       "f32[2,3,5]:cl"},
      {"f32[n=2,h=30,w=30]",
       DType::kF32,
       {2, 30, 30},
       {Axis::kN, Axis::kH, Axis::kW},
       kPlain,
       "f32[n=2,h=30,w=30]"},
      {"f32[c=6]", DType::kF32, {6}, {Axis::kC}, kPlain, "f32[6]"},
      {"f32[h=6]", DType::kF32, {6}, {Axis::kH}, kPlain, "f32[h=6]"},
      {"f32[n=2,c=3,w=5]", DType::kF32, {2, 3, 5}, {Axis::kN, Axis::kC, Axis::kW}, kPlain, "f32[2,3,5]"},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.text);
    const TensorType type = TensorType::parse(each.text);
    EXPECT_EQ(type.dtype, each.dtype);
    EXPECT_EQ(type.extents, each.extents);
    EXPECT_EQ(type.axes, each.axes);
    EXPECT_EQ(type.layout, each.layout);
    EXPECT_EQ(to_string(type), each.printed);
    EXPECT_EQ(to_string(TensorType::parse(each.printed)), each.printed);
  }
}

TEST(TypeText, RefusesWithThePosition) {
  struct Case {
    std::string text;
    int column;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"", 1, "expected a dtype (f64, f32, bf16 or f16), got the end of the text"},
      {"[2,3]", 1, "expected a dtype (f64, f32, bf16 or f16), got `[`"},
      {"float[2,3]", 1, "unknown dtype `float`; there are f64, f32, bf16 and f16"},
      {"f32", 4, "expected `[` before the extents, got the end of the text"},
      {"f32(2,3)", 4, "expected `[` before the extents, got `(`"},
      {"f32[2,3", 8, "expected `,` or `]` after an extent, got the end of the text"},
      {"f32[2,,3]", 7, "expected an extent (a whole number), got `,`"},
      {"f32[2,-3]", 7, "expected an extent (a whole number), got `-`"},
      {"f32[2,3.5]", 7, "an extent is a whole number below 2^63, got `3.5`"},
      {"f32[2,9223372036854775808]", 7, "an extent is a whole number below 2^63, got `9223372036854775808`"},
      {"f32[2,y=3]", 7, "expected an axis (n, c, d, h or w), got `y`"},
      {"f32[n 2]", 7, "expected `=` after an axis, got `2`"},
      {"f32[c=2,n=3]", 9, "axes stand once each, in the order n,c,d,h,w"},
      {"f32[n=2,n=3]", 9, "axes stand once each, in the order n,c,d,h,w"},
      {"f32[n=2,3]", 1, "type `f32[n=2,3]`: label every extent or none"},
      {"f32[1,2,3,4,5,6]", 1, "type `f32[1,2,3,4,5,6]`: at most 5 extents (n,c,d,h,w), got 6"},
      {"f32[2,3]:cl", 10, "channels_last needs the axes n, c and at least one spatial axis"},
      {"f32[n=2,h=3,w=4]:cl", 18, "channels_last needs the axes n, c and at least one spatial axis"},
      {"f32[2,3,4]:nhwc", 12, "the only layout to name is `cl` (channels_last), got `nhwc`"},
      {"f32[2,3,4]:", 12, "expected `cl` (channels_last), got the end of the text"},
      {"f32[2,3] f32", 10, "expected the end of the type"},
      {"f32[2\xff]", 6, "a character that does not belong into the notation: `\\xff`"},
  };
  for (const Case& each : cases) {
    const Refusal got = refusal([&] { TensorType::parse(each.text); });
    EXPECT_EQ(got.message, each.message) << each.text;
    EXPECT_EQ(got.line, 1) << each.text;
    EXPECT_EQ(got.column, each.column) << each.text;
  }
  EXPECT_EQ(refusal([] { parse_dtype("F32"); }).message,
            "unknown dtype `F32`; there are f64, f32, bf16 and f16");
}

TEST(TypeText, BytesStayBelowTwoToThe63) {
  const std::vector<std::string> good = {"bf16[4611686018427387903]", "f32[1073741824,1073741824]",
                                         "f64[1,1152921504606846975]", "f32[0,1152921504606846976,1]"};
  const std::vector<std::string> bad = {"bf16[4611686018427387904]", "f32[2147483648,1073741824]",
                                        "f64[1,1152921504606846976]", "f32[2147483647,2147483647,2147483647]",
                                        "f32[0,4611686018427387904,4611686018427387904]"};
  for (const std::string& text : good) EXPECT_GE(TensorType::parse(text).byte_count(), 0) << text;
  for (const std::string& text : bad)
    EXPECT_TRUE(refusal([&] { TensorType::parse(text); }).says("more than 2^63 bytes")) << text;
}

TEST(Types, DefaultLabelsFollowTheRank) {
  const std::vector<std::string> expected = {"", "c", "nc", "ncw", "nchw", "ncdhw"};
  for (int rank = 0; rank <= 5; ++rank)
    EXPECT_EQ(to_string(default_axes(rank), ""), expected[static_cast<std::size_t>(rank)]);
  EXPECT_EQ(refusal([] { default_axes(6); }).message, "at most 5 extents (n,c,d,h,w), got 6");
}

TEST(Types, ExtentsByAxis) {
  const TensorType type = TensorType::parse("f32[n=2,c=3,w=5]");
  EXPECT_EQ(type.canonical(), (std::array<std::int64_t, kAxisCount>{2, 3, 1, 1, 5}));
  EXPECT_EQ(type.extent(Axis::kW), 5);
  EXPECT_EQ(type.extent(Axis::kH), 1);
  EXPECT_EQ(type.element_count(), 30);
  EXPECT_EQ(type.byte_count(), 120);
  EXPECT_EQ(extents_text(type), "[2,3,5]");
  EXPECT_FALSE(TensorType::parse("f32[2,3,5]").labelled());
  EXPECT_TRUE(TensorType::make(DType::kF32, {2, 3, 5}).labelled());
}

TEST(Types, StridesOfDenseTensors) {
  struct Case {
    std::string text;
    Extents strides;
  };
  const std::vector<Case> cases = {
      {"f32[]", {}},
      {"f32[7]", {1}},
      {"f32[2,3,5,7]", {105, 35, 7, 1}},
      {"f32[2,3,5,7]:cl", {105, 1, 21, 3}},
      {"f32[2,3,5]:cl", {15, 1, 3}},
      {"f32[2,3,4,5,6]:cl", {360, 1, 90, 18, 3}},
      {"f32[2,1,5,7]:cl", {35, 1, 7, 1}},
      {"f32[0,3,5]", {15, 5, 1}},
      {"f32[2,0,5]:cl", {5, 1, 1}},
  };
  for (const Case& each : cases) EXPECT_EQ(TensorType::parse(each.text).strides(), each.strides) << each.text;
}

TEST(AxisSets, KeepTheOrder) {
  const AxisSet axes = {Axis::kW, Axis::kC};
  EXPECT_EQ(to_string(axes), "c,w");
  EXPECT_EQ(to_string(axes | AxisSet{Axis::kN}, ""), "ncw");
  EXPECT_EQ(to_string(axes - AxisSet{Axis::kC, Axis::kH}), "w");
  EXPECT_TRUE(axes.contains_all({Axis::kC}));
  EXPECT_FALSE(axes.contains_all({Axis::kC, Axis::kH}));
  EXPECT_EQ(axes.size(), 2);
}

TEST(DTypes, PromoteAsPyTorch) {
  const std::vector<DType> all = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16};
  for (DType a : all) {
    EXPECT_EQ(promote(a, a), a);
    EXPECT_EQ(promote(DType::kF64, a), DType::kF64);
    EXPECT_EQ(promote(a, DType::kF32), a == DType::kF64 ? DType::kF64 : DType::kF32);
    EXPECT_EQ(parse_dtype(to_string(a)), a);
    for (DType b : all) EXPECT_EQ(promote(a, b), promote(b, a));
  }
  EXPECT_EQ(promote(DType::kBF16, DType::kF16), DType::kF32);
}

// A 16-bit format as the standard describes it, apart from the library's own code.
struct Format {
  DType dtype;
  int mantissa_bits;
  int bias;

  std::uint16_t infinity() const {
    return static_cast<std::uint16_t>(((1U << (15 - mantissa_bits)) - 1U) << mantissa_bits);
  }
  double value(std::uint16_t bits) const {
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const int exponent = (bits & 0x7fff) >> mantissa_bits;
    const double size = exponent == 0
                            ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                            : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
    return (bits & 0x8000) != 0 ? -size : size;
  }
};

constexpr Format kBFloat = {DType::kBF16, 7, 127};
constexpr Format kHalf = {DType::kF16, 10, 15};

double load(const Format& format, std::uint16_t bits) { return load_element(&bits, format.dtype, 0); }

std::uint16_t store(const Format& format, double value) {
  std::uint16_t bits = 0xabcd;
  store_element(&bits, format.dtype, 0, value);
  return bits;
}

TEST(SixteenBitFloats, EveryPatternIsReadAndWrittenBack) {
  for (const Format& format : {kBFloat, kHalf}) {
    for (unsigned pattern = 0; pattern < 65536; ++pattern) {
      const auto bits = static_cast<std::uint16_t>(pattern);
      const double value = load(format, bits);
      if ((bits & 0x7fff) > format.infinity()) {
        ASSERT_TRUE(std::isnan(value)) << pattern;
        ASSERT_TRUE(std::isnan(load(format, store(format, value)))) << pattern;
        continue;
      }
      const double expected =
          (bits & 0x7fff) < format.infinity()
              ? format.value(bits)
              : std::copysign(std::numeric_limits<double>::infinity(), (bits & 0x8000) != 0 ? -1.0 : 1.0);
      ASSERT_EQ(value, expected) << pattern;
      ASSERT_EQ(store(format, value), bits) << pattern;
    }
  }
}

// Between each two neighbours: the middle goes to the even one, anything nearer to one of them goes there. The doubles next
// to the middle become the middle itself where they are rounded to float first, which would then go the wrong way.
TEST(SixteenBitFloats, RoundToNearestEvenInOneStep) {
  for (const Format& format : {kBFloat, kHalf}) {
    int wrong_through_float = 0;
    for (std::uint16_t low = 0; low < format.infinity(); ++low) {
      const auto high = static_cast<std::uint16_t>(low + 1);
      const double below = format.value(low);
      // The neighbour of the largest number stands where the next one would: from its middle on it is infinity.
      const double above = format.value(high);
      const double middle = below + (above - below) / 2;
      for (const unsigned sign : {0x0000U, 0x8000U}) {
        const double direction = sign == 0 ? 1 : -1;
        const std::uint16_t even = low % 2 == 0 ? low : high;
        ASSERT_EQ(store(format, direction * middle), even | sign) << low;
        ASSERT_EQ(store(format, direction * std::nextafter(middle, below)), low | sign) << low;
        ASSERT_EQ(store(format, direction * std::nextafter(middle, 2 * above)), high | sign) << low;
      }
      const auto rounded = static_cast<double>(static_cast<float>(std::nextafter(middle, 2 * above)));
      wrong_through_float += store(format, rounded) != high ? 1 : 0;
    }
    EXPECT_GT(wrong_through_float, 10000) << to_string(format.dtype);
  }
}

TEST(SixteenBitFloats, SpecialValues) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Format& format : {kBFloat, kHalf}) {
    EXPECT_EQ(store(format, infinity), format.infinity());
    EXPECT_EQ(store(format, -infinity), format.infinity() | 0x8000);
    EXPECT_EQ(store(format, 1e300), format.infinity());
    EXPECT_EQ(store(format, std::numeric_limits<double>::denorm_min()), 0);
    EXPECT_EQ(store(format, -std::numeric_limits<double>::denorm_min()), 0x8000);
    EXPECT_EQ(store(format, -0.0), 0x8000);
    EXPECT_TRUE(std::isnan(load(format, store(format, std::numeric_limits<double>::quiet_NaN()))));
    EXPECT_EQ(load(format, store(format, 1 + epsilon(format.dtype))), 1 + epsilon(format.dtype));
    EXPECT_EQ(load(format, store(format, 1 + epsilon(format.dtype) / 4)), 1);
  }
  EXPECT_EQ(load(kHalf, store(kHalf, 65519.99)), 65504);
  EXPECT_EQ(store(kHalf, 65520), kHalf.infinity());
}

TEST(WiderFloats, RoundToFloat) {
  std::array<float, 3> floats = {};
  store_element(floats.data(), DType::kF32, 1, 1 + 0x1p-24);
  store_element(floats.data(), DType::kF32, 2, 1 + 0x1p-24 + 0x1p-50);
  EXPECT_EQ(floats, (std::array<float, 3>{0, 1, 1 + 0x1p-23F}));
  double number = 0;
  store_element(&number, DType::kF64, 0, 0.1);
  EXPECT_EQ(load_element(&number, DType::kF64, 0), 0.1);
}

TEST(Tensors, HoldZerosAlignedAndReadInLogicalOrder) {
  for (const char* text : {"f32[2,3,4,5]", "f32[2,3,4,5]:cl", "bf16[2,3,4]:cl", "f64[2,3]", "f16[1]"}) {
    SCOPED_TRACE(text);
    Tensor tensor(TensorType::parse(text));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0U);
    for (double number : tensor.to_doubles()) EXPECT_EQ(number, 0);
    const std::int64_t count = tensor.type().element_count();
    for (std::int64_t i = 0; i < count; ++i) tensor.set(i, static_cast<double>(i % 128));
    for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(tensor.get(i), static_cast<double>(i % 128));
  }
  Tensor channels_last(TensorType::parse("f32[1,2,3]:cl"));
  for (std::int64_t i = 0; i < 6; ++i) channels_last.set(i, static_cast<double>(i));
  std::array<float, 6> memory = {};
  std::memcpy(memory.data(), channels_last.data(), sizeof(memory));
  EXPECT_EQ(memory, (std::array<float, 6>{0, 3, 1, 4, 2, 5}));
  EXPECT_TRUE(Tensor(TensorType::parse("f32[0,3]")).to_doubles().empty());
}

TEST(Tensors, RefuseExtentsThatAreNone) {
  const auto refused = [](std::vector<std::int64_t> extents) {
    return refusal([&] { Tensor tensor(TensorType::make(DType::kF32, std::move(extents))); }).message;
  };
  EXPECT_EQ(refused({-1, 3}), "tensor: extents are not negative; got f32[-1,3]");
  EXPECT_EQ(refused({0, -3}), "tensor: extents are not negative; got f32[0,-3]");
  constexpr std::int64_t kLarge = std::int64_t{1} << 32;
  EXPECT_EQ(refused({kLarge, kLarge}), "tensor: f32[4294967296,4294967296] has more than 2^63 bytes");
  EXPECT_EQ(refused({0, kLarge, kLarge}), "tensor: f32[0,4294967296,4294967296] has more than 2^63 bytes");
  EXPECT_EQ(refused({0, 3}), "");
}

#ifndef __SANITIZE_ADDRESS__  // which ends the program instead of returning no memory
TEST(Tensors, RefuseWhatNoMemoryHolds) {
  const TensorType type = TensorType::parse("f64[1048576,1048576,65536]");
  EXPECT_EQ(refusal([&] { Tensor tensor(type); }).message,
            "no memory for a tensor f64[1048576,1048576,65536] of 576460752303423488 bytes");
}
#endif

}  // namespace
}  // namespace fuseblock
