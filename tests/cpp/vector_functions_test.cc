// The vector functions against the C library: float against double, double against long double.
//
// Floats are sampled by their bit pattern, with every value around the borders of the methods. FUSEBLOCK_LONG=1
// takes every one from 2^-30 to 110 in size.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cpu/vector/tile_ops.h"
#include "fuseblock/formula.h"
#include "vector_targets.h"

namespace fuseblock {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kChunk = 4096;
// The distance of two sampled bit patterns: a prime, so that all low bits occur.
#ifdef __OPTIMIZE__
constexpr std::uint64_t kStride = 257;
#else
constexpr std::uint64_t kStride = 16411;
#endif

template <class T>
std::vector<T> apply_to(Primitive primitive, const std::vector<T>& x) {
  std::vector<T> y(x.size());
  const cpu::TileOperand<T> operand = {x.data(), false};
  cpu::apply(primitive, operand, operand, operand, y.data(), x.size());
  return y;
}

// The definitions in a wider type.
template <class Wide>
Wide wide_value(Primitive primitive, Wide x) {
  switch (primitive) {
    case Primitive::kSqrt: return std::sqrt(x);
    case Primitive::kExp: return std::exp(x);
    case Primitive::kExpm1: return std::expm1(x);
    case Primitive::kLog: return std::log(x);
    case Primitive::kLog1pExp: return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    case Primitive::kTanh: return std::tanh(x);
    case Primitive::kErf: return std::erf(x);
    case Primitive::kSigmoid: return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
    default: ADD_FAILURE() << "no function"; return 0;
  }
}

// |value - exact| in units of the last place of T at `exact`. Infinity counts as the power of two behind the largest
// number; a NaN on one side only is infinitely wrong. What is rounded correctly counts as 0.5 without a closer look.
template <class T, class Wide>
double ulp_error(T value, Wide exact) {
  if (std::isnan(value) || std::isnan(exact))
    return std::isnan(value) == std::isnan(exact) ? 0.0 : std::numeric_limits<double>::infinity();
  if (value == static_cast<T>(exact)) return 0.5;
  using Limits = std::numeric_limits<T>;
  const Wide end = std::ldexp(Wide{1}, Limits::max_exponent);
  const Wide wide_value = std::clamp(static_cast<Wide>(value), -end, end);
  exact = std::clamp(exact, -end, end);
  const int exponent =
      exact == 0 ? Limits::min_exponent - 1
                 : std::clamp(std::ilogb(exact), Limits::min_exponent - 1, Limits::max_exponent - 1);
  return static_cast<double>(std::ldexp(std::fabs(wide_value - exact), Limits::digits - 1 - exponent));
}

struct Worst {
  double error = 0;
  double x = 0;

  void take(double new_error, double new_x) {
    if (new_error <= error) return;
    error = new_error;
    x = new_x;
  }
};

template <class T, class Wide>
Worst worst_of(Primitive primitive, const std::vector<T>& x, const std::vector<Wide>& exact) {
  Worst worst;
  const std::vector<T> y = apply_to(primitive, x);
  for (std::size_t i = 0; i < x.size(); ++i) worst.take(ulp_error(y[i], exact[i]), static_cast<double>(x[i]));
  return worst;
}

struct Function {
  Primitive primitive;
  // Bounds of the error in units of the last place; the second for targets without FMA.
  double bound;
  double bound_without_fma;
  // Where the method changes, or the result reaches a limit.
  std::vector<float> borders;
};

const std::vector<Function>& functions() {
  static const std::vector<Function> kFunctions = {
      {Primitive::kSqrt, 0.5, 0.5, {}},
      {Primitive::kExp, 2, 2, {-104.F, -103.97F, -87.34F, -0.3466F, 0.3466F, 88.72F}},
      {Primitive::kExpm1, 2, 2, {-18.F, -17.33F, -1.04F, -0.3466F, 0x1p-26F, 0.3466F, 1.04F, 88.72F}},
      {Primitive::kLog, 2, 2, {0x1p-126F, 0.70710677F, 1.F, 1.41421354F, 2.F}},
      {Primitive::kLog1pExp, 2, 2, {-104.F, -87.34F, -16.6F, -0.8814F, 0.8814F, 16.6F}},
      {Primitive::kTanh, 2, 2, {-0.625F, 0.3466F, 0.625F, 9.01F, 9.2F}},
      {Primitive::kErf, 2, 2, {-1.F, 1.F, 3.83F, 4.F}},
      {Primitive::kSigmoid, 2, 2, {-104.F, -87.34F, 0.3466F, 16.6F, 88.72F}},
  };
  return kFunctions;
}

std::string name_of(const Function& function) { return std::string(info(function.primitive).name); }

// The floats with bit patterns first, first + stride, ... below `last`, at most a chunk of them.
std::vector<float> floats_from(std::uint64_t first, std::uint64_t stride, std::uint64_t last) {
  std::vector<float> x(std::min<std::uint64_t>(kChunk, (last - first + stride - 1) / stride));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(first + i * stride));
  return x;
}

