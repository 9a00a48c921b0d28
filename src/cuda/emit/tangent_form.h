// Programs that are a polynomial of one tanh of a convolution's value and a multiple of that value:
//
//   first * t + second * t^2 + slope * value + constant,   t = tanh(scale * value + offset)
//
// as of `group_norm(16) | tanh | hardswish | add(y)`. What is the same at all positions, such as a norm's
// mean and factor, is then worked out once for each channel.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "fuseblock/formula.h"

namespace fuseblock::cuda {

struct TangentForm {
  // Expressions of what is the same at all positions.
  std::string scale, offset, slope, constant;
  bool same_rest = false;  // slope and constant are numbers
  double first = 0, second = 0;
};

// The form of a step, or nothing where it has none. `input` gives the expression of an input that is the same
// at all positions, `value` for the convolution's value, and nothing for any other.
std::optional<TangentForm> tangent_form(std::span<const Formula::Step> steps, std::int32_t step,
                                        const std::function<std::string(int)>& input);

}  // namespace fuseblock::cuda
