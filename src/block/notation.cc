// Reads the notation: pipes of stages, or statements.
//
//   block     := stage { "|" stage }  |  { name "=" ( call | formula ) ";" } "return" name { "," name } [ ";" ]
//   stage     := operation [ "(" items ")" ] [ "as" name ]
//   call      := operation "(" items ")"
//   items     := operands, then arguments by position or as key "=" value; a flag's name alone sets it
#include "block/notation.h"

#include <algorithm>

#include "block/arguments.h"
#include "block/block_body.h"
#include "block/formula_text.h"
#include "block/text.h"

namespace fuseblock {
namespace {

// The first characters of the infix operators.
constexpr std::string_view kInfix = "+-*/<>=";

}  // namespace

class NotationReader {
 public:
  explicit NotationReader(std::string_view text) : lexer_(text) {
    builder_.state_->source = std::string(text);
  }

  Block read() {
    if (lexer_.peek().kind == TokenKind::kEnd) lexer_.fail(lexer_.peek(), "the block is empty");
    const bool statements =
        lexer_.at("return") || (lexer_.peek().kind == TokenKind::kName && lexer_.peek_second().text == "=");
    const std::vector<Value> outputs = statements ? read_statements() : read_pipe();
    Block block = builder_.finish(outputs);
    if (block.nodes().size() < builder_.state_->nodes.size()) fail_unused(block);
    return block;
  }

 private:
  // What stands between the parentheses of a call.
  struct Items {
    std::vector<std::optional<Operand>> operands;
    Builder::NamedArguments arguments;
    Builder::NamedOperands parameters;
  };

  std::vector<Value> read_pipe() {
    Value current = builder_.x();
    do current = read_stage(current);
    while (lexer_.accept("|"));
    if (lexer_.peek().kind != TokenKind::kEnd)
      lexer_.fail(lexer_.peek(),
                  "expected `|`, `as` or the end of the block, got " + describe(lexer_.peek()));
    return {current};
  }

  Value read_stage(Value main) {
    const Token word = lexer_.expect(TokenKind::kName, "an operation");
    const Operation& operation = find(word);
    Items items;
    items.operands.resize(static_cast<std::size_t>(operation.value_operand_count()));
    items.operands[0] = main;
    if (lexer_.at("(")) read_items(operation, items);
    const std::size_t call_end = lexer_.last_end();
    std::string name;
    if (lexer_.accept("as")) name = read_new_name("a name after `as`").text;
    return apply(operation, items, name, word.offset, call_end);
  }

  std::vector<Value> read_statements() {
    while (!lexer_.accept("return")) {
      const Token name = read_new_name("`name = ...` or `return`");
      lexer_.expect("=", "`=`");
      read_statement(name);
      lexer_.expect(";", "`;` after a statement");
    }
    std::vector<Value> outputs;
    do {
      const Token name = lexer_.expect(TokenKind::kName, "the name of a value to return");
      if (!builder_.state_->by_name.contains(std::string(name.text)))
        lexer_.fail(name, "return: there is no value named " + in_quotes(name.text));
      const Value value = builder_.value(name.text);
      if (builder_.state_->values[static_cast<std::size_t>(value.id)].kind != ValueKind::kResult)
        lexer_.fail(name, "return: " + in_quotes(name.text) + " is an input; outputs are results");
      if (std::find(outputs.begin(), outputs.end(), value) != outputs.end())
        lexer_.fail(name, "return: " + in_quotes(name.text) + " is named twice");
      outputs.push_back(value);
    } while (lexer_.accept(","));
    lexer_.accept(";");
    if (lexer_.peek().kind != TokenKind::kEnd)
      lexer_.fail(lexer_.peek(), "expected `,` or the end of the block, got " + describe(lexer_.peek()));
    return outputs;
  }

  // The name of a value that is about to be made.
  Token read_new_name(std::string_view what) {
    const Token name = lexer_.expect(TokenKind::kName, what);
    if (is_reserved(name.text))
      lexer_.fail(name, in_quotes(name.text) + " is a word of the notation and cannot name a value");
    if (builder_.state_->by_name.contains(std::string(name.text)))
      lexer_.fail(name, "the name " + in_quotes(name.text) + " is taken already");
    return name;
  }

