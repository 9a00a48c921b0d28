// The primitives on arrays against fuseblock::evaluate, under each instruction set of the machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpu/vector/tile_ops.h"
#include "fuseblock/error.h"
#include "fuseblock/formula.h"
#include "vector_targets.h"

namespace fuseblock {
namespace {

using cpu::FusedSteps;
using cpu::TileOperand;

// Elements that stand behind an array and must stay as they are.
constexpr std::size_t kGuards = 70;

template <class T>
T guard() {
  return static_cast<T>(-12345);
}

template <class T>
bool same(T a, T b) {
  return a == b ? std::signbit(a) == std::signbit(b) : std::isnan(a) && std::isnan(b);
}

bool is_approximated(Primitive primitive) { return primitive >= Primitive::kExp; }

template <class T>
void expect_value(Primitive primitive, T a, T b, T c, T value) {
  const double wide =
      evaluate(primitive, static_cast<double>(a), static_cast<double>(b), static_cast<double>(c));
  const T exact = static_cast<T>(wide);
  if (is_approximated(primitive) && std::isfinite(exact)) {
    // vector_functions_test.cc measures them; here only that the right one was called.
    ASSERT_NEAR(value, exact, std::fabs(exact) * 1e-6 + 1e-37) << info(primitive).name << "(" << a << ")";
    return;
  }
  ASSERT_TRUE(same(value, exact)) << info(primitive).name << " of " << a << ", " << b << ", " << c << " is "
                                  << value << ", not " << exact;
}

// Operands that meet each other in all pairs and, one after the other, in all triples of a few.
template <class T>
struct Operands {
  std::vector<T> a, b, c;
};

template <class T>
Operands<T> all_combinations() {
  const T inf = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> values = {0, -T{0}, 1, -1, T{0.5}, T{-2.25}, static_cast<T>(3e-5), 17, inf, -inf, nan};
  Operands<T> operands;
  for (T a : values) {
    for (T b : values) {
      for (T c : values) {
        operands.a.push_back(a);
        operands.b.push_back(b);
        operands.c.push_back(c);
      }
    }
  }
  return operands;
}

template <class T>
Operands<T> random_operands(std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::uniform_real_distribution<T> uniform(-4, 4);
  Operands<T> operands;
  for (std::size_t i = 0; i < count; ++i) {
    operands.a.push_back(uniform(random));
    operands.b.push_back(uniform(random));
    operands.c.push_back(uniform(random));
  }
  return operands;
}

template <class T>
void expect_primitives(const Operands<T>& x) {
  const std::size_t count = x.a.size();
  for (const PrimitiveInfo& entry : primitives()) {
    std::vector<T> out(count + kGuards, guard<T>());
    cpu::apply<T>(entry.primitive, {x.a.data(), false}, {x.b.data(), false}, {x.c.data(), false}, out.data(),
                  count);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_NO_FATAL_FAILURE(expect_value(entry.primitive, x.a[i], x.b[i], x.c[i], out[i]));
    for (std::size_t i = count; i < out.size(); ++i) ASSERT_EQ(out[i], guard<T>()) << entry.name;
  }
}

// Each operand in turn uniform, and all of them.
template <class T>
void expect_uniform_operands(std::size_t count) {
  const Operands<T> x = random_operands<T>(count);
  for (const PrimitiveInfo& entry : primitives()) {
    for (int uniform = 0; uniform < 8; ++uniform) {
      const bool u[3] = {(uniform & 1) != 0, (uniform & 2) != 0, (uniform & 4) != 0};
      std::vector<T> out(count + kGuards, guard<T>());
      cpu::apply<T>(entry.primitive, {x.a.data(), u[0]}, {x.b.data(), u[1]}, {x.c.data(), u[2]}, out.data(),
                    count);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_NO_FATAL_FAILURE(
            expect_value(entry.primitive, x.a[u[0] ? 0 : i], x.b[u[1] ? 0 : i], x.c[u[2] ? 0 : i], out[i]));
      ASSERT_EQ(out[count], guard<T>()) << entry.name;
    }
  }
}

template <class T>
void expect_in_place(std::size_t count) {
  const Operands<T> x = random_operands<T>(count);
  for (const PrimitiveInfo& entry : primitives()) {
    for (int place = 0; place < entry.arity; ++place) {
      Operands<T> y = x;
      T* out = place == 0 ? y.a.data() : place == 1 ? y.b.data() : y.c.data();
      cpu::apply<T>(entry.primitive, {y.a.data(), false}, {y.b.data(), false}, {y.c.data(), false}, out,
                    count);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_NO_FATAL_FAILURE(expect_value(entry.primitive, x.a[i], x.b[i], x.c[i], out[i]));
    }
  }
}

// c where the comparison of a and b holds, else d; d is c negated.
template <class T>
void expect_select_where(const Operands<T>& x) {
  const std::size_t count = x.a.size();
  std::vector<T> other(count);
  for (std::size_t i = 0; i < count; ++i) other[i] = -x.c[i];
  for (Primitive comparison : {Primitive::kLess, Primitive::kLessEqual, Primitive::kGreater,
                               Primitive::kGreaterEqual, Primitive::kEqual}) {
    std::vector<T> out(count + kGuards, guard<T>());
    const TileOperand<T> operands[] = {
        {x.a.data(), false}, {x.b.data(), false}, {x.c.data(), false}, {other.data(), false}};
    cpu::select_where_function<T>(comparison)(operands, out.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      const bool holds =
          evaluate(comparison, static_cast<double>(x.a[i]), static_cast<double>(x.b[i]), 0) != 0;
      ASSERT_TRUE(same(out[i], holds ? x.c[i] : other[i]))
          << info(comparison).name << " of " << x.a[i] << " and " << x.b[i];
    }
    for (std::size_t i = count; i < out.size(); ++i) ASSERT_EQ(out[i], guard<T>());
  }
}

// A product and a sum, rounded once.
template <class T>
void expect_multiply_add(const Operands<T>& x) {
  const std::size_t count = x.a.size();
  std::vector<T> out(count + kGuards, guard<T>());
  const TileOperand<T> operands[] = {{x.a.data(), false}, {x.b.data(), false}, {x.c.data(), false}};
  cpu::fused_function<T>(FusedSteps::kMultiplyAdd)(operands, out.data(), count);
  for (std::size_t i = 0; i < count; ++i)
    ASSERT_TRUE(same(out[i], std::fma(x.a[i], x.b[i], x.c[i])))
        << x.a[i] << " * " << x.b[i] << " + " << x.c[i];
  for (std::size_t i = count; i < out.size(); ++i) ASSERT_EQ(out[i], guard<T>());
}

// Every function, by what it computes.
std::vector<std::pair<std::string, cpu::TileFunction<float>>> float_functions() {
  std::vector<std::pair<std::string, cpu::TileFunction<float>>> functions;
  for (const PrimitiveInfo& entry : primitives())
    functions.emplace_back(entry.name, cpu::tile_function<float>(entry.primitive));
  for (int i = 0; i <= static_cast<int>(FusedSteps::kHardswishGradient); ++i)
    functions.emplace_back("several steps " + std::to_string(i),
                           cpu::fused_function<float>(static_cast<FusedSteps>(i)));
  for (Primitive comparison : {Primitive::kLess, Primitive::kEqual})
    functions.emplace_back("where " + std::string(info(comparison).name),
                           cpu::select_where_function<float>(comparison));
  return functions;
}

// Each operand in turn an array of float, uniform, or bf16 with the same values: the bits of the results are the same.
void expect_bf16_operands(std::size_t count) {
  std::array<std::vector<std::uint16_t>, cpu::kMostOperands> halves;
  std::array<std::vector<float>, cpu::kMostOperands> whole;
  std::mt19937 random(static_cast<unsigned>(count));
  for (std::size_t o = 0; o < cpu::kMostOperands; ++o)
    for (std::size_t i = 0; i <= count; ++i) {
      // Sizes around 1, either sign; the lowest exponent bits and all of the mantissa vary.
      halves[o].push_back(static_cast<std::uint16_t>(0x3f00U + random() % 0x180U + (random() % 2 << 15)));
      whole[o].push_back(std::bit_cast<float>(static_cast<std::uint32_t>(halves[o].back()) << 16));
    }
  for (const auto& [name, function] : float_functions()) {
    for (int kinds = 0; kinds < 243; ++kinds) {
      std::array<TileOperand<float>, cpu::kMostOperands> plain;
      std::array<TileOperand<float>, cpu::kMostOperands> mixed;
      for (int o = 0, rest = kinds; o < static_cast<int>(cpu::kMostOperands); ++o, rest /= 3) {
        const auto at = static_cast<std::size_t>(o);
        plain[at] = mixed[at] = {whole[at].data(), rest % 3 == 1};
        if (rest % 3 == 2) mixed[at] = {nullptr, false, halves[at].data()};
      }
      std::vector<float> expected(count + kGuards, guard<float>());
      std::vector<float> out = expected;
      function(plain.data(), expected.data(), count);
      function(mixed.data(), out.data(), count);
      for (std::size_t i = 0; i < out.size(); ++i)
        ASSERT_TRUE(same(out[i], expected[i]))
            << name << ", kinds of operands " << kinds << ", element " << i;
    }
  }
}

template <class T>
class VectorTileOps : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(VectorTileOps, Types);

TYPED_TEST(VectorTileOps, PrimitivesAreEvaluateElementByElement) {
  for (std::int64_t target : vector_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const TargetScope scope(target);
    expect_primitives(all_combinations<TypeParam>());
    for (std::size_t count = 0; count <= 67; ++count) expect_primitives(random_operands<TypeParam>(count));
  }
}

TYPED_TEST(VectorTileOps, OneElementStandsForAll) {
  for (std::int64_t target : vector_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const TargetScope scope(target);
    for (std::size_t count : {1, 2, 7, 16, 33}) expect_uniform_operands<TypeParam>(count);
  }
}

TYPED_TEST(VectorTileOps, ResultsMayReplaceAnOperand) {
  for (std::int64_t target : vector_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const TargetScope scope(target);
    expect_in_place<TypeParam>(53);
  }
}

// Functions that do several steps give the bits of the steps one by one.
template <class T>
class SeveralSteps {
 public:
  explicit SeveralSteps(Operands<T> x) : x_(std::move(x)), count_(x_.a.size()) {}

