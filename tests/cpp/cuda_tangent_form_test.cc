// Programs as a polynomial of one tanh and a multiple of the convolution's value, and programs that are not.
#include "cuda/emit/tangent_form.h"

#include <gtest/gtest.h>

#include <array>

namespace fuseblock::cuda {
namespace {

const Formula kValue = Formula::input(0);
const Formula kMean = Formula::input(1);
const Formula kFactor = Formula::input(2);
const Formula kOther = Formula::input(3);  // varies over positions

Formula operator+(const Formula& a, const Formula& b) { return Formula::apply(Primitive::kAdd, {a, b}); }
Formula operator-(const Formula& a, const Formula& b) { return Formula::apply(Primitive::kSub, {a, b}); }
Formula operator*(const Formula& a, const Formula& b) { return Formula::apply(Primitive::kMul, {a, b}); }
Formula operator/(const Formula& a, const Formula& b) { return Formula::apply(Primitive::kDiv, {a, b}); }
Formula number(double value) { return Formula::constant(value); }
Formula tanh_of(const Formula& a) { return Formula::apply(Primitive::kTanh, {a}); }

std::optional<TangentForm> form(const Formula& formula) {
  static const std::array<std::string, 4> kNames = {"value", "mean", "factor", ""};
  return tangent_form(formula.steps(), static_cast<std::int32_t>(formula.steps().size()) - 1,
                      [](int input) { return kNames.at(static_cast<std::size_t>(input)); });
}

TEST(CudaTangentForm, ANormHardswishAndWhatIsAdded) {
  const Formula t = tanh_of((kValue - kMean) * kFactor);
  const std::optional<TangentForm> found = form(t * (t + number(3)) / number(6) + kValue);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->scale, "factor");
  EXPECT_EQ(found->offset, "factor * (-1.0f) * mean");
  EXPECT_EQ(found->slope, "1.0f");
  EXPECT_EQ(found->constant, "0.0f");
  EXPECT_DOUBLE_EQ(found->first, 0.5);
  EXPECT_DOUBLE_EQ(found->second, 1.0 / 6);
}

TEST(CudaTangentForm, NumbersAreWorkedOut) {
  const std::optional<TangentForm> found =
      form(number(2) * (number(1) - tanh_of(number(3) * kValue + number(4))) - kValue / number(2) + kMean);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->scale, "3.0f");
  EXPECT_EQ(found->offset, "4.0f");
  EXPECT_EQ(found->slope, "(-0.5f)");
  EXPECT_EQ(found->constant, "(2.0f + mean)");
  EXPECT_EQ(found->first, -2);
  EXPECT_EQ(found->second, 0);
}

TEST(CudaTangentForm, WhatHasNone) {
  const Formula t = tanh_of(kValue);
  EXPECT_FALSE(form(kValue * kFactor + kMean));  // without a tanh
  EXPECT_FALSE(form(t * t * t));
  EXPECT_FALSE(form(t * kValue));
  EXPECT_FALSE(form(t * kFactor));  // the polynomial would vary over channels
  EXPECT_FALSE(form(t + tanh_of(kValue * kFactor)));
  EXPECT_FALSE(form(tanh_of(t)));
  EXPECT_FALSE(form(t + kOther));
  EXPECT_FALSE(form(t / kValue));
  EXPECT_FALSE(form(t + kValue * kValue));
}

}  // namespace
}  // namespace fuseblock::cuda