  void read_statement(const Token& name) {
    const Token word = lexer_.peek();
    if (is_whole_call()) {
      lexer_.next();
      const Operation& operation = find(word);
      Items items;
      items.operands.resize(static_cast<std::size_t>(operation.value_operand_count()));
      read_items(operation, items);
      apply(operation, items, name.text, word.offset, lexer_.last_end());
      return;
    }
    const auto read = read_formula(lexer_, builder_);
    guarded(name.offset, lexer_.last_end(), [&] {
      builder_.apply(read.first, read.second, name.text);
      builder_.state_->origins.push_back({name.offset, lexer_.last_end(), ""});
    });
  }

  // Whether the statement is one call of an operation (or of something unknown) on names and numbers. A call
  // that is part of a formula, or a pointwise operation called on formulas, is a formula.
  bool is_whole_call() const {
    if (lexer_.peek().kind != TokenKind::kName || lexer_.peek_second().text != "(") return false;
    const Operation* operation = find_operation(lexer_.peek().text);
    if (operation == nullptr) return find_function(lexer_.peek().text) == nullptr;
    Lexer ahead = lexer_;
    Token previous = ahead.next();
    int depth = 0;
    bool has_formula = false;
    do {
      const Token token = ahead.next();
      if (token.kind == TokenKind::kEnd) return true;
      const bool behind_operand =
          previous.kind == TokenKind::kName || previous.kind == TokenKind::kNumber || previous.text == ")";
      const bool infix = token.kind == TokenKind::kSymbol &&
                         kInfix.find(token.text[0]) != std::string_view::npos && token.text != "=";
      const bool sign_of_name =
          previous.text == "-" && token.kind == TokenKind::kName && !is_reserved(token.text);
      has_formula = has_formula || (infix && behind_operand) ||
                    (depth > 0 && token.text == "(" && behind_operand) || sign_of_name;
      depth += token.text == "(" ? 1 : (token.text == ")" ? -1 : 0);
      previous = token;
    } while (depth > 0);
    const bool whole = ahead.at(";") || ahead.peek().kind == TokenKind::kEnd;
    const bool is_formula = has_formula && operation->code == OpCode::kPointwise;
    return whole && !is_formula;
  }

  void read_items(const Operation& operation, Items& items) {
    lexer_.expect("(", "`(`");
    if (lexer_.accept(")")) return;
    do read_item(operation, items);
    while (lexer_.accept(","));
    lexer_.expect(")", "`,` or `)` in " + operation.name);
  }

  void read_item(const Operation& operation, Items& items) {
    const Token first = lexer_.peek();
    const bool begins_item = first.kind == TokenKind::kName || first.kind == TokenKind::kNumber ||
                             first.text == "(" || first.text == "-";
    if (!begins_item)
      lexer_.fail(first, "expected an operand or argument of " + operation.name + ", got " + describe(first));
    if (first.kind == TokenKind::kName && lexer_.peek_second().text == "=") {
      read_keyed(operation, items);
      return;
    }
    for (std::size_t i = 0; i < items.operands.size(); ++i) {
      if (items.operands[i]) continue;
      items.operands[i] = read_operand(operation, operation.operands[i]);
      return;
    }
    read_positional(operation, items);
  }

  void read_keyed(const Operation& operation, Items& items) {
    const Token key = lexer_.next();
    lexer_.next();
    const int operand = operation.find_operand(key.text);
    const int argument = operation.find_argument(key.text);
    const bool names_value = lexer_.peek().kind == TokenKind::kName && !is_reserved(lexer_.peek().text);
    if (operand >= 0 && (argument < 0 || names_value)) {
      const OperandSpec& spec = operation.operands[static_cast<std::size_t>(operand)];
      if (operand < static_cast<int>(items.operands.size())) {
        auto& slot = items.operands[static_cast<std::size_t>(operand)];
        if (slot) lexer_.fail(key, operation.name + ": operand `" + spec.name + "` is given twice");
        slot = read_operand(operation, spec);
      } else {
        for (const auto& [given, value] : items.parameters)
          if (given == spec.name)
            lexer_.fail(key, operation.name + ": parameter `" + spec.name + "` is given twice");
        items.parameters.emplace_back(spec.name, read_operand(operation, spec).value());
      }
      return;
    }
    if (argument < 0)
      lexer_.fail(key, operation.name + ": there is no argument " + in_quotes(key.text) + "; it is " +
                           signature(operation));
    add_argument(operation, items, static_cast<std::size_t>(argument), key);
  }