  void run() {
    expect("(a - b) * c", FusedSteps::kCentredMultiply, {a(), b(), c()}, times(minus(a(), b()), c()));
    expect("(a - b) * c * b", FusedSteps::kCentredMultiplyTwice, {a(), b(), c(), b()},
           times(times(minus(a(), b()), c()), b()));
    const TileOperand<T> centred = add_product(minus(a(), b()), c(), b());
    expect("(a - b) * c + b", FusedSteps::kCentredMultiplyAdd, {a(), b(), c(), b()}, centred);
    expect("(a + b) * c", FusedSteps::kSumMultiply, {a(), b(), c()},
           times(step(Primitive::kAdd, a(), b()), c()));
    expect("tanh((a - b) * c + b)", FusedSteps::kTanhOfCentred, {a(), b(), c(), b()},
           step(Primitive::kTanh, centred));
    expect("exp(a - b) * c", FusedSteps::kExpOfDifferenceMultiply, {a(), b(), c()},
           times(step(Primitive::kExp, minus(a(), b())), c()));
    expect("silu(a)", FusedSteps::kSilu, {a()}, silu(a()));
    expect("silu((a - b) * c + b)", FusedSteps::kSiluOfCentred, {a(), b(), c(), b()}, silu(centred));
    expect("slope(a)", FusedSteps::kSiluSlope, {a()}, slope(a()));
    expect("slope(a) * b", FusedSteps::kSiluSlopeMultiply, {a(), b()}, times(slope(a()), b()));
    expect("slope((a - b) * c + b) * a", FusedSteps::kSiluSlopeOfCentredMultiply, {a(), b(), c(), b(), a()},
           times(slope(centred), a()));
    expect("hardswish(a)", FusedSteps::kHardswish, {a()},
           in_hardswish(times({&zero_, true}, a()), times(times(a(), plus(a(), {&three_, true})), sixth()),
                        a()));
    const TileOperand<T> slope_of_a = times(plus(plus(a(), {&three_, true}), a()), sixth());
    expect("hardswish'(a) * b", FusedSteps::kHardswishGradient, {a(), b()},
           in_hardswish({&zero_, true}, times(b(), slope_of_a), b()));
  }

