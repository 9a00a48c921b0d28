#include "cuda/emit/formula_text.h"

#include <charconv>
#include <cmath>

#include "fuseblock/error.h"

namespace fuseblock::cuda {
namespace {

std::string function_name(Primitive primitive) {
  switch (primitive) {
    case Primitive::kAbs: return "absolute";
    case Primitive::kMinimum: return "minimum";
    case Primitive::kMaximum: return "maximum";
    case Primitive::kSqrt: return "square_root";
    case Primitive::kExp: return "exponential";
    case Primitive::kExpm1: return "exponential_minus_1";
    case Primitive::kLog: return "logarithm";
    case Primitive::kLog1pExp: return "log_1_plus_exp";
    case Primitive::kTanh: return "hyperbolic_tangent";
    case Primitive::kErf: return "error_function";
    case Primitive::kSigmoid: return "sigmoid";
    default: throw InternalError("a primitive without a function in device code");
  }
}

std::string operator_text(Primitive primitive) {
  switch (primitive) {
    case Primitive::kAdd: return " + ";
    case Primitive::kSub: return " - ";
    case Primitive::kDiv: return " / ";
    case Primitive::kLess: return " < ";
    case Primitive::kLessEqual: return " <= ";
    case Primitive::kGreater: return " > ";
    case Primitive::kGreaterEqual: return " >= ";
    case Primitive::kEqual: return " == ";
    default: return "";
  }
}

bool is_comparison(Primitive primitive) {
  return primitive == Primitive::kLess || primitive == Primitive::kLessEqual ||
         primitive == Primitive::kGreater || primitive == Primitive::kGreaterEqual ||
         primitive == Primitive::kEqual;
}

}  // namespace

std::string element_name(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "double";
    case DType::kF32: return "float";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
  }
  throw InternalError("an unknown dtype");
}

std::string literal(double value, bool single) {
  if (std::isnan(value)) return single ? "__int_as_float(0x7fffffff)" : "(double)__int_as_float(0x7fffffff)";
  if (std::isinf(value))
    return std::string("(") + (single ? "" : "double)(") + (value < 0 ? "-" : "") +
           "__int_as_float(0x7f800000))";
  char buffer[64];
  const auto end = single ? std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value)).ptr
                          : std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  if (single) text += "f";
  return value < 0 || std::signbit(value) ? "(" + text + ")" : text;
}

std::vector<std::string> write_statements(Text& text, std::span<const Formula::Step> steps,
                                          const std::function<std::string(int)>& input,
                                          const std::string& type, bool single,
                                          const std::vector<bool>& rounded) {
  std::vector<std::string> names;
  const auto product = [&](const std::string& a, const std::string& b) {
    if (names.size() >= rounded.size() || !rounded[names.size()]) return a + " * " + b;
    return std::string(single ? "__fmul_rn(" : "__dmul_rn(").append(a).append(", ").append(b).append(")");
  };
  for (const Formula::Step& step : steps) {
    auto name = [&](std::int32_t id) { return names[static_cast<std::size_t>(id)]; };
    std::string value;
    switch (step.primitive) {
      case Primitive::kInput: names.push_back(input(step.input)); continue;
      case Primitive::kConstant: names.push_back(literal(step.constant, single)); continue;
      case Primitive::kNeg: value = "-" + name(step.a); break;
      case Primitive::kSelect: value = name(step.a) + " != 0 ? " + name(step.b) + " : " + name(step.c); break;
      case Primitive::kDiv: {
        const Formula::Step& dividend = steps[static_cast<std::size_t>(step.a)];
        const Formula::Step& divisor = steps[static_cast<std::size_t>(step.b)];
        if (dividend.primitive == Primitive::kConstant && dividend.constant == 1 &&
            divisor.primitive == Primitive::kSqrt) {
          value = "reciprocal_root(" + name(divisor.a) + ")";
          break;
        }
        // A product with the reciprocal of a constant; its error is one rounding more.
        const double reciprocal = 1 / divisor.constant;
        if (divisor.primitive == Primitive::kConstant && std::isnormal(reciprocal) && single)
          value = product(name(step.a), literal(reciprocal, single));
        else
          value = name(step.a) + " / " + name(step.b);
        break;
      }
      case Primitive::kMul: value = product(name(step.a), name(step.b)); break;
      default: {
        const std::string op = operator_text(step.primitive);
        if (is_comparison(step.primitive))
          value = name(step.a) + op + name(step.b) + " ? 1 : 0";
        else if (!op.empty())
          value = name(step.a) + op + name(step.b);
        else
          value = function_name(step.primitive) + "(" + name(step.a) +
                  (step.b >= 0 ? ", " + name(step.b) : "") + ")";
      }
    }
    names.push_back("t" + std::to_string(names.size()));
    text.line("const " + type + " " + names.back() + " = " + value + ";");
  }
  return names;
}

}  // namespace fuseblock::cuda