  // An argument without its key: an axis, the name of a flag, or the next argument that is still open.
  void read_positional(const Operation& operation, Items& items) {
    const Token first = lexer_.peek();
    bool has_axes = false;
    for (std::size_t i = 0; i < operation.arguments.size(); ++i) {
      const ArgumentSpec& spec = operation.arguments[i];
      if (spec.kind == ArgumentKind::kAxes && axis_of(first.text)) {
        add_axis(operation, items, spec, lexer_.next());
        return;
      }
      has_axes = has_axes || spec.kind == ArgumentKind::kAxes;
      if (spec.kind == ArgumentKind::kFlag && first.text == spec.name) {
        lexer_.next();
        add_given(operation, items, spec, true, first);
        return;
      }
    }
    if (has_axes && first.kind == TokenKind::kName && !is_reserved(first.text))
      lexer_.fail(first, operation.name + ": " + describe(first) +
                             " is neither an axis (n, c, d, h, w) nor a flag; it is " + signature(operation));
    for (std::size_t i = 0; i < operation.arguments.size(); ++i) {
      const ArgumentSpec& spec = operation.arguments[i];
      if (spec.kind == ArgumentKind::kAxes || given(items, spec) != nullptr) continue;
      add_argument(operation, items, i, first);
      return;
    }
    lexer_.fail(first, operation.name + ": " + describe(first) + " is one item too many; it is " +
                           signature(operation));
  }

  Operand read_operand(const Operation& operation, const OperandSpec& spec) {
    const Token first = lexer_.peek();
    const bool is_number =
        first.kind == TokenKind::kNumber || first.text == "-" || first.text == "inf" || first.text == "nan";
    if (is_number && spec.role == OperandRole::kValueOrScalar) return read_number(lexer_, "a number");
    if (first.kind != TokenKind::kName || is_reserved(first.text))
      lexer_.fail(first, operation.name + ": operand `" + spec.name + "`: expected the name of a value" +
                             (spec.role == OperandRole::kValueOrScalar ? " or a number" : "") + ", got " +
                             describe(first));
    lexer_.next();
    if (lexer_.at("("))
      lexer_.fail(first, operation.name + ": operand `" + spec.name + "` is a name; give " +
                             std::string(first.text) + "(...) a statement of its own");
    return builder_.value(first.text);
  }

  void add_argument(const Operation& operation, Items& items, std::size_t place, const Token& at) {
    const ArgumentSpec& spec = operation.arguments[place];
    add_given(operation, items, spec, read_value(operation, spec), at);
  }

  void add_axis(const Operation& operation, Items& items, const ArgumentSpec& spec, const Token& token) {
    ArgumentValue* axes = given(items, spec);
    if (axes == nullptr) {
      items.arguments.emplace_back(spec.name, AxisSet{});
      axes = &items.arguments.back().second;
    }
    auto& set = std::get<AxisSet>(*axes);
    const Axis axis = *axis_of(token.text);
    if (set.contains(axis))
      lexer_.fail(token, operation.name + ": axis " + in_quotes(token.text) + " is named twice");
    set.insert(axis);
  }

  void add_given(const Operation& operation, Items& items, const ArgumentSpec& spec, ArgumentValue value,
                 const Token& at) {
    if (given(items, spec) != nullptr)
      lexer_.fail(at, operation.name + ": argument `" + spec.name + "` is given twice");
    try {
      items.arguments.emplace_back(spec.name, checked_argument(spec, std::move(value)));
    } catch (const UserError& error) {
      lexer_.fail(at.offset, lexer_.last_end(), operation.name + ": " + error.what());
    }
  }

  static ArgumentValue* given(Items& items, const ArgumentSpec& spec) {
    for (auto& [name, value] : items.arguments)
      if (name == spec.name) return &value;
    return nullptr;
  }

