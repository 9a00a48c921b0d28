#include "block/formula_text.h"

#include <array>
#include <limits>
#include <optional>

#include "block/arguments.h"
#include "block/text.h"
#include "fuseblock/error.h"

namespace fuseblock {
namespace {

constexpr int kDeepest = 200;

using Id = FormulaBuilder::Id;

class ExpressionReader {
 public:
  ExpressionReader(Lexer& lexer, FormulaBuilder& builder, const ExpressionContext& context)
      : lexer_(lexer), builder_(builder), context_(context) {}

  Id expression() {
    if (++depth_ > kDeepest)
      lexer_.fail(lexer_.peek(), "the formula is nested more than " + std::to_string(kDeepest) + " deep");
    Id left = sum();
    for (Primitive comparison : {Primitive::kLess, Primitive::kLessEqual, Primitive::kGreater,
                                 Primitive::kGreaterEqual, Primitive::kEqual}) {
      if (!lexer_.accept(info(comparison).name)) continue;
      left = builder_.apply(comparison, left, sum());
      break;
    }
    --depth_;
    return left;
  }

 private:
  Id sum() {
    Id left = product();
    while (lexer_.at("+") || lexer_.at("-")) {
      const Primitive primitive = lexer_.next().text == "+" ? Primitive::kAdd : Primitive::kSub;
      left = builder_.apply(primitive, left, product());
    }
    return left;
  }

  Id product() {
    Id left = factor();
    while (lexer_.at("*") || lexer_.at("/")) {
      const Primitive primitive = lexer_.next().text == "*" ? Primitive::kMul : Primitive::kDiv;
      left = builder_.apply(primitive, left, factor());
    }
    return left;
  }

  Id factor() {
    int signs = 0;
    while (lexer_.accept("-")) ++signs;
    Id result = primary();
    for (; signs > 0; --signs) result = builder_.apply(Primitive::kNeg, result);
    return result;
  }

  Id primary() {
    if (lexer_.accept("(")) {
      const Id inner = expression();
      lexer_.expect(")", "`)`");
      return inner;
    }
    if (lexer_.peek().kind == TokenKind::kNumber || lexer_.at("inf") || lexer_.at("nan"))
      return builder_.constant(read_number(lexer_, "a number"));
    const Token name = lexer_.expect(TokenKind::kName, "a number, a name, a call or `(`");
    if (lexer_.at("(")) return call(name);
    if (is_reserved(name.text))
      lexer_.fail(name, in_quotes(name.text) + " is a word of the notation and cannot name a value");
    return context_.name(name);
  }

  Id call(const Token& name) {
    if (const PrimitiveInfo* primitive = find_function(name.text)) return call_primitive(name, *primitive);
    if (const Operation* operation = context_.operation(name.text)) return call_operation(name, *operation);
    lexer_.fail(name, "no function " + in_quotes(name.text) +
                          "; a formula calls primitives and pointwise operations");
  }

  Id call_primitive(const Token& name, const PrimitiveInfo& primitive) {
    lexer_.expect("(", "`(`");
    std::array<Id, 3> operands = {-1, -1, -1};
    for (int i = 0; i < primitive.arity; ++i) {
      if (i > 0)
        lexer_.expect(",", "`,`: " + std::string(name.text) + " takes " + std::to_string(primitive.arity) +
                               " operands");
      operands[static_cast<std::size_t>(i)] = expression();
    }
    lexer_.expect(")", "`)`: " + std::string(name.text) + " takes " + std::to_string(primitive.arity) +
                           (primitive.arity == 1 ? " operand" : " operands"));
    return builder_.apply(primitive.primitive, operands[0], operands[1], operands[2]);
  }

  // The formula of the operation with operands and arguments in place of its inputs.
  Id call_operation(const Token& name, const Operation& operation) {
    lexer_.expect("(", "`(`");
    std::vector<Id> inputs;
    for (std::size_t i = 0; i < operation.operands.size(); ++i) {
      if (i > 0)
        lexer_.expect(",", "`,` and the operand `" + operation.operands[i].name + "` of " + operation.name);
      inputs.push_back(expression());
    }
    std::vector<std::optional<ArgumentValue>> given(operation.arguments.size());
    for (std::size_t next = 0; lexer_.accept(",");) {
      const Token first = lexer_.peek();
      std::size_t place = next++;
      if (lexer_.peek_second().text == "=") {
        const int argument = operation.find_argument(first.text);
        if (argument < 0) lexer_.fail(first, operation.name + " has no argument " + in_quotes(first.text));
        place = static_cast<std::size_t>(argument);
        lexer_.next();
        lexer_.next();
      }
      if (place >= given.size() || given[place])
        lexer_.fail(first, operation.name + ": " + describe(first) + " is one item too many; it is " +
                               signature(operation));
      given[place] = argument_value(operation, first, operation.arguments[place]);
    }
    lexer_.expect(")", "`,` or `)`");
    for (std::size_t i = 0; i < given.size(); ++i) {
      const ArgumentSpec& spec = operation.arguments[i];
      if (!given[i] && spec.required)
        lexer_.fail(name, operation.name + ": argument `" + spec.name + "` is missing");
      inputs.push_back(builder_.constant(formula_constant(spec, given[i] ? *given[i] : spec.default_value)));
    }
    return builder_.insert(operation.formula, inputs);
  }

