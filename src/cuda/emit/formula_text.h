// Formulas as statements of device code.
#pragma once

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

// Writes a statement for each step and returns the name or the constant that stands for each. `input` gives the
// expression of an input by its number; `type` is `real` or `double`, `single` whether that is float. Products of steps
// that are `rounded` (rounded_products.h) are not made one instruction with what takes them.
std::vector<std::string> write_statements(Text& text, std::span<const Formula::Step> steps,
                                          const std::function<std::string(int)>& input,
                                          const std::string& type, bool single,
                                          const std::vector<bool>& rounded = {});

}  // namespace fuseblock::cuda
