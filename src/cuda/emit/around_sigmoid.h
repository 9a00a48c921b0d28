// A program taken apart at its sigmoid, so that the sigmoids of neighbouring elements are computed together
// (device/sigmoids.cuh).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fuseblock/formula.h"

namespace fuseblock::cuda {

// The steps of both parts have the numbers that they have in the program; what a part does not need is a constant there.
struct AroundSigmoid {
  std::vector<Formula::Step> before;  // what the sigmoid is taken of,
  std::int32_t operand = -1;          // which is this step
  std::vector<Formula::Step>
      behind;  // what is wanted of the program, the sigmoid being the input number `input`
  int input = 0;
};

// `wanted` are the steps that are taken of a program with so many inputs. Nothing where it has no sigmoid of what varies, or
// several.
std::optional<AroundSigmoid> around_sigmoid(std::span<const Formula::Step> steps, int inputs,
                                            const std::vector<std::int32_t>& wanted);

}  // namespace fuseblock::cuda