 private:
  TileOperand<T> a() const { return {x_.a.data(), false}; }
  TileOperand<T> b() const { return {x_.b.data(), false}; }
  TileOperand<T> c() const { return {x_.c.data(), false}; }

  // One step, its result in memory of its own.
  TileOperand<T> step(Primitive primitive, TileOperand<T> x, TileOperand<T> y = {nullptr, true},
                      TileOperand<T> z = {nullptr, true}) {
    results_.emplace_back(count_ + 1);
    cpu::apply<T>(primitive, x, y, z, results_.back().data(), count_);
    return {results_.back().data(), false};
  }
  TileOperand<T> minus(TileOperand<T> x, TileOperand<T> y) { return step(Primitive::kSub, x, y); }
  TileOperand<T> plus(TileOperand<T> x, TileOperand<T> y) { return step(Primitive::kAdd, x, y); }
  TileOperand<T> times(TileOperand<T> x, TileOperand<T> y) { return step(Primitive::kMul, x, y); }
  TileOperand<T> silu(TileOperand<T> x) { return times(x, step(Primitive::kSigmoid, x)); }
  TileOperand<T> add_product(TileOperand<T> x, TileOperand<T> y, TileOperand<T> z) {
    results_.emplace_back(count_ + 1);
    const TileOperand<T> operands[] = {x, y, z};
    cpu::fused_function<T>(FusedSteps::kMultiplyAdd)(operands, results_.back().data(), count_);
    return {results_.back().data(), false};
  }
  TileOperand<T> slope(TileOperand<T> x) {
    const TileOperand<T> s = step(Primitive::kSigmoid, x);
    return add_product(x, times(s, minus({&one_, true}, s)), s);
  }

