// A formula: an expression over about twenty primitives, the meaning of every pointwise operation.
//
// It is stored as straight-line steps, each the result of one primitive on earlier steps, so that engines
// translate it one step at a time and nothing recurses. Equal subexpressions are one step. Written as text it
// is ordinary infix notation:
//   x * sigmoid(1.702 * x)        select(x <= 0, 0, x)        a + alpha * b
// Comparisons are 1 where they hold and 0 elsewhere (also with NaN); `select(c, a, b)` is a where c is not 0.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fuseblock {

enum class Primitive : std::uint8_t {
  kInput,     // the operand number `input`
  kConstant,  // `constant`
  kAdd,
  kSub,
  kMul,
  kDiv,
  kNeg,
  kAbs,
  kMinimum,  // NaN if either is
  kMaximum,  // NaN if either is
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kSelect,
  kSqrt,
  kExp,
  kExpm1,
  kLog,
  kLog1pExp,  // log(1 + exp(x)), finite wherever x is
  kTanh,
  kErf,
  kSigmoid,
};

struct PrimitiveInfo {
  Primitive primitive;
  // As written in a formula: `+` or `tanh`.
  std::string_view name;
  int arity;
};

// Every primitive that takes operands, in the order of the enumeration.
std::span<const PrimitiveInfo> primitives();
const PrimitiveInfo& info(Primitive primitive);

// The value of a primitive in double precision: the definition every engine is measured against.
double evaluate(Primitive primitive, double a, double b, double c);

class Formula {
 public:
  struct Step {
    Primitive primitive = Primitive::kConstant;
    // Indices of earlier steps; -1 where the primitive takes fewer.
    std::int32_t a = -1;
    std::int32_t b = -1;
    std::int32_t c = -1;
    std::int32_t input = -1;
    double constant = 0;

    // Constants are compared bit by bit, so that NaN equals itself and 0 differs from -0.
    bool operator==(const Step& other) const;
  };

  static Formula constant(double value);
  static Formula input(int number);
  // Folds constants and the neutral elements (x + 0, x * 1, select of two equal branches). A factor that is
  // the constant 0 makes a product 0: the rule of derivatives, where such a term is absent.
  static Formula apply(Primitive primitive, std::span<const Formula> operands);
  static Formula apply(Primitive primitive, std::initializer_list<Formula> operands);

  // Steps in an order in which each comes after what it uses; the last is the result.
  std::span<const Step> steps() const { return steps_; }
  // One more than the largest input number used.
  int input_count() const;
  bool uses(int number) const;
  bool is_constant() const;
  bool is_constant(double value) const;

  double evaluate(std::span<const double> inputs) const;
  // The derivative by input `number`. At a kink it is the derivative of the branch that `select` takes there;
  // a tie of minimum or maximum gives each side one half; abs has slope 0 at 0.
  Formula derivative(int number) const;
  // Replaces input i by replacements[i].
  Formula substitute(std::span<const Formula> replacements) const;

  // How many names, numbers and primitives the text has; shared steps count as often as they are written.
  double written_size() const;
  // Infix text with the inputs named by `names`; reads back as the same formula.
  std::string to_string(std::span<const std::string> names) const;

  bool operator==(const Formula&) const = default;

 private:
  friend class FormulaBuilder;
  std::vector<Step> steps_;
};

}  // namespace fuseblock