  // A value of any form: its kind is checked against the argument afterwards.
  ArgumentValue read_value(const Operation& operation, const ArgumentSpec& spec) {
    if (lexer_.accept("(")) return read_list(operation, spec);
    const bool none_is_choice = std::count(spec.choices.begin(), spec.choices.end(), "none") > 0;
    if (!none_is_choice && lexer_.accept("none")) return {};
    if (lexer_.accept("true")) return true;
    if (lexer_.accept("false")) return false;
    const Token first = lexer_.peek();
    const bool is_word = first.kind == TokenKind::kName && first.text != "inf" && first.text != "nan";
    if (is_word && spec.kind == ArgumentKind::kAxes && axis_of(first.text)) {
      lexer_.next();
      return AxisSet{*axis_of(first.text)};
    }
    if (is_word) return std::string(lexer_.next().text);
    const std::string what = expectation(spec) + " for `" + spec.name + "` of " + operation.name;
    if (first.kind == TokenKind::kNumber) {
      if (const auto whole = whole_number(first.text)) {
        lexer_.next();
        return *whole;
      }
    }
    return read_number(lexer_, what);
  }

  // `(3,3,3)` or `(c,h)`, the opening parenthesis being taken already.
  ArgumentValue read_list(const Operation& operation, const ArgumentSpec& spec) {
    std::vector<std::int64_t> list;
    AxisSet axes;
    do {
      const Token item = lexer_.next();
      const auto axis = axis_of(item.text);
      const auto whole = whole_number(item.text);
      if (spec.kind == ArgumentKind::kAxes && axis && !axes.contains(*axis))
        axes.insert(*axis);
      else if (spec.kind == ArgumentKind::kIntegers && whole)
        list.push_back(*whole);
      else
        lexer_.fail(item, operation.name + ": `" + spec.name + "`: expected " + expectation(spec) + ", got " +
                              describe(item));
    } while (lexer_.accept(","));
    lexer_.expect(")", "`,` or `)` in the list");
    if (spec.kind == ArgumentKind::kAxes) return axes;
    return list;
  }

  const Operation& find(const Token& word) {
    try {
      return require_operation(word.text);
    } catch (const UserError& error) {
      lexer_.fail(word, error.what());
    }
  }

  Value apply(const Operation& operation, Items& items, std::string_view name, std::size_t begin,
              std::size_t end) {
    std::vector<Operand> operands;
    for (std::size_t i = 0; i < items.operands.size(); ++i) {
      if (!items.operands[i])
        lexer_.fail(begin, end,
                    operation.name + ": operand `" + operation.operands[i].name + "` is missing; it is " +
                        signature(operation));
      operands.push_back(*items.operands[i]);
    }
    Value result;
    guarded(begin, end, [&] {
      result = builder_.apply(operation.name, operands, items.arguments, name, items.parameters);
      builder_.state_->origins.push_back({begin, end, ""});
    });
    return result;
  }

  // Runs an action of the builder; what it refuses gets the position of the stage.
  template <class Action>
  void guarded(std::size_t begin, std::size_t end, Action action) {
    try {
      action();
    } catch (const UserError& error) {
      lexer_.fail(begin, end, error.what());
    }
  }

  [[noreturn]] void fail_unused(const Block& block) {
    for (std::size_t i = 0; i < builder_.state_->nodes.size(); ++i) {
      const auto id = static_cast<std::size_t>(builder_.state_->nodes[i].result.id);
      const std::string& name = builder_.state_->values[id].name;
      if (block.find(name)) continue;
      const Origin& origin = builder_.state_->origins[i];
      lexer_.fail(origin.begin, origin.end, "`" + name + "` is never used");
    }
    throw InternalError("a node was left out without a reason");
  }

  Lexer lexer_;
  Builder builder_;
};

std::pair<Formula, std::vector<Value>> read_formula(Lexer& lexer, Builder& builder) {
  FormulaBuilder steps;
  std::vector<Value> operands;
  ExpressionContext context;
  context.name = [&](const Token& token) {
    const Value value = builder.value(token.text);
    const auto known = std::find(operands.begin(), operands.end(), value);
    const auto number = static_cast<int>(known - operands.begin());
    if (known == operands.end()) operands.push_back(value);
    return steps.input(number);
  };
  context.operation = [](std::string_view name) {
    const Operation* operation = find_operation(name);
    return operation != nullptr && operation->code == OpCode::kPointwise ? operation : nullptr;
  };
  const FormulaBuilder::Id root = read_expression(lexer, steps, context);
  return {steps.finish(root), std::move(operands)};
}

Block Block::parse(std::string_view text) { return NotationReader(text).read(); }

}  // namespace fuseblock