  TileOperand<T> sixth() const { return {&sixth_, true}; }
  TileOperand<T> in_hardswish(TileOperand<T> below, TileOperand<T> middle, TileOperand<T> above) {
    const TileOperand<T> upper =
        step(Primitive::kSelect, step(Primitive::kGreaterEqual, a(), {&three_, true}), above, middle);
    return step(Primitive::kSelect, step(Primitive::kLessEqual, a(), {&minus_three_, true}), below, upper);
  }

  void expect(const char* what, FusedSteps steps, std::vector<TileOperand<T>> operands,
              TileOperand<T> expected) {
    std::vector<T> out(count_ + kGuards, guard<T>());
    cpu::fused_function<T>(steps)(operands.data(), out.data(), count_);
    for (std::size_t i = 0; i < count_; ++i)
      ASSERT_TRUE(same(out[i], expected.data[i]))
          << what << " of " << x_.a[i] << ", " << x_.b[i] << ", " << x_.c[i];
    for (std::size_t i = count_; i < out.size(); ++i) ASSERT_EQ(out[i], guard<T>());
  }

  Operands<T> x_;
  std::size_t count_;
  T one_ = 1;
  T zero_ = 0;
  T three_ = 3;
  T minus_three_ = -3;
  T sixth_ = static_cast<T>(1.0 / 6);
  std::deque<std::vector<T>> results_;
};

TYPED_TEST(VectorTileOps, SeveralStepsAtOnceAreTheSteps) {
  for (std::int64_t target : vector_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const TargetScope scope(target);
    SeveralSteps<TypeParam>(all_combinations<TypeParam>()).run();
    for (std::size_t count = 0; count <= 67; ++count)
      SeveralSteps<TypeParam>(random_operands<TypeParam>(count)).run();
  }
}

TYPED_TEST(VectorTileOps, SelectWhereIsAComparisonAndASelect) {
  for (std::int64_t target : vector_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const TargetScope scope(target);
    expect_select_where(all_combinations<TypeParam>());
    for (std::size_t count = 0; count <= 67; ++count) expect_select_where(random_operands<TypeParam>(count));
  }
}

TYPED_TEST(VectorTileOps, MultiplyAddRoundsOnce) {
  for (std::int64_t target : vector_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const TargetScope scope(target);
    expect_multiply_add(all_combinations<TypeParam>());
    for (std::size_t count : {0, 1, 5, 16, 1000, 1023})
      expect_multiply_add(random_operands<TypeParam>(count));
  }
}

TYPED_TEST(VectorTileOps, UnalignedArraysGiveTheSameBits) {
  const Operands<TypeParam> x = random_operands<TypeParam>(40);
  std::vector<TypeParam> shifted(x.a.size() + 1);
  std::copy(x.a.begin(), x.a.end(), shifted.begin() + 1);
  std::vector<TypeParam> out(x.a.size()), out_shifted(x.a.size() + 1);
  const TileOperand<TypeParam> none = {x.a.data(), true};
  cpu::apply<TypeParam>(Primitive::kTanh, {x.a.data(), false}, none, none, out.data(), x.a.size());
  cpu::apply<TypeParam>(Primitive::kTanh, {shifted.data() + 1, false}, none, none, out_shifted.data() + 1,
                        x.a.size());
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], out_shifted[i + 1]);
}

TEST(VectorTileOpsOfFloat, OperandsMayBeBf16) {
  for (std::int64_t target : vector_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const TargetScope scope(target);
    for (std::size_t count : {0, 1, 3, 16, 17, 33, 69}) expect_bf16_operands(count);
  }
}

TYPED_TEST(VectorTileOps, InputsAndConstantsAreNoSteps) {
  TypeParam x = 1;
  EXPECT_THROW(cpu::apply<TypeParam>(Primitive::kInput, {&x, false}, {&x, false}, {&x, false}, &x, 1),
               InternalError);
  EXPECT_THROW(cpu::apply<TypeParam>(Primitive::kConstant, {&x, false}, {&x, false}, {&x, false}, &x, 1),
               InternalError);
}

}  // namespace
}  // namespace fuseblock
