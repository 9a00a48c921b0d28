// The catalogue of operations: what a stage may be, with its operands, arguments, help text and, for a
// pointwise operation, its formula. The notation, the printer, type inference, adjoints, engines, `fuseblock
// ops` and docs/operations.md all read this one table.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fuseblock/formula.h"
#include "fuseblock/type.h"

namespace fuseblock {

// The families of operations. Engines implement the structural ones by code and all pointwise ones by
// formula.
enum class OpCode : std::uint8_t {
  kPointwise,  // a formula from the catalogue
  kFormula,    // a formula written in the block itself
  kCast,
  kZeros,
  kExpand,
  kConvolution,
  kConvolutionGradInput,
  kConvolutionGradWeight,
  kGroupNorm,
  kInstanceNorm,
  kLayerNorm,
  kRmsNorm,
  kBatchNorm,
  kL2Normalize,
  kSoftmax,
  kMean,
  kSum,
  kMax,
  kMin,
  kLogSumExp,
  kRstd,
  kMaxPool,
  kMaxPoolTake,
  kMaxPoolPut,
  kAvgPool,
  kAvgPoolGrad,
};

// The value of an argument: none, a whole number, a number, a flag, a keyword, one number per spatial axis,
// axes.
using ArgumentValue =
    std::variant<std::monostate, std::int64_t, double, bool, std::string, std::vector<std::int64_t>, AxisSet>;

enum class ArgumentKind : std::uint8_t { kInteger, kNumber, kFlag, kKeyword, kIntegers, kAxes };

struct ArgumentSpec {
  std::string name;
  ArgumentKind kind = ArgumentKind::kNumber;
  bool required = false;
  // Meaningful where the argument is not required; none where absence itself has a meaning, told by the help
  // text.
  ArgumentValue default_value;
  // The range of numbers, both ends included.
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  // For keywords: the words allowed. For integers: words allowed in their place (`pad=same`).
  std::vector<std::string> choices;
  // PyTorch's name, accepted as well: `kernel_size` for `k`.
  std::string alias;
  std::string help;
};

enum class OperandRole : std::uint8_t {
  kValue,          // a value: an earlier one, the main input, or an extra input
  kValueOrScalar,  // a value or a number
  kParameter,      // a parameter of the stage, `stage.weight`, unless a value is given by key
  kBuffer,         // the same, but without a gradient (running statistics)
};

struct OperandSpec {
  std::string name;
  OperandRole role = OperandRole::kValue;
  // Flag arguments that must all be true for the operand to exist (`bias`).
  std::vector<std::string> present_if;
  std::string help;
};

struct Operation {
  std::string name;
  OpCode code = OpCode::kPointwise;
  std::string summary;
  // The call in PyTorch that means the same.
  std::string torch;
  // The first is the main operand, which a pipe supplies. Parameters come last.
  std::vector<OperandSpec> operands;
  std::vector<ArgumentSpec> arguments;
  // Pointwise: the text over the names of operands and arguments, and the formula with inputs numbered in
  // that order.
  std::string formula_text;
  Formula formula;
  // Pointwise: the points where the derivative jumps; docs and tests show the slope there.
  std::vector<double> kinks;
  // Convolutions: how many spatial axes (0 for linear), and whether transposed.
  int spatial_rank = -1;
  bool transposed = false;
  // True for operations that appear in backward blocks rather than in networks.
  bool adjoint = false;

  int value_operand_count() const;
  // The index of an argument by name or alias; -1 if there is none.
  int find_argument(std::string_view name) const;
  int find_operand(std::string_view name) const;
};

// All operations, in the order of the documentation.
std::vector<const Operation*> operations();
// Null if there is none of that name.
const Operation* find_operation(std::string_view name);

// Adds a pointwise operation to the catalogue for the rest of the process. It needs a name, a summary,
// operands, arguments (numbers, flags and keywords; a keyword counts as its place in the list of choices) and
// `formula_text`; everything else follows. Throws UserError where the name is taken or the formula does not
// read. Safe to call from any thread.
const Operation& define_pointwise(Operation operation);

// `silu(x)`, `conv2d(x, channels, k, stride=1, ...)`: how the operation is written.
std::string signature(const Operation& operation);
// An argument's value as the notation writes it.
std::string to_string(const ArgumentValue& value);

}  // namespace fuseblock
