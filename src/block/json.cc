// Blocks as JSON, for programs:
//   {"statements": [{"name": "y", "op": "conv2d", "operands": ["x", "y.weight", "y.bias"], "args": {"channels": 64, ...}},
//                   {"name": "z", "formula": "y * sigmoid(1.702 * y)", "operands": ["y"]}],
//    "outputs": ["z"], "inputs": ["x"], "parameters": ["y.weight", "y.bias"]}
// Reading needs `statements` and `outputs`; arguments with defaults and a stage's own parameters may be left
// out.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "block/arguments.h"
#include "block/block_body.h"
#include "block/lexer.h"
#include "block/text.h"
#include "fuseblock/block.h"

namespace fuseblock {
namespace {

using Json = nlohmann::ordered_json;

Json argument_json(const ArgumentValue& value) {
  struct Visitor {
    Json operator()(std::monostate) const { return nullptr; }
    // JSON has no infinities.
    Json operator()(double number) const {
      return std::isfinite(number) ? Json(number) : Json(number_text(number));
    }
    Json operator()(AxisSet axes) const {
      Json list = Json::array();
      for (Axis axis : axes.list()) list.push_back(std::string(1, letter(axis)));
      return list;
    }
    Json operator()(std::int64_t integer) const { return integer; }
    Json operator()(bool is_true) const { return is_true; }
    Json operator()(const std::string& word) const { return word; }
    Json operator()(const std::vector<std::int64_t>& list) const { return list; }
  };
  return std::visit(Visitor{}, value);
}

Json operand_json(const Block& block, const Operand& operand) {
  if (operand.is_scalar()) return argument_json(operand.scalar());
  return block.value(operand.value()).name;
}

}  // namespace

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) { builder_.state_->source = std::string(text); }

  Block read() {
    const Json document = parse();
    const Json& statements = member(document, "", "statements");
    if (!statements.is_array()) fail("/statements", "expected a list of statements");
    for (std::size_t i = 0; i < statements.size(); ++i)
      read_statement(statements[i], "/statements/" + std::to_string(i));
    const Json& outputs = member(document, "", "outputs");
    if (!outputs.is_array()) fail("/outputs", "expected a list of names");
    std::vector<Value> values;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::string pointer = "/outputs/" + std::to_string(i);
      const std::string name = string(outputs[i], pointer);
      if (!builder_.state_->by_name.contains(name))
        fail(pointer, "there is no value named " + in_quotes(name));
      values.push_back(builder_.value(name));
    }
    const Block block = guarded("/outputs", [&] { return builder_.finish(values); });
    for (std::size_t i = 0; i < builder_.state_->nodes.size(); ++i) {
      const auto id = static_cast<std::size_t>(builder_.state_->nodes[i].result.id);
      const std::string& name = builder_.state_->values[id].name;
      if (!block.find(name)) fail("/statements/" + std::to_string(i), "`" + name + "` is never used");
    }
    return block;
  }

 private:
  // Runs an action of the builder; what it refuses gets the place in the document.
  template <class Action>
  auto guarded(const std::string& pointer, Action action) -> decltype(action()) {
    try {
      return action();
    } catch (const UserError& error) {
      throw UserError(error.what(), Position{0, 0, pointer}, error.excerpt());
    }
  }

  Json parse() const {
    try {
      return Json::parse(text_);
    } catch (const nlohmann::json::parse_error& error) {
      fail_at(error.byte > 0 ? error.byte - 1 : 0, 1, "this is not JSON");
    } catch (const nlohmann::json::out_of_range& error) {
      // The message ends with the number in quotes.
      const std::string message = error.what();
      const std::size_t quote = message.find('\'') + 1;
      const std::string number = message.substr(quote, message.rfind('\'') - quote);
      fail_at(std::min(text_.find(number), text_.size()), number.size(),
              "a number beyond the range of double");
    }
  }

  [[noreturn]] void fail_at(std::size_t offset, std::size_t length, const std::string& message) const {
    throw UserError("block in JSON: " + message, position_of(text_, offset),
                    excerpt_of(text_, offset, length));
  }

  void read_statement(const Json& statement, const std::string& pointer) {
    if (!statement.is_object()) fail(pointer, "expected an object");
    const std::string name = string(member(statement, pointer, "name"), pointer + "/name");
    if (name.empty()) fail(pointer + "/name", "a statement needs a name");
    if (statement.contains("formula")) {
      const std::string formula = string(statement["formula"], pointer + "/formula");
      guarded(pointer + "/formula", [&] { return builder_.formula(formula, name); });
    } else {
      read_call(statement, name, pointer);
    }
    builder_.state_->origins.push_back({0, 0, pointer});
  }

  void read_call(const Json& statement, const std::string& name, const std::string& pointer) {
    const std::string op = string(member(statement, pointer, "op"), pointer + "/op");
    const Operation& operation =
        guarded(pointer + "/op", [&]() -> const Operation& { return require_operation(op); });
    Builder::NamedArguments arguments;
    if (statement.contains("args")) {
      const Json& args = statement["args"];
      if (!args.is_object()) fail(pointer + "/args", "expected an object");
      for (const auto& [key, value] : args.items())
        read_argument(operation, key, value, pointer + "/args", arguments);
    }
    const Json& operands = member(statement, pointer, "operands");
    if (!operands.is_array()) fail(pointer + "/operands", "expected a list");
    std::vector<Operand> values;
    Builder::NamedOperands parameters;
    const auto value_operands = static_cast<std::size_t>(operation.value_operand_count());
    for (std::size_t i = 0; i < operands.size() && i < value_operands; ++i)
      values.push_back(operand(operands[i], pointer + "/operands/" + std::to_string(i)));
    std::size_t next = value_operands;
    for (std::size_t i = value_operands; i < operation.operands.size() && next < operands.size(); ++i) {
      const OperandSpec& spec = operation.operands[i];
      if (!is_present(spec, operation, arguments)) continue;
      const std::string place = pointer + "/operands/" + std::to_string(next);
      const std::string given = string(operands[next++], place);
      if (given != name + "." + spec.name)
        parameters.emplace_back(spec.name, guarded(place, [&] { return builder_.value(given); }));
    }
    if (next < operands.size())
      fail(pointer + "/operands", "more operands than " + operation.name + " takes");
    guarded(pointer, [&] { return builder_.apply(op, values, arguments, name, parameters); });
  }

  // Whether the flags a parameter depends on are on, by the arguments given or by their defaults.
  static bool is_present(const OperandSpec& spec, const Operation& operation,
                         const Builder::NamedArguments& arguments) {
    for (const std::string& flag : spec.present_if) {
      ArgumentValue value =
          operation.arguments[static_cast<std::size_t>(operation.find_argument(flag))].default_value;
      for (const auto& [key, argument] : arguments)
        if (operation.find_argument(key) == operation.find_argument(flag)) value = argument;
      if (value == ArgumentValue(false)) return false;
    }
    return true;
  }

  Operand operand(const Json& json, const std::string& pointer) {
    if (json.is_number()) return json.get<double>();
    const std::string text = string(json, pointer);
    if (text == "inf" || text == "-inf" || text == "nan" || text == "-nan") return special(text);
    return guarded(pointer, [&] { return Operand(builder_.value(text)); });
  }

  // Throws at the argument itself, or at `args` for one that the operation does not have.
  void read_argument(const Operation& operation, const std::string& key, const Json& json,
                     const std::string& args, Builder::NamedArguments& arguments) {
    const int place = operation.find_argument(key);
    if (place < 0)
      fail(args,
           operation.name + ": there is no argument " + in_quotes(key) + "; it is " + signature(operation));
    const ArgumentSpec& spec = operation.arguments[static_cast<std::size_t>(place)];
    const ArgumentValue value = argument(spec, json, args + "/" + key);
    try {
      arguments.emplace_back(key, checked_argument(spec, value));
    } catch (const UserError& error) {
      fail(args + "/" + key, operation.name + ": " + error.what());
    }
  }

  ArgumentValue argument(const ArgumentSpec& spec, const Json& json, const std::string& pointer) {
    if (json.is_null()) return {};
    if (json.is_boolean()) return json.get<bool>();
    if (json.is_number_integer()) return whole_number(json, pointer);
    if (json.is_number()) return json.get<double>();
    if (json.is_array() && spec.kind == ArgumentKind::kAxes) return axes(json, pointer);
    if (json.is_array()) {
      std::vector<std::int64_t> list;
      for (const Json& item : json) list.push_back(whole_number(item, pointer));
      return list;
    }
    const std::string word = string(json, pointer);
    if (spec.kind == ArgumentKind::kNumber && (word == "inf" || word == "-inf")) return special(word);
    return word;
  }

  std::int64_t whole_number(const Json& json, const std::string& pointer) const {
    const bool too_large =
        json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
    if (!json.is_number_integer() || too_large) fail(pointer, "a whole number below 2^63 was expected");
    return json.get<std::int64_t>();
  }

  AxisSet axes(const Json& json, const std::string& pointer) {
    AxisSet set;
    for (const Json& item : json) {
      const auto axis = axis_of(string(item, pointer));
      if (!axis || set.contains(*axis))
        fail(pointer, "expected a list of different axes out of n, c, d, h, w");
      set.insert(*axis);
    }
    return set;
  }

  static double special(const std::string& text) {
    if (text.ends_with("nan")) return std::numeric_limits<double>::quiet_NaN();
    return text[0] == '-' ? -std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::infinity();
  }

  const Json& member(const Json& object, const std::string& pointer, const std::string& name) const {
    if (!object.is_object() || !object.contains(name)) fail(pointer + "/" + name, "this member is missing");
    return object[name];
  }

  std::string string(const Json& json, const std::string& pointer) const {
    if (!json.is_string()) fail(pointer, "expected a string");
    return json.get<std::string>();
  }

  [[noreturn]] void fail(const std::string& pointer, const std::string& message) const {
    throw UserError("block in JSON: " + message, Position{0, 0, pointer}, "");
  }

  std::string_view text_;
  Builder builder_;
};

