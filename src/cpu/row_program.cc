#include "cpu/row_program.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "cpu/step_patterns.h"

namespace fuseblock::cpu {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

bool is_comparison(Primitive primitive) {
  return primitive >= Primitive::kLess && primitive <= Primitive::kEqual;
}

// Whether dividing by a step may become multiplying by its reciprocal: a constant whose reciprocal is far from both
// ends of float's range. A product has an error of at most 1.5 ulp then.
bool has_reciprocal(const Formula::Step& step) {
  const double size = std::abs(step.constant);
  return step.primitive == Primitive::kConstant && size > 0x1p-60 && size < 0x1p60;
}

// The steps whose values must not depend on how they are computed: all that the repeatable ones and comparisons by ==
// with an input are made of.
std::vector<bool> find_repeatable(std::span<const Formula::Step> steps, const std::vector<int>& wanted) {
  std::vector<bool> found(steps.size(), false);
  for (int step : wanted) found[at(step)] = true;
  for (std::size_t i = steps.size(); i-- > 0;) {
    const Formula::Step& step = steps[i];
    const bool looks_for = step.primitive == Primitive::kEqual && step.a != step.b &&
                           (steps[at(step.a)].primitive == Primitive::kInput ||
                            steps[at(step.b)].primitive == Primitive::kInput);
    if (!found[i] && !looks_for) continue;
    for (std::int32_t operand : {step.a, step.b, step.c})
      if (operand >= 0) found[at(operand)] = true;
  }
  return found;
}

// What is done on arrays: one function, with steps as operands.
template <class T>
struct Instruction {
  TileFunction<T> function = nullptr;
  std::array<std::int32_t, kMostOperands> operands = {-1, -1, -1, -1, -1};
  std::size_t step = 0;  // whose value it makes
};

// Chooses the functions that compute a program, from its results to its inputs: what no function takes is not computed.
// Some do several steps at once. A step inside another must vary, and be used there alone unless taking it again costs
// next to nothing. Repeatable steps are computed one by one, as they are written.
template <class T>
class Selector {
 public:
  Selector(const std::vector<Formula::Step>& steps, const std::vector<bool>& varies,
           const std::vector<int>& uses, const std::vector<bool>& repeatable, const std::vector<int>& wanted)
      : steps_(steps), varies_(varies), uses_(uses), repeatable_(repeatable), needed_(steps.size(), false) {
    for (int step : wanted) needed_[at(step)] = true;
  }

  // In the order of the steps.
  std::vector<Instruction<T>> run() {
    std::vector<Instruction<T>> chosen;
    for (std::size_t i = needed_.size(); i-- > 0;) {
      const Primitive primitive = steps_[i].primitive;
      if (!needed_[i] || primitive == Primitive::kInput || primitive == Primitive::kConstant) continue;
      chosen.push_back(choose(i));
      chosen.back().step = i;
      for (std::int32_t operand : chosen.back().operands)
        if (operand >= 0) needed_[at(operand)] = true;
    }
    std::reverse(chosen.begin(), chosen.end());
    return chosen;
  }

 private:
  // The operands of a sum or product in both orders.
  static std::array<std::pair<std::int32_t, std::int32_t>, 2> orders(const Formula::Step& step) {
    return {std::pair(step.a, step.b), std::pair(step.b, step.a)};
  }

  Instruction<T> choose(std::size_t i) {
    const Formula::Step step = steps_[i];
    if (varies_[i] && !repeatable_[i]) {
      const auto may_be_inside = [this](std::int32_t inner) { return is_free(inner); };
      if (const auto found = find_pattern(steps_, static_cast<std::int32_t>(i), may_be_inside))
        return fused(found->fused, found->operands);
      std::optional<Instruction<T>> several;
      switch (step.primitive) {
        case Primitive::kAdd: several = choose_sum(static_cast<std::int32_t>(i)); break;
        case Primitive::kMul: several = choose_product(step); break;
        case Primitive::kSelect: several = choose_select(step); break;
        case Primitive::kTanh:
          if (const auto c = absorb_centred(step.a, 1)) return fused(FusedSteps::kTanhOfCentred, *c);
          break;
        default: break;
      }
      if (several) return *several;
    }
    return {tile_function<T>(step.primitive), {step.a, step.b, step.c, -1, -1}};
  }

