#include "cpu/row_program.h"

#include <algorithm>
#include <cmath>
#include <utility>

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

// What is done on arrays: one function, with up to four steps as operands.
template <class T>
struct Instruction {
  TileFunction<T> function = nullptr;
  std::array<std::int32_t, 4> operands = {-1, -1, -1, -1};
  std::size_t step = 0;  // whose value it makes
};

// Chooses the functions that compute a program. Some do several steps at once: a step inside another must be used
// there alone, and vary. Repeatable steps are computed one by one, as they are written.
template <class T>
class Selector {
 public:
  Selector(std::vector<Formula::Step>& steps, const std::vector<bool>& varies, const std::vector<int>& uses,
           const std::vector<bool>& repeatable)
      : steps_(steps), varies_(varies), uses_(uses), repeatable_(repeatable), inside_(steps.size(), false) {}

  // In the order of the steps. Constants that are needed in addition are appended to the steps.
  std::vector<Instruction<T>> run() {
    std::vector<Instruction<T>> chosen;
    for (std::size_t i = inside_.size(); i-- > 0;) {
      const Primitive primitive = steps_[i].primitive;
      if (inside_[i] || primitive == Primitive::kInput || primitive == Primitive::kConstant) continue;
      chosen.push_back(choose(i));
      chosen.back().step = i;
    }
    std::reverse(chosen.begin(), chosen.end());
    return chosen;
  }

 private:
  Instruction<T> choose(std::size_t i) {
    const Formula::Step step = steps_[i];
    if (varies_[i] && !repeatable_[i]) {
      if (step.primitive == Primitive::kAdd) {
        for (const auto& [product, other] : {std::pair(step.a, step.b), std::pair(step.b, step.a)})
          if (absorb(product, Primitive::kMul)) return sum_with(steps_[at(product)], other);
      }
      if (step.primitive == Primitive::kMul) {
        for (const auto& [x, y] : {std::pair(step.a, step.b), std::pair(step.b, step.a)}) {
          if (steps_[at(y)].a == x && absorb(y, Primitive::kSigmoid))
            return {silu_function<T>(), {x, -1, -1, -1}};
          if (absorb(x, Primitive::kSub))
            return {centred_multiply_function<T>(), {steps_[at(x)].a, steps_[at(x)].b, y, -1}};
        }
      }
      if (step.primitive == Primitive::kSelect) {
        const Formula::Step& condition = steps_[at(step.a)];
        if (is_comparison(condition.primitive) && absorb(step.a, condition.primitive))
          return {select_where_function<T>(condition.primitive), {condition.a, condition.b, step.b, step.c}};
      }
      if (step.primitive == Primitive::kDiv && has_reciprocal(steps_[at(step.b)])) {
        Formula::Step reciprocal = steps_[at(step.b)];
        reciprocal.constant = 1 / reciprocal.constant;
        steps_.push_back(reciprocal);
        return {tile_function<T>(Primitive::kMul),
                {step.a, static_cast<std::int32_t>(steps_.size() - 1), -1, -1}};
      }
    }
    return {tile_function<T>(step.primitive), {step.a, step.b, step.c, -1}};
  }

  Instruction<T> sum_with(const Formula::Step& product, std::int32_t other) {
    for (const auto& [x, y] : {std::pair(product.a, product.b), std::pair(product.b, product.a)})
      if (absorb(x, Primitive::kSub))
        return {centred_multiply_add_function<T>(), {steps_[at(x)].a, steps_[at(x)].b, y, other}};
    return {multiply_add_function<T>(), {product.a, product.b, other, -1}};
  }

  // Takes a step into the one that uses it, if it is of this kind.
  bool absorb(std::int32_t operand, Primitive primitive) {
    const std::size_t i = at(operand);
    if (steps_[i].primitive != primitive || uses_[i] != 1 || !varies_[i] || repeatable_[i]) return false;
    inside_[i] = true;
    return true;
  }

  std::vector<Formula::Step>& steps_;
  const std::vector<bool>& varies_;
  const std::vector<int>& uses_;
  const std::vector<bool>& repeatable_;
  std::vector<bool> inside_;
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
  const std::vector<Instruction<T>> instructions =
      Selector<T>(steps, varies, uses, find_repeatable(given, repeatable)).run();

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
    action.function(operand(action.operands[0], inputs, scratch),
                    operand(action.operands[1], inputs, scratch),
                    operand(action.operands[2], inputs, scratch),
                    operand(action.operands[3], inputs, scratch), out, action.uniform ? 1 : count);
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
