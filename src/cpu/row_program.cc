#include "cpu/row_program.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

template <class T>
RowProgram<T>::RowProgram(std::span<const Formula::Step> steps, const std::vector<bool>& input_varies,
                          const std::vector<int>& wanted) {
  const std::size_t count = steps.size();
  std::vector<bool> varies(count, false);
  std::vector<int> uses(count, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const Formula::Step& step = steps[i];
    if (step.primitive == Primitive::kInput) varies[i] = input_varies[at(step.input)];
    for (std::int32_t operand : {step.a, step.b, step.c}) {
      if (operand < 0) continue;
      varies[i] = varies[i] || varies[at(operand)];
      ++uses[at(operand)];
    }
  }
  for (int step : wanted) uses[at(step)] += 2;  // a wanted product must not disappear into a multiply-add

  // Products whose only use is a sum become part of it, comparisons whose only use is a select of that.
  std::vector<std::int32_t> inner(count, -1);
  std::vector<bool> absorbed(count, false);
  auto absorb = [&](std::size_t i, std::int32_t operand) {
    if (inner[i] >= 0 || uses[at(operand)] != 1 || !varies[at(operand)]) return;
    inner[i] = operand;
    absorbed[at(operand)] = true;
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (!varies[i]) continue;
    if (steps[i].primitive == Primitive::kAdd) {
      for (std::int32_t side : {steps[i].a, steps[i].b})
        if (steps[at(side)].primitive == Primitive::kMul) absorb(i, side);
    } else if (steps[i].primitive == Primitive::kSelect && is_comparison(steps[at(steps[i].a)].primitive)) {
      absorb(i, steps[i].a);
    }
  }

  // The last action that reads each step.
  std::vector<std::size_t> last(count, 0);
  auto read = [&](std::int32_t operand, std::size_t by) {
    if (operand >= 0) last[at(operand)] = std::max(last[at(operand)], by);
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (absorbed[i]) continue;
    if (inner[i] >= 0) {
      read(steps[at(inner[i])].a, i);
      read(steps[at(inner[i])].b, i);
    }
    read(steps[i].a, i);
    read(steps[i].b, i);
    read(steps[i].c, i);
  }
  for (int step : wanted) last[at(step)] = count;

  std::vector<Place> places(count);
  std::vector<std::int32_t> free;
  auto add_constant = [&](double value) {
    constants_.push_back(static_cast<T>(value));
    return Place{Home::kScalar, static_cast<std::int32_t>(scalars_++)};
  };
  std::vector<Place> reciprocals(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (steps[i].primitive == Primitive::kConstant) places[i] = add_constant(steps[i].constant);
    if (steps[i].primitive == Primitive::kDiv && has_reciprocal(steps[at(steps[i].b)]))
      reciprocals[i] = add_constant(1 / steps[at(steps[i].b)].constant);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Formula::Step& step = steps[i];
    if (step.primitive == Primitive::kInput) places[i] = {Home::kInput, step.input};
    if (step.primitive == Primitive::kInput || step.primitive == Primitive::kConstant || absorbed[i])
      continue;
    Action action;
    action.uniform = !varies[i];
    auto place = [&](std::int32_t operand) { return operand < 0 ? Place{} : places[at(operand)]; };
    if (inner[i] >= 0 && step.primitive == Primitive::kAdd) {
      action.function = multiply_add_function<T>();
      action.a = place(steps[at(inner[i])].a);
      action.b = place(steps[at(inner[i])].b);
      action.c = place(step.a == inner[i] ? step.b : step.a);
    } else if (inner[i] >= 0) {
      action.function = select_where_function<T>(steps[at(inner[i])].primitive);
      action.a = place(steps[at(inner[i])].a);
      action.b = place(steps[at(inner[i])].b);
      action.c = place(step.b);
      action.d = place(step.c);
    } else if (reciprocals[i].index >= 0) {
      action.function = tile_function<T>(Primitive::kMul);
      action.a = place(step.a);
      action.b = reciprocals[i];
    } else {
      action.function = tile_function<T>(step.primitive);
      action.a = place(step.a);
      action.b = place(step.b);
      action.c = place(step.c);
    }
    // Arrays that nothing reads after this action serve again, for its own result already.
    for (std::size_t before = 0; before < i; ++before)
      if (places[before].home == Home::kRegister && last[before] == i && !absorbed[before] &&
          std::find(free.begin(), free.end(), places[before].index) == free.end())
        free.push_back(places[before].index);
    if (action.uniform) {
      places[i] = {Home::kScalar, static_cast<std::int32_t>(scalars_++)};
    } else if (!free.empty()) {
      places[i] = {Home::kRegister, free.back()};
      free.pop_back();
    } else {
      places[i] = {Home::kRegister, static_cast<std::int32_t>(registers_++)};
    }
    action.out = places[i];
    actions_.push_back(action);
  }
  for (int step : wanted) results_.push_back(places[at(step)]);
}

template <class T>
std::size_t RowProgram<T>::scratch_elements() const {
  return registers_ * static_cast<std::size_t>(kChunkPitch) + scalars_ + 1;
}

template <class T>
TileOperand<T> RowProgram<T>::operand(Place place, std::span<const TileOperand<T>> inputs,
                                      const T* scratch) const {
  if (place.index < 0) return {nullptr, true};
  switch (place.home) {
    case Home::kInput: return inputs[at(place.index)];
    case Home::kRegister: return {scratch + at(place.index) * static_cast<std::size_t>(kChunkPitch), false};
    case Home::kScalar: return {scalars(scratch) + place.index, true};
  }
  return {nullptr, true};
}

template <class T>
void RowProgram<T>::run(std::span<const TileOperand<T>> inputs, std::size_t count, T* scratch) const {
  T* values = scratch + registers_ * static_cast<std::size_t>(kChunkPitch);
  std::copy(constants_.begin(), constants_.end(), values);
  for (const Action& action : actions_) {
    T* out = action.uniform ? values + action.out.index
                            : scratch + at(action.out.index) * static_cast<std::size_t>(kChunkPitch);
    action.function(operand(action.a, inputs, scratch), operand(action.b, inputs, scratch),
                    operand(action.c, inputs, scratch), operand(action.d, inputs, scratch), out,
                    action.uniform ? 1 : count);
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