  std::optional<Instruction<T>> choose_sum(std::int32_t sum) {
    if (const auto x = silu_slope_of(sum)) return fused(FusedSteps::kSiluSlope, {*x});
    for (const auto& [product, other] : orders(steps_[at(sum)])) {
      if (!is_used_once(product, Primitive::kMul)) continue;
      for (const auto& [x, y] : orders(steps_[at(product)]))
        if (absorb_difference(x))
          return fused(FusedSteps::kCentredMultiplyAdd, {steps_[at(x)].a, steps_[at(x)].b, y, other});
      return fused(FusedSteps::kMultiplyAdd, {steps_[at(product)].a, steps_[at(product)].b, other});
    }
    return {};
  }

  // A difference takes no product in: what is subtracted may be such a product, rounded (the largest one of a softmax),
  // and the difference must then be exact.
  std::optional<Instruction<T>> choose_product(const Formula::Step& step) {
    for (const auto& [x, y] : orders(step))
      if (steps_[at(y)].a == x && is_used_once(y, Primitive::kSigmoid)) {
        if (const auto c = absorb_centred(x, 2)) return fused(FusedSteps::kSiluOfCentred, *c);
        return fused(FusedSteps::kSilu, {x});
      }
    for (const auto& [slope, y] : orders(step)) {
      if (uses_[at(slope)] != 1) continue;
      const auto x = silu_slope_of(slope);
      if (!x) continue;
      if (auto c = absorb_centred(*x, 2)) {
        c->push_back(y);
        return fused(FusedSteps::kSiluSlopeOfCentredMultiply, *c);
      }
      return fused(FusedSteps::kSiluSlopeMultiply, {*x, y});
    }
    for (const auto& [exponential, y] : orders(step)) {
      if (!is_used_once(exponential, Primitive::kExp)) continue;
      const std::int32_t x = steps_[at(exponential)].a;
      if (!absorb_difference(x)) continue;
      return fused(FusedSteps::kExpOfDifferenceMultiply, {steps_[at(x)].a, steps_[at(x)].b, y});
    }
    for (const auto& [x, y] : orders(step))
      if (absorb_difference(x))
        return fused(FusedSteps::kCentredMultiply, {steps_[at(x)].a, steps_[at(x)].b, y});
    for (const auto& [product, other] : orders(step)) {
      if (!is_used_once(product, Primitive::kMul)) continue;
      for (const auto& [x, y] : orders(steps_[at(product)])) {
        if (absorb_difference(x))
          return fused(FusedSteps::kCentredMultiplyTwice, {steps_[at(x)].a, steps_[at(x)].b, y, other});
      }
    }
    for (const auto& [sum, other] : orders(step)) {
      // A sum of a product is better one step with the latter.
      if (!is_used_once(sum, Primitive::kAdd) || is_used_once(steps_[at(sum)].a, Primitive::kMul) ||
          is_used_once(steps_[at(sum)].b, Primitive::kMul))
        continue;
      return fused(FusedSteps::kSumMultiply, {steps_[at(sum)].a, steps_[at(sum)].b, other});
    }
    return {};
  }

  // A comparison may be in several.
  std::optional<Instruction<T>> choose_select(const Formula::Step& step) {
    const Formula::Step& condition = steps_[at(step.a)];
    if (!is_comparison(condition.primitive) || !is_free(step.a)) return {};
    return Instruction<T>{select_where_function<T>(condition.primitive),
                          {condition.a, condition.b, step.b, step.c, -1}};
  }

  // Where a sum is s + x * (s * (1 - s)) with s = sigmoid(x): x.
  std::optional<std::int32_t> silu_slope_of(std::int32_t sum) {
    if (!is_free(sum, Primitive::kAdd)) return {};
    for (const auto& [s, product] : orders(steps_[at(sum)])) {
      if (!is_free(s, Primitive::kSigmoid) || uses_[at(s)] != 3 || !is_used_once(product, Primitive::kMul))
        continue;
      const std::int32_t x = steps_[at(s)].a;
      for (const auto& [factor, rest] : orders(steps_[at(product)])) {
        if (factor != x || !is_used_once(rest, Primitive::kMul)) continue;
        for (const auto& [again, complement] : orders(steps_[at(rest)])) {
          if (again != s || !is_used_once(complement, Primitive::kSub)) continue;
          const Formula::Step& one = steps_[at(steps_[at(complement)].a)];
          if (one.primitive != Primitive::kConstant || one.constant != 1 || steps_[at(complement)].b != s)
            continue;
          return x;
        }
      }
    }
    return {};
  }