  ArgumentValue argument_value(const Operation& operation, const Token& at, const ArgumentSpec& spec) {
    ArgumentValue value;
    if (lexer_.accept("true"))
      value = true;
    else if (lexer_.accept("false"))
      value = false;
    else if (spec.kind == ArgumentKind::kKeyword)
      value = std::string(lexer_.expect(TokenKind::kName, expectation(spec)).text);
    else if (spec.kind == ArgumentKind::kInteger)
      value = whole_number(lexer_.expect(TokenKind::kNumber, expectation(spec)).text).value_or(-1);
    else
      value = read_number(lexer_, expectation(spec));
    try {
      return checked_argument(spec, std::move(value));
    } catch (const UserError& error) {
      lexer_.fail(at, operation.name + ": " + error.what());
    }
  }

  Lexer& lexer_;
  FormulaBuilder& builder_;
  const ExpressionContext& context_;
  int depth_ = 0;
};

// How tightly a step binds when written: comparisons least, then sums, products, signs, all else.
enum Strength { kComparison, kSum, kProduct, kSign, kPrimary };

Strength strength(const Formula::Step& step) {
  switch (step.primitive) {
    case Primitive::kLess:
    case Primitive::kLessEqual:
    case Primitive::kGreater:
    case Primitive::kGreaterEqual:
    case Primitive::kEqual: return kComparison;
    case Primitive::kAdd:
    case Primitive::kSub: return kSum;
    case Primitive::kMul:
    case Primitive::kDiv: return kProduct;
    case Primitive::kNeg: return kSign;
    default: return kPrimary;
  }
}

}  // namespace

FormulaBuilder::Id read_expression(Lexer& lexer, FormulaBuilder& builder, const ExpressionContext& context) {
  return ExpressionReader(lexer, builder, context).expression();
}

double read_number(Lexer& lexer, std::string_view what) {
  const bool negative = lexer.accept("-");
  double value = 0;
  if (lexer.accept("inf"))
    value = std::numeric_limits<double>::infinity();
  else if (lexer.accept("nan"))
    value = std::numeric_limits<double>::quiet_NaN();
  else
    value = number_value(lexer.expect(TokenKind::kNumber, what).text);
  return negative ? -value : value;
}

const PrimitiveInfo* find_function(std::string_view word) {
  for (const PrimitiveInfo& primitive : primitives())
    if (primitive.name == word && is_name(word)) return &primitive;
  return nullptr;
}

double Formula::written_size() const {
  std::vector<double> sizes;
  for (const Step& step : steps_) {
    double size = 1;
    for (std::int32_t operand : {step.a, step.b, step.c})
      if (operand >= 0) size += sizes[static_cast<std::size_t>(operand)];
    sizes.push_back(size);
  }
  return sizes.back();
}

std::string Formula::to_string(std::span<const std::string> names) const {
  std::vector<int> uses(steps_.size(), 0);
  for (const Step& step : steps_)
    for (std::int32_t operand : {step.a, step.b, step.c})
      if (operand >= 0) ++uses[static_cast<std::size_t>(operand)];

  std::vector<std::string> texts(steps_.size());
  // The text of an operand, in parentheses unless it binds at least as tightly as `least`. Its last use takes
  // it along.
  auto operand = [&](std::int32_t id, Strength least) {
    const auto place = static_cast<std::size_t>(id);
    std::string text = --uses[place] == 0 ? std::move(texts[place]) : texts[place];
    return strength(steps_[place]) >= least ? text : "(" + text + ")";
  };
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const Strength own = strength(step);
    if (step.primitive == Primitive::kInput) {
      texts[i] = names[static_cast<std::size_t>(step.input)];
    } else if (step.primitive == Primitive::kConstant) {
      texts[i] = number_text(step.constant);
    } else if (own == kSign) {
      texts[i] = "-" + operand(step.a, kPrimary);
    } else if (own == kPrimary) {
      texts[i] = std::string(info(step.primitive).name) + "(" + operand(step.a, kComparison);
      if (step.b >= 0) texts[i] += ", " + operand(step.b, kComparison);
      if (step.c >= 0) texts[i] += ", " + operand(step.c, kComparison);
      texts[i] += ")";
    } else {
      const auto tighter = static_cast<Strength>(own + 1);
      texts[i] = operand(step.a, own == kComparison ? tighter : own);
      texts[i] += " " + std::string(info(step.primitive).name) + " ";
      texts[i] += operand(step.b, tighter);
    }
  }
  return texts.back();
}

}  // namespace fuseblock
