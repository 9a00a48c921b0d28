#include "cpu/step_patterns.h"

#include <string_view>
#include <utility>

#include "block/formula_builder.h"
#include "block/formula_text.h"
#include "block/lexer.h"

namespace fuseblock::cpu {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

struct Pattern {
  FusedSteps fused{};
  Formula formula;
};

// Operands are named a, b, ... in the order in which the function takes them.
Formula read(std::string_view text) {
  FormulaBuilder builder;
  Lexer lexer(text);
  ExpressionContext context;
  context.name = [&](const Token& token) { return builder.input(token.text[0] - 'a'); };
  context.operation = [](std::string_view) { return nullptr; };
  const FormulaBuilder::Id root = read_expression(lexer, builder, context);
  return builder.finish(root);
}

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> kPatterns = {
      {FusedSteps::kHardswish,
       read("select(a <= -3, 0 * a, select(a >= 3, a, a * (a + 3) * 0.16666666666666666))")},
      {FusedSteps::kHardswishGradient,
       read("select(a <= -3, 0, select(a >= 3, b, b * ((a + 3 + a) * 0.16666666666666666)))")},
  };
  return kPatterns;
}

// One try to find a pattern at a step.
class Matcher {
 public:
  Matcher(std::span<const Formula::Step> steps, const Pattern& pattern,
          const std::function<bool(std::int32_t)>& may_be_inside)
      : steps_(steps),
        pattern_(pattern.formula.steps()),
        may_be_inside_(may_be_inside),
        operands_(at(pattern.formula.input_count()), -1) {}

  // Whether `step` is what step `wanted` of the pattern says. Operands that were found stay bound only then.
  bool match(std::int32_t step, std::int32_t wanted) {
    const Formula::Step& found = steps_[at(step)];
    const Formula::Step& expected = pattern_[at(wanted)];
    if (expected.primitive == Primitive::kInput) {
      std::int32_t& operand = operands_[at(expected.input)];
      if (operand < 0) operand = step;
      return operand == step;
    }
    if (found.primitive != expected.primitive) return false;
    if (expected.primitive == Primitive::kConstant) return found == expected;
    if (!may_be_inside_(step)) return false;
    if (match_operands(found, expected)) return true;
    if (expected.primitive != Primitive::kAdd && expected.primitive != Primitive::kMul) return false;
    Formula::Step swapped = found;
    std::swap(swapped.a, swapped.b);
    return match_operands(swapped, expected);
  }

  std::vector<std::int32_t> take_operands() { return std::move(operands_); }

 private:
  bool match_operands(const Formula::Step& found, const Formula::Step& expected) {
    const std::vector<std::int32_t> before = operands_;
    const auto matches = [&](std::int32_t step, std::int32_t wanted) {
      return wanted < 0 || match(step, wanted);
    };
    if (matches(found.a, expected.a) && matches(found.b, expected.b) && matches(found.c, expected.c))
      return true;
    operands_ = before;
    return false;
  }

  std::span<const Formula::Step> steps_;
  std::span<const Formula::Step> pattern_;
  const std::function<bool(std::int32_t)>& may_be_inside_;
  std::vector<std::int32_t> operands_;
};

}  // namespace

std::optional<PatternMatch> find_pattern(std::span<const Formula::Step> steps, std::int32_t step,
                                         const std::function<bool(std::int32_t)>& may_be_inside) {
  for (const Pattern& pattern : patterns()) {
    Matcher matcher(steps, pattern, may_be_inside);
    const auto root = static_cast<std::int32_t>(pattern.formula.steps().size()) - 1;
    if (matcher.match(step, root)) return PatternMatch{pattern.fused, matcher.take_operands()};
  }
  return {};
}

}  // namespace fuseblock::cpu