Block Block::from_json(std::string_view json) { return JsonReader(json).read(); }

std::string Block::to_json() const {
  Json document;
  document["statements"] = Json::array();
  for (const Node& node : nodes()) {
    Json statement;
    statement["name"] = value(node.result).name;
    Json operands = Json::array();
    for (const Operand& operand : node.operands) operands.push_back(operand_json(*this, operand));
    if (node.operation->code == OpCode::kFormula) {
      std::vector<std::string> names;
      for (const Operand& operand : node.operands) names.push_back(value(operand.value()).name);
      statement["formula"] = node.formula.to_string(names);
      statement["operands"] = std::move(operands);
    } else {
      statement["op"] = node.operation->name;
      statement["operands"] = std::move(operands);
      Json arguments = Json::object();
      for (std::size_t i = 0; i < node.arguments.size(); ++i)
        arguments[node.operation->arguments[i].name] = argument_json(node.arguments[i]);
      statement["args"] = std::move(arguments);
    }
    document["statements"].push_back(std::move(statement));
  }
  auto names_of = [&](ValueKind kind) {
    Json names = Json::array();
    for (const ValueInfo& info : values())
      if (info.kind == kind) names.push_back(info.name);
    return names;
  };
  document["outputs"] = Json::array();
  for (Value output : outputs()) document["outputs"].push_back(value(output).name);
  document["inputs"] = names_of(ValueKind::kInput);
  document["parameters"] = names_of(ValueKind::kParameter);
  return document.dump();
}

}  // namespace fuseblock
