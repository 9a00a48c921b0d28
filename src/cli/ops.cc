// fuseblock ops: the table of operations, or one operation in detail.
#include <nlohmann/json.hpp>

#include "catalogue.h"
#include "commands.h"
#include "table.h"

namespace fuseblock::cli {
namespace {

Json argument_json(const ArgumentSpec& argument) {
  Json json;
  json["name"] = argument.name;
  json["kind"] = kind_text(argument);
  json["required"] = argument.required;
  json["default"] = argument.required ? Json() : Json(default_text(argument));
  json["minimum"] = argument.minimum;  // null where there is none
  json["maximum"] = argument.maximum;
  json["choices"] = argument.choices;
  json["alias"] = argument.alias;
  json["help"] = argument.help;
  return json;
}

Json operation_json(const Operation& operation, std::string_view family) {
  Json json;
  json["name"] = operation.name;
  json["family"] = family;
  json["signature"] = signature(operation);
  json["summary"] = operation.summary;
  json["torch"] = operation.torch;
  json["backward_only"] = operation.adjoint;
  json["operands"] = Json::array();
  for (const OperandSpec& operand : operation.operands)
    json["operands"].push_back(
        {{"name", operand.name}, {"role", role_text(operand)}, {"help", operand.help}});
  json["arguments"] = Json::array();
  for (const ArgumentSpec& argument : operation.arguments)
    json["arguments"].push_back(argument_json(argument));
  if (operation.code == OpCode::kPointwise) {
    json["formula"] = operation.formula_text;
    json["derivatives"] = Json::object();
    for (const Derivative& derivative : derivatives(operation))
      json["derivatives"][derivative.operand] = derivative.text;
    json["kinks"] = Json::array();
    for (const Slope& slope : slopes(operation))
      json["kinks"].push_back({{"at", slope.at}, {"slope", slope.slope}});
  }
  return json;
}

std::string heading(const Console& console, const std::string& text) {
  return "\n" + console.bold(text) + "\n";
}

std::string arguments_text(const Operation& operation, const Console& console) {
  Table table({{"name"}, {"kind"}, {"default"}, {"range"}, {"also"}, {"meaning"}});
  for (const ArgumentSpec& argument : operation.arguments)
    table.add({argument.name, kind_text(argument), argument.required ? "required" : default_text(argument),
               range_text(argument), argument.alias, argument.help});
  return heading(console, "Arguments") + table.text(console, 2);
}

std::string formula_text(const Operation& operation, const Console& console) {
  std::string text = heading(console, "Formula") + "  " + operation.formula_text + "\n";
  for (const Derivative& derivative : derivatives(operation))
    text += heading(console, "Derivative by " + derivative.operand) + "  " + derivative.text + "\n";
  const std::vector<Slope> kinks = slopes(operation);
  if (!kinks.empty()) text += heading(console, "Slope at the kinks");
  for (const Slope& kink : kinks)
    text += "  " + number_text(kink.slope) + " at " + operation.operands[0].name + " = " +
            number_text(kink.at) + "\n";
  return text;
}

std::string detail_text(const Operation& operation, const Console& console) {
  std::string text = console.bold(signature(operation)) + "\n  " + operation.summary + "\n";
  if (!operation.torch.empty()) text += heading(console, "PyTorch") + "  " + operation.torch + "\n";
  Table operands({{}, {}, {}});
  for (const OperandSpec& operand : operation.operands)
    operands.add({operand.name, role_text(operand), operand.help});
  text += heading(console, "Operands") + operands.text(console, 2);
  if (!operation.arguments.empty()) text += arguments_text(operation, console);
  if (operation.code == OpCode::kPointwise) text += formula_text(operation, console);
  return text;
}

// The signature; arguments that may be left out are `...` where it would be long.
std::string short_signature(const Operation& operation) {
  constexpr std::size_t kLong = 36;
  const std::string whole = signature(operation);
  if (whole.size() <= kLong) return whole;
  return whole.substr(0, whole.rfind(", ", whole.find('='))) + ", ...)";
}

std::string table_text(const Console& console) {
  std::string text;
  for (const Family& family : families()) {
    Table table({{}, {}});
    for (const Operation* operation : family.operations)
      table.add({short_signature(*operation), operation->summary});
    text += (text.empty() ? "" : "\n") + console.bold(family.title) + "\n" + table.text(console, 2);
  }
  return text + "\n`fuseblock ops NAME` tells everything about one of them.\n";
}

}  // namespace

int run_ops(const OpsOptions& options, const Console& console) {
  if (options.markdown) {
    if (!options.name.empty())
      throw UserError("--markdown: prints the page of all operations, so it takes no name");
    if (console.json()) throw UserError("--markdown: is not JSON; give one of the two");
    console.print(operations_page());
    return kSuccess;
  }
  if (!options.name.empty()) {
    const Operation& operation = require_operation(options.name);
    if (!console.json()) {
      console.print(detail_text(operation, console));
      return kSuccess;
    }
    for (const Family& family : families())
      for (const Operation* member : family.operations)
        if (member == &operation) console.print_json(operation_json(operation, family.title));
    return kSuccess;
  }
  if (!console.json()) {
    console.print(table_text(console));
    return kSuccess;
  }
  Json list = Json::array();
  for (const Family& family : families())
    for (const Operation* operation : family.operations)
      list.push_back(operation_json(*operation, family.title));
  console.print_json(Json{{"operations", list}});
  return kSuccess;
}

}  // namespace fuseblock::cli