  // Takes (a - b) * c + d into a function that has all its uses: a, b, c, d.
  std::optional<std::vector<std::int32_t>> absorb_centred(std::int32_t sum, int uses) {
    if (!is_free(sum, Primitive::kAdd) || uses_[at(sum)] != uses) return {};
    for (const auto& [product, other] : orders(steps_[at(sum)])) {
      if (!is_used_once(product, Primitive::kMul)) continue;
      for (const auto& [x, y] : orders(steps_[at(product)])) {
        if (!absorb_difference(x)) continue;
        return std::vector{steps_[at(x)].a, steps_[at(x)].b, y, other};
      }
    }
    return {};
  }

  // Whether a step is of this kind and may be computed inside another.
  bool is_free(std::int32_t operand) const { return varies_[at(operand)] && !repeatable_[at(operand)]; }
  bool is_free(std::int32_t operand, Primitive primitive) const {
    return steps_[at(operand)].primitive == primitive && is_free(operand);
  }
  bool is_used_once(std::int32_t operand, Primitive primitive) const {
    return is_free(operand, primitive) && uses_[at(operand)] == 1;
  }

  // A difference may be in several: taking it again costs less than an array for it.
  bool absorb_difference(std::int32_t operand) {
    if (!is_free(operand, Primitive::kSub)) return false;
    if (--uses_[at(operand)] > 0) {
      ++uses_[at(steps_[at(operand)].a)];
      ++uses_[at(steps_[at(operand)].b)];
    }
    return true;
  }

  static Instruction<T> fused(FusedSteps steps, const std::vector<std::int32_t>& operands) {
    Instruction<T> result;
    result.function = fused_function<T>(steps);
    std::copy(operands.begin(), operands.end(), result.operands.begin());
    return result;
  }

  const std::vector<Formula::Step>& steps_;
  const std::vector<bool>& varies_;
  std::vector<int> uses_;  // that are left: those inside others count no more
  const std::vector<bool>& repeatable_;
  std::vector<bool> needed_;  // by the results or by a function chosen so far
};

}  // namespace

template <class T>
RowProgram<T>::RowProgram(std::span<const Formula::Step> given, const std::vector<bool>& input_varies,
                          const std::vector<int>& wanted, const std::vector<int>& repeatable,
                          std::int64_t longest)
    : pitch_(static_cast<std::size_t>(chunk_pitch(longest))) {
  std::vector<Formula::Step> steps(given.begin(), given.end());
  std::vector<bool> varies(steps.size(), false);
  std::vector<int> uses(steps.size(), 0);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Formula::Step& step = steps[i];
    if (step.primitive == Primitive::kInput) varies[i] = input_varies[at(step.input)];
    for (std::int32_t operand : {step.a, step.b, step.c}) {
      if (operand < 0) continue;
      varies[i] = varies[i] || varies[at(operand)];
      ++uses[at(operand)];
    }
  }
  for (int step : wanted) uses[at(step)] += 2;  // a wanted step must not disappear into another
  std::vector<bool> is_repeatable = find_repeatable(given, repeatable);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (steps[i].primitive != Primitive::kDiv || !varies[i] || is_repeatable[i]) continue;
    Formula::Step divisor = steps[at(steps[i].b)];
    if (!has_reciprocal(divisor)) continue;
    divisor.constant = 1 / divisor.constant;
    steps[i].primitive = Primitive::kMul;
    steps[i].b = static_cast<std::int32_t>(steps.size());
    steps.push_back(divisor);
    varies.push_back(false);
    uses.push_back(1);
    is_repeatable.push_back(false);
  }
  const std::vector<Instruction<T>> instructions =
      Selector<T>(steps, varies, uses, is_repeatable, wanted).run();

  // The last instruction that reads each step; wanted steps are read after all of them.
  std::vector<std::size_t> last(steps.size(), 0);
  std::vector<bool> is_read(steps.size(), false);
  for (std::size_t i = 0; i < instructions.size(); ++i)
    for (std::int32_t operand : instructions[i].operands)
      if (operand >= 0) {
        last[at(operand)] = i;
        is_read[at(operand)] = true;
      }
  for (int step : wanted) last[at(step)] = instructions.size();

  std::vector<Place> places(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].primitive == Primitive::kInput) places[i] = {Home::kInput, steps[i].input};
    if (steps[i].primitive != Primitive::kConstant) continue;
    constants_.push_back(static_cast<T>(steps[i].constant));
    places[i] = {Home::kScalar, static_cast<std::int32_t>(scalars_++)};
  }
  written_.assign(wanted.size(), false);
  std::vector<std::int32_t> free;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    const std::size_t step = instructions[i].step;
    Action action;
    action.function = instructions[i].function;
    action.uniform = !varies[step];
    for (std::size_t j = 0; j < action.operands.size(); ++j) {
      const std::int32_t operand = instructions[i].operands[j];
      if (operand >= 0) action.operands[j] = places[at(operand)];
    }
    // Arrays that nothing reads after this action serve again, for its own result already.
    for (std::int32_t operand : instructions[i].operands)
      if (operand >= 0 && places[at(operand)].home == Home::kRegister && last[at(operand)] == i &&
          std::find(free.begin(), free.end(), places[at(operand)].index) == free.end())
        free.push_back(places[at(operand)].index);
    if (action.uniform) {
      places[step] = {Home::kScalar, static_cast<std::int32_t>(scalars_++)};
    } else if (!free.empty()) {
      places[step] = {Home::kRegister, free.back()};
      free.pop_back();
    } else {
      places[step] = {Home::kRegister, static_cast<std::int32_t>(registers_++)};
    }
    action.out = places[step];
    const auto taker = std::find(wanted.begin(), wanted.end(), static_cast<int>(step));
    if (taker != wanted.end() && !action.uniform && !is_read[step]) {
      action.target = static_cast<int>(taker - wanted.begin());
      written_[at(action.target)] = true;
    }
    actions_.push_back(action);
  }
  for (int step : wanted) results_.push_back(places[at(step)]);
}

