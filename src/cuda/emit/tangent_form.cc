#include "cuda/emit/tangent_form.h"

#include <cmath>
#include <vector>

#include "cuda/emit/formula_text.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

// What is the same at all positions: a number, or an expression.
struct Fixed {
  double number = 0;
  std::string expression = {};

  bool known() const { return expression.empty(); }
  bool is(double other) const { return known() && number == other; }
  std::string text() const { return known() ? literal(number, true) : expression; }
};

Fixed operator+(const Fixed& a, const Fixed& b) {
  if (a.known() && b.known()) return {a.number + b.number};
  if (a.is(0)) return b;
  if (b.is(0)) return a;
  return {0, "(" + a.text() + " + " + b.text() + ")"};
}

Fixed operator*(const Fixed& a, const Fixed& b) {
  if (a.known() && b.known()) return {a.number * b.number};
  if (a.is(0) || b.is(0)) return {0};
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  return {0, a.text() + " * " + b.text()};
}

// first * t + second * t^2 + slope * value + constant
struct Form {
  Fixed slope = {}, constant = {};
  double first = 0, second = 0;

  bool fixed() const { return slope.is(0) && straight(); }
  bool straight() const { return first == 0 && second == 0; }
  bool polynomial() const { return slope.is(0) && constant.known(); }
};

class Former {
 public:
  Former(std::span<const Formula::Step> steps, const std::function<std::string(int)>& input) : input_(input) {
    for (const Formula::Step& step : steps) forms_.push_back(form(step));
  }

  std::optional<TangentForm> result(std::int32_t step) const {
    const std::optional<Form>& form = forms_[at(step)];
    if (!form || form->straight()) return std::nullopt;
    return TangentForm{tangent_->slope.text(),
                       tangent_->constant.text(),
                       form->slope.text(),
                       form->constant.text(),
                       form->slope.known() && form->constant.known(),
                       form->first,
                       form->second};
  }

 private:
  std::optional<Form> form(const Formula::Step& step) {
    const auto of = [&](std::int32_t i) { return i >= 0 ? forms_[at(i)] : std::optional<Form>(Form()); };
    const std::optional<Form> a = of(step.a), b = of(step.b);
    if (!a || !b) return std::nullopt;
    switch (step.primitive) {
      case Primitive::kConstant: return Form{.constant = {step.constant}};
      case Primitive::kInput: return of_input(step.input);
      case Primitive::kAdd: return sum(*a, *b);
      case Primitive::kSub: return sum(*a, product({.constant = {-1}}, *b).value());
      case Primitive::kNeg: return product({.constant = {-1}}, *a);
      case Primitive::kMul: return product(*a, *b);
      case Primitive::kDiv:
        if (!b->fixed() || !b->constant.known() || !std::isnormal(1 / b->constant.number))
          return std::nullopt;
        return product(*a, {.constant = {1 / b->constant.number}});
      case Primitive::kTanh: return tangent(*a);
      default: return std::nullopt;
    }
  }

  std::optional<Form> of_input(int input) const {
    const std::string expression = input_(input);
    if (expression.empty()) return std::nullopt;
    if (expression == "value") return Form{.slope = {1}};
    return Form{.constant = {0, expression}};
  }

  static Form sum(const Form& a, const Form& b) {
    return {a.slope + b.slope, a.constant + b.constant, a.first + b.first, a.second + b.second};
  }

  static std::optional<Form> product(const Form& a, const Form& b) {
    if (b.fixed() && !a.fixed()) return product(b, a);
    if (a.fixed() && a.constant.is(0)) return std::nullopt;  // of a NaN it is one
    if (a.fixed() && (a.constant.known() || b.straight()))
      return Form{a.constant * b.slope, a.constant * b.constant, a.constant.number * b.first,
                  a.constant.number * b.second};
    // Of polynomials, whose product has no third power.
    if (!a.polynomial() || !b.polynomial() || a.second * b.second != 0 || a.first * b.second != 0 ||
        a.second * b.first != 0)
      return std::nullopt;
    const double x = a.constant.number, y = b.constant.number;
    return Form{{}, {x * y}, x * b.first + a.first * y, x * b.second + a.first * b.first + a.second * y};
  }

  std::optional<Form> tangent(const Form& argument) {
    if (tangent_ || !argument.straight() || argument.fixed()) return std::nullopt;
    tangent_ = argument;
    return Form{.first = 1};
  }

  const std::function<std::string(int)>& input_;
  std::vector<std::optional<Form>> forms_;  // by step
  std::optional<Form> tangent_;             // the argument of tanh
};

}  // namespace

std::optional<TangentForm> tangent_form(std::span<const Formula::Step> steps, std::int32_t step,
                                        const std::function<std::string(int)>& input) {
  return Former(steps, input).result(step);
}

}  // namespace fuseblock::cuda
