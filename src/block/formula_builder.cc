#include "block/formula_builder.h"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace fuseblock {

FormulaBuilder::Id FormulaBuilder::add(const Formula::Step& step) {
  const Key key = {step.primitive, step.a,     step.b,
                   step.c,         step.input, std::bit_cast<std::uint64_t>(step.constant)};
  const auto [place, is_new] = known_.try_emplace(key, static_cast<Id>(steps_.size()));
  if (is_new) steps_.push_back(step);
  return place->second;
}

FormulaBuilder::Id FormulaBuilder::constant(double value) {
  Formula::Step step;
  step.primitive = Primitive::kConstant;
  step.constant = std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
  return add(step);
}

FormulaBuilder::Id FormulaBuilder::input(int number) {
  Formula::Step step;
  step.primitive = Primitive::kInput;
  step.input = number;
  return add(step);
}

FormulaBuilder::Id FormulaBuilder::apply(Primitive primitive, Id a, Id b, Id c) {
  if (primitive == Primitive::kNeg && is_constant(a)) return constant(-step(a).constant);
  Formula::Step result;
  result.primitive = primitive;
  result.a = a;
  result.b = b;
  result.c = c;
  return add(result);
}

FormulaBuilder::Id FormulaBuilder::apply_folded(Primitive primitive, Id a, Id b, Id c) {
  const bool all_constant = is_constant(a) && (b < 0 || is_constant(b)) && (c < 0 || is_constant(c));
  if (all_constant)
    return constant(
        evaluate(primitive, step(a).constant, b < 0 ? 0 : step(b).constant, c < 0 ? 0 : step(c).constant));
  if (primitive == Primitive::kMul && is_constant(a, 1)) return b;
  if (primitive == Primitive::kMul && is_constant(b, 1)) return a;
  if (primitive == Primitive::kDiv && is_constant(b, 1)) return a;
  if (primitive == Primitive::kSelect && is_constant(a)) return step(a).constant != 0 ? b : c;
  if (primitive == Primitive::kSelect && b == c) return b;
  if (primitive == Primitive::kNeg && step(a).primitive == Primitive::kNeg) return step(a).a;
  if (b >= 0 && never_holds(primitive, a, b)) return constant(0);
  return apply(primitive, a, b, c);
}

FormulaBuilder::Bounds FormulaBuilder::bounds(Id id) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Formula::Step& which = step(id);
  switch (which.primitive) {
    case Primitive::kConstant: return {which.constant, which.constant};
    case Primitive::kTanh:
    case Primitive::kErf: return {-1, 1};
    case Primitive::kSigmoid: return {0, 1};
    case Primitive::kExp:
    case Primitive::kAbs:
    case Primitive::kLog1pExp: return {0, kInfinity};
    default: return {-kInfinity, kInfinity};
  }
}

// Comparisons with NaN do not hold either, so that a comparison which holds for no number is 0 for every value.
bool FormulaBuilder::never_holds(Primitive comparison, Id a, Id b) const {
  const Bounds left = bounds(a);
  const Bounds right = bounds(b);
  switch (comparison) {
    case Primitive::kLess: return left.low >= right.high;
    case Primitive::kLessEqual: return left.low > right.high;
    case Primitive::kGreater: return left.high <= right.low;
    case Primitive::kGreaterEqual: return left.high < right.low;
    case Primitive::kEqual: return left.low > right.high || left.high < right.low;
    default: return false;
  }
}

FormulaBuilder::Id FormulaBuilder::apply_derived(Primitive primitive, Id a, Id b, Id c) {
  const bool zero_a = is_constant(a, 0);
  const bool zero_b = b >= 0 && is_constant(b, 0);
  if (primitive == Primitive::kAdd && zero_a) return b;
  if ((primitive == Primitive::kAdd || primitive == Primitive::kSub) && zero_b) return a;
  if (primitive == Primitive::kSub && zero_a) return apply_folded(Primitive::kNeg, b);
  if (primitive == Primitive::kMul && (zero_a || zero_b)) return constant(0);
  if (primitive == Primitive::kMul && is_constant(a, -1)) return apply_folded(Primitive::kNeg, b);
  if (primitive == Primitive::kMul && is_constant(b, -1)) return apply_folded(Primitive::kNeg, a);
  if (primitive == Primitive::kDiv && zero_a) return constant(0);
  return apply_folded(primitive, a, b, c);
}

FormulaBuilder::Id FormulaBuilder::insert(const Formula& formula, std::span<const Id> inputs) {
  std::vector<Id> ids;
  for (const Formula::Step& step : formula.steps()) {
    auto id = [&](std::int32_t operand) { return operand < 0 ? -1 : ids[static_cast<std::size_t>(operand)]; };
    switch (step.primitive) {
      case Primitive::kInput: ids.push_back(inputs[static_cast<std::size_t>(step.input)]); break;
      case Primitive::kConstant: ids.push_back(constant(step.constant)); break;
      default: ids.push_back(apply_folded(step.primitive, id(step.a), id(step.b), id(step.c)));
    }
  }
  return ids.back();
}

Formula FormulaBuilder::finish(Id root) const {
  Formula formula;
  std::vector<Id> place(steps_.size(), -1);
  std::vector<std::pair<Id, bool>> stack = {{root, false}};
  while (!stack.empty()) {
    const auto [id, operands_done] = stack.back();
    stack.pop_back();
    const auto index = static_cast<std::size_t>(id);
    if (place[index] >= 0) continue;
    const Formula::Step& step = steps_[index];
    if (!operands_done) {
      stack.emplace_back(id, true);
      for (Id operand : {step.c, step.b, step.a})
        if (operand >= 0) stack.emplace_back(operand, false);
      continue;
    }
    Formula::Step copy = step;
    for (std::int32_t* operand : {&copy.a, &copy.b, &copy.c})
      if (*operand >= 0) *operand = place[static_cast<std::size_t>(*operand)];
    place[index] = static_cast<Id>(formula.steps_.size());
    formula.steps_.push_back(copy);
  }
  return formula;
}

}  // namespace fuseblock