std::vector<double> exact_of(Primitive primitive, const std::vector<float>& x) {
  std::vector<double> exact(x.size());
  std::transform(x.begin(), x.end(), exact.begin(),
                 [&](float v) { return wide_value(primitive, static_cast<double>(v)); });
  return exact;
}

// The largest error over bit patterns first, first + stride, ... below `last`.
Worst worst_between(Primitive primitive, std::uint64_t first, std::uint64_t stride, std::uint64_t last) {
  Worst worst;
  for (std::uint64_t begin = first; begin < last; begin += stride * kChunk) {
    const std::vector<float> x = floats_from(begin, stride, last);
    const Worst here = worst_of(primitive, x, exact_of(primitive, x));
    worst.take(here.error, here.x);
  }
  return worst;
}

// All bit patterns at a stride, by two threads.
Worst worst_at_stride(Primitive primitive, std::uint64_t stride) {
  constexpr std::uint64_t kAll = std::uint64_t{1} << 32;
  const std::uint64_t middle = kAll / 2 / stride * stride;
  Worst worst;
  std::thread upper([&] { worst = worst_between(primitive, middle, stride, kAll); });
  const Worst lower = worst_between(primitive, 0, stride, middle);
  upper.join();
  worst.take(lower.error, lower.x);
  return worst;
}

std::vector<float> special_floats(const Function& function) {
  std::vector<float> x = {0.F, -0.F, kInf, -kInf, kNaN, 1.F, -1.F, FLT_MAX, -FLT_MAX, FLT_MIN, -FLT_MIN};
  for (float border : function.borders) {
    const auto bits = std::bit_cast<std::uint32_t>(border);
    for (std::uint32_t i = bits - 2000; i != bits + 2000; ++i) x.push_back(std::bit_cast<float>(i));
  }
  for (std::uint32_t bits = 0; bits < 100; ++bits) {
    for (std::uint32_t start : {0U, 0x80000000U, 0x007fffceU, 0x807fffceU, 0x7f7fff9cU, 0xff7fff9cU})
      x.push_back(std::bit_cast<float>(start + bits));
  }
  // Halfway between the multiples of ln 2, where the reduction of exp changes its exponent.
  for (int n = -300; n <= 300; ++n) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>((n + 0.5) * 0.34657359027997264));
    for (std::uint32_t i = bits - 50; i != bits + 50; ++i) x.push_back(std::bit_cast<float>(i));
  }
  return x;
}

double bound_of(const Function& function, std::int64_t target) {
  return has_fma(target) ? function.bound : function.bound_without_fma;
}

void report(const Function& function, const char* type, std::int64_t target, const Worst& worst,
            double bound) {
  std::printf("  %-9s %s %-6s largest error %.3f ulp at %.9g\n", name_of(function).c_str(), type,
              hwy::TargetName(target), worst.error, worst.x);
  std::fflush(stdout);
  EXPECT_LE(worst.error, bound) << name_of(function) << " " << type << " under " << hwy::TargetName(target)
                                << " at x = " << worst.x;
}

TEST(VectorFunctions, FloatsAreWithinTwoUlp) {
  for (const Function& function : functions()) {
    const std::vector<float> special = special_floats(function);
    const std::vector<double> exact = exact_of(function.primitive, special);
    for (std::int64_t target : vector_targets()) {
      const TargetScope scope(target);
      Worst worst = worst_of(function.primitive, special, exact);
      const bool is_best = target == vector_targets().front();
      const Worst dense = worst_at_stride(function.primitive, is_best ? kStride : 16411);
      worst.take(dense.error, dense.x);
      report(function, "f32", target, worst, bound_of(function, target));
    }
  }
}

// Every float from 2^-30 to 110 in size. What is nearer to 0 or further away has a limit for its result, or with log
// nothing but another exponent; the sample above covers it.
TEST(VectorFunctions, EveryFloatOfModerateSizeIsWithinTwoUlp) {
  if (std::getenv("FUSEBLOCK_LONG") == nullptr) GTEST_SKIP() << "takes minutes: set FUSEBLOCK_LONG=1";
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "takes an hour under a sanitizer: the release build does it";
#endif
  constexpr std::uint64_t kSign = std::uint64_t{1} << 31;
  const auto first = std::uint64_t{std::bit_cast<std::uint32_t>(0x1p-30F)};
  const auto last = std::uint64_t{std::bit_cast<std::uint32_t>(110.F)};
  for (const Function& function : functions()) {
    Worst worst;
    std::thread negative([&] { worst = worst_between(function.primitive, kSign + first, 1, kSign + last); });
    const Worst positive = worst_between(function.primitive, first, 1, last);
    negative.join();
    worst.take(positive.error, positive.x);
    report(function, "f32", vector_targets().front(), worst, function.bound);
  }
}

