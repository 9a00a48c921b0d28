#include "cuda/emit/fold_affine.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class Folder {
 public:
  Folder(std::span<const Formula::Step> steps, const std::function<bool(int)>& is_constant)
      : old_(steps), values_(steps.size()) {
    for (int i = 0; i < static_cast<int>(steps.size()); ++i) values_[at(i)] = value_of(i, is_constant);
  }

  FoldedSteps run(std::span<const int> wanted) {
    for (int i : wanted) place(i);
    FoldedSteps result;
    for (const Value& value : values_) result.places.push_back(value.place);
    result.steps = std::move(steps_);
    return result;
  }

 private:
  // A step as `scale * base + shift`: numbers of new steps, -1 where there is none.
  struct Value {
    bool constant = false;  // the same for many elements
    int base = -1;
    int scale = -1;
    int shift = -1;
    int place = -1;  // the new step that is the whole value
  };

  Value value_of(int i, const std::function<bool(int)>& is_constant) {
    const Formula::Step& step = old_[at(i)];
    Value value;
    if (step.primitive == Primitive::kInput) value.constant = is_constant(step.input);
    bool varies = false;
    for (int operand : {step.a, step.b, step.c}) {
      if (operand < 0) continue;
      varies = varies || !is_fixed(operand);
      value.constant = value.constant || values_[at(operand)].constant;
    }
    value.constant = value.constant && !varies;
    if (varies && folds(step, value)) return value;
    Formula::Step copy = step;
    if (step.a >= 0) copy.a = place(step.a);
    if (step.b >= 0) copy.b = place(step.b);
    if (step.c >= 0) copy.c = place(step.c);
    value.base = value.place = add(copy);
    return value;
  }

  bool is_number(int i) const { return old_[at(i)].primitive == Primitive::kConstant; }
  bool is_fixed(int i) const { return values_[at(i)].constant || is_number(i); }

  // Sets `value` where the step is a product or a sum with a constant.
  bool folds(const Formula::Step& step, Value& value) {
    const bool product = step.primitive == Primitive::kMul;
    const bool difference = step.primitive == Primitive::kSub;
    if (!product && !difference && step.primitive != Primitive::kAdd) return false;
    const bool first_varies = !is_fixed(step.a);
    if (first_varies == !is_fixed(step.b) || (difference && !first_varies)) return false;
    const int fixed = first_varies ? step.b : step.a;
    // Numbers of the formula have their place in functions that are written down, such as 0.5 * (1 + ...).
    if (is_number(fixed)) return false;
    value = values_[at(first_varies ? step.a : step.b)];
    value.place = -1;
    const int by = place(fixed);
    if (product) {
      value.scale = value.scale < 0 ? by : binary(Primitive::kMul, value.scale, by);
      if (value.shift >= 0) value.shift = binary(Primitive::kMul, value.shift, by);
    } else if (value.shift >= 0) {
      value.shift = binary(step.primitive, value.shift, by);
    } else {
      value.shift = difference ? unary(Primitive::kNeg, by) : by;
    }
    return true;
  }

  // The new step that is a given one's value.
  int place(int i) {
    Value& value = values_[at(i)];
    if (value.place >= 0) return value.place;
    int whole = value.base;
    if (value.scale >= 0) whole = binary(Primitive::kMul, whole, value.scale);
    if (value.shift >= 0) whole = binary(Primitive::kAdd, whole, value.shift);
    return value.place = whole;
  }

  int add(const Formula::Step& step) {
    steps_.push_back(step);
    return static_cast<int>(steps_.size()) - 1;
  }
  int unary(Primitive primitive, int a) {
    Formula::Step step;
    step.primitive = primitive;
    step.a = a;
    return add(step);
  }
  int binary(Primitive primitive, int a, int b) {
    Formula::Step step;
    step.primitive = primitive;
    step.a = a;
    step.b = b;
    return add(step);
  }

  std::span<const Formula::Step> old_;
  std::vector<Value> values_;
  std::vector<Formula::Step> steps_;
};

}  // namespace

FoldedSteps fold_affine(std::span<const Formula::Step> steps, std::span<const int> wanted,
                        const std::function<bool(int)>& is_constant) {
  return Folder(steps, is_constant).run(wanted);
}

}  // namespace fuseblock::cuda