template <class T>
std::size_t RowProgram<T>::loop_count() const {
  return at(static_cast<std::int32_t>(
      std::count_if(actions_.begin(), actions_.end(), [](const Action& action) { return !action.uniform; })));
}

template <class T>
bool RowProgram<T>::gives_input(std::size_t input) const {
  return std::any_of(results_.begin(), results_.end(), [&](const Place& place) {
    return place.home == Home::kInput && at(place.index) == input;
  });
}

template <class T>
std::size_t RowProgram<T>::array_count() const {
  std::vector<bool> between(registers_, false);
  for (const Action& action : actions_)
    if (!action.uniform && action.target < 0) between[at(action.out.index)] = true;
  return results_.size() + at(static_cast<std::int32_t>(std::count(between.begin(), between.end(), true)));
}

template <class T>
std::size_t RowProgram<T>::scratch_elements() const {
  return registers_ * pitch_ + scalars_ + 1;
}

template <class T>
TileOperand<T> RowProgram<T>::operand(Place place, std::span<const TileOperand<T>> inputs,
                                      const T* scratch) const {
  if (place.index < 0) return {nullptr, true};
  switch (place.home) {
    case Home::kInput: return inputs[at(place.index)];
    case Home::kRegister: return {scratch + at(place.index) * pitch_, false};
    case Home::kScalar: return {scalars(scratch) + place.index, true};
  }
  return {nullptr, true};
}

template <class T>
void RowProgram<T>::run(std::span<const TileOperand<T>> inputs, std::size_t count, T* scratch,
                        std::span<T* const> targets) const {
  T* values = scratch + registers_ * pitch_;
  std::copy(constants_.begin(), constants_.end(), values);
  for (const Action& action : actions_) {
    T* out = action.uniform ? values + action.out.index : scratch + at(action.out.index) * pitch_;
    if (action.target >= 0 && !targets.empty() && targets[at(action.target)] != nullptr)
      out = targets[at(action.target)];
    std::array<TileOperand<T>, kMostOperands> operands;
    for (std::size_t i = 0; i < operands.size(); ++i)
      operands[i] = operand(action.operands[i], inputs, scratch);
    action.function(operands.data(), out, action.uniform ? 1 : count);
  }
}

template <class T>
TileOperand<T> RowProgram<T>::result(std::size_t i, std::span<const TileOperand<T>> inputs,
                                     const T* scratch) const {
  return operand(results_[i], inputs, scratch);
}

template class RowProgram<float>;
template class RowProgram<double>;

}  // namespace fuseblock::cpu
