// The catalogue of operations in words: families, arguments and formulas as `fuseblock ops` and
// docs/operations.md show them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fuseblock/operations.h"

namespace fuseblock::cli {

struct Family {
  std::string_view title;
  std::vector<const Operation*> operations;
};
// All operations in order, those of backward blocks last.
std::vector<Family> families();

// The operation. Throws UserError with the most similar names where there is none.
const Operation& require_operation(std::string_view name);

// `whole number`, `flag`, ...
std::string kind_text(const ArgumentSpec& argument);
// As the notation writes it; empty for a required argument.
std::string default_text(const ArgumentSpec& argument);
// `>= 1`, `-1 to 1`, `none, tanh`; empty where everything of its kind is allowed.
std::string range_text(const ArgumentSpec& argument);
// Where an operand comes from: `value`, `value or number`, `parameter if affine`, ...
std::string role_text(const OperandSpec& operand);

struct Derivative {
  std::string operand;
  std::string text;
};
// Of a pointwise operation, by each operand.
std::vector<Derivative> derivatives(const Operation& operation);

struct Slope {
  double at = 0;
  double slope = 0;
};
// The derivative by the first operand at each kink, with the arguments' defaults.
std::vector<Slope> slopes(const Operation& operation);

// A primitive as a formula writes it over a, b, c, and its derivative by each of them.
struct PrimitiveText {
  std::string formula;
  std::vector<Derivative> derivatives;
};
PrimitiveText primitive_text(const PrimitiveInfo& primitive);

}  // namespace fuseblock::cli