std::vector<double> sampled_doubles() {
  std::mt19937_64 random(7);
  std::vector<double> x;
  for (int i = 0; i < 60000; ++i) x.push_back(std::bit_cast<double>(random()));
  for (double scale : {1e-3, 1.0, 6.0, 40.0, 750.0}) {
    std::uniform_real_distribution<double> uniform(-scale, scale);
    for (int i = 0; i < 30000; ++i) x.push_back(uniform(random));
  }
  const double inf = std::numeric_limits<double>::infinity();
  for (double v :
       {0.0, inf, DBL_MAX, DBL_MIN, DBL_MIN / 2, 5e-324, 0.625, 1.0, 6.0, 20.0, 38.0, 709.8, 745.2})
    for (double sign : {-1.0, 1.0}) x.push_back(sign * v);
  x.push_back(std::numeric_limits<double>::quiet_NaN());
  return x;
}

TEST(VectorFunctions, DoublesAreWithinFourUlp) {
  const std::vector<double> x = sampled_doubles();
  for (const Function& function : functions()) {
    std::vector<long double> exact(x.size());
    std::transform(x.begin(), x.end(), exact.begin(),
                   [&](double v) { return wide_value(function.primitive, static_cast<long double>(v)); });
    for (std::int64_t target : vector_targets()) {
      const TargetScope scope(target);
      report(function, "f64", target, worst_of(function.primitive, x, exact),
             function.primitive == Primitive::kSqrt ? 0.501 : 4);
    }
  }
}

template <class T>
void expect_limits() {
  const T inf = std::numeric_limits<T>::infinity();
  struct Limit {
    Primitive primitive;
    T x;
    T y;
  };
  const std::vector<Limit> limits = {
      {Primitive::kExp, -inf, 0},
      {Primitive::kExp, inf, inf},
      {Primitive::kExp, 0, 1},
      {Primitive::kExpm1, -inf, -1},
      {Primitive::kExpm1, inf, inf},
      {Primitive::kExpm1, -T{0}, -T{0}},
      {Primitive::kLog, 0, -inf},
      {Primitive::kLog, -T{0}, -inf},
      {Primitive::kLog, inf, inf},
      {Primitive::kLog, 1, 0},
      {Primitive::kLog1pExp, -inf, 0},
      {Primitive::kLog1pExp, inf, inf},
      {Primitive::kTanh, -inf, -1},
      {Primitive::kTanh, inf, 1},
      {Primitive::kTanh, -T{0}, -T{0}},
      {Primitive::kErf, -inf, -1},
      {Primitive::kErf, inf, 1},
      {Primitive::kErf, -T{0}, -T{0}},
      {Primitive::kSigmoid, -inf, 0},
      {Primitive::kSigmoid, inf, 1},
      {Primitive::kSigmoid, 0, T{0.5}},
      {Primitive::kSqrt, -T{0}, -T{0}},
      {Primitive::kSqrt, inf, inf},
      {Primitive::kTanh, std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::denorm_min()},
      {Primitive::kExpm1, std::numeric_limits<T>::denorm_min(), std::numeric_limits<T>::denorm_min()},
  };
  for (const Limit& limit : limits) {
    const T y = apply_to(limit.primitive, std::vector<T>{limit.x})[0];
    EXPECT_EQ(y, limit.y) << info(limit.primitive).name << "(" << limit.x << ")";
    EXPECT_EQ(std::signbit(y), std::signbit(limit.y)) << info(limit.primitive).name << "(" << limit.x << ")";
  }
  for (Primitive primitive : {Primitive::kLog, Primitive::kSqrt})
    for (T x : {-inf, T{-1}, -std::numeric_limits<T>::denorm_min()})
      EXPECT_TRUE(std::isnan(apply_to(primitive, std::vector<T>{x})[0]))
          << info(primitive).name << "(" << x << ")";
}

TEST(VectorFunctions, LimitsAreExact) {
  for (std::int64_t target : vector_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const TargetScope scope(target);
    expect_limits<float>();
    expect_limits<double>();
  }
}

TEST(VectorFunctions, TargetsWithFmaGiveTheSameBits) {
  const std::vector<double> x64 = sampled_doubles();
  for (const Function& function : functions()) {
    const std::vector<float> x32 = special_floats(function);
    std::vector<float> first32;
    std::vector<double> first64;
    for (std::int64_t target : vector_targets()) {
      if (!has_fma(target)) continue;
      const TargetScope scope(target);
      const std::vector<float> y32 = apply_to(function.primitive, x32);
      const std::vector<double> y64 = apply_to(function.primitive, x64);
      if (first32.empty()) {
        first32 = y32;
        first64 = y64;
      }
      for (std::size_t i = 0; i < x32.size(); ++i)
        ASSERT_TRUE(y32[i] == first32[i] || (std::isnan(y32[i]) && std::isnan(first32[i])))
            << name_of(function) << "(" << x32[i] << ") under " << hwy::TargetName(target);
      for (std::size_t i = 0; i < x64.size(); ++i)
        ASSERT_TRUE(y64[i] == first64[i] || (std::isnan(y64[i]) && std::isnan(first64[i])))
            << name_of(function) << "(" << x64[i] << ") under " << hwy::TargetName(target);
    }
  }
}

}  // namespace
}  // namespace fuseblock
