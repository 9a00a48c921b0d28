// Formulas as statements of device code.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cuda/emit/text.h"
#include "fuseblock/formula.h"
#include "fuseblock/type.h"

namespace fuseblock::cuda {

// `float`, `bf16`: the name of an element type in device code.
std::string element_name(DType dtype);

// A constant in the arithmetic of `type` (`real` or `double`).
std::string literal(double value, bool single);

// What is written otherwise than the compiler and device/functions.cuh would have it.
struct Rounding {
  std::vector<bool> products = {};  // by step: products with a rounding of their own (rounded_products.h)
  // Whether 1 + erf(t) and 1 + tanh(t) are exact where they nearly cancel (device/one_plus.cuh), in float.
  bool exact_sums = false;
  bool branchless = false;       // functions of device/branchless.cuh where it has them, in float
  bool brief_logarithm = false;  // that of device/conv_roll_positions.cuh, in float
};

// Writes a statement for each step and returns the name or the constant that stands for each. `input` gives the
// expression of an input by its number; `type` is `real` or `double`, `single` whether that is float.
std::vector<std::string> write_statements(Text& text, std::span<const Formula::Step> steps,
                                          const std::function<std::string(int)>& input,
                                          const std::string& type, bool single,
                                          const Rounding& rounding = {});

// The same with values that are taken once standing where they are taken. Of what is returned, the steps that are `wanted`
// may be used, each once. Names begin with `prefix`.
std::vector<std::string> write_nested(Text& text, std::span<const Formula::Step> steps,
                                      const std::function<std::string(int)>& input, const std::string& type,
                                      bool single, const std::vector<std::int32_t>& wanted,
                                      const Rounding& rounding = {}, const std::string& prefix = "t");

}  // namespace fuseblock::cuda
