// The page docs/operations.md, printed by `fuseblock ops --markdown`. Everything in it but the few sentences
// here comes from the catalogue.
#include "catalogue.h"
#include "commands.h"
#include "table.h"

namespace fuseblock::cli {
namespace {

constexpr const char* kIntroduction = R"(# Operations

This page is printed by `fuseblock ops --markdown`; a test compares the two. `fuseblock ops NAME` shows one operation on
the command line, `docs/notation.md` how operations are put together.

An operation's first operand is what a pipe supplies. Operands that are parameters have the names PyTorch gives them,
`stage.weight`. Arguments may be given in the order of the signature or by name; the column "also" has PyTorch's name where
it differs, which is accepted too. Axes are written `n`, `c`, `d`, `h`, `w`.
)";

constexpr const char* kPrimitives = R"(
## Primitives

The formula of a pointwise operation is an expression over these. Comparisons are 1 where they hold and 0 elsewhere, also
with NaN; `select(c, a, b)` is `a` where `c` is not 0; `minimum` and `maximum` are NaN if either side is; `log1pexp(a)` is
log(1 + exp(a)), finite wherever `a` is.

)";

// A `|` would end the cell.
std::string cell(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

std::string code(const std::string& text) { return text.empty() ? "" : "`" + text + "`"; }

std::string row(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& each : cells) text += " " + cell(each) + (each.empty() ? "|" : " |");
  return text + "\n";
}

std::string header(const std::vector<std::string>& titles) {
  std::string text = row(titles) + "|";
  for (std::size_t i = 0; i < titles.size(); ++i) text += "---|";
  return text + "\n";
}

std::string family_table(const Family& family) {
  std::string text =
      "\n## " + std::string(family.title) + "\n\n" + header({"operation", "what it gives", "PyTorch"});
  for (const Operation* operation : family.operations)
    text += row({"[`" + operation->name + "`](#" + operation->name + ")", operation->summary,
                 code(operation->torch)});
  return text;
}

std::string argument_table(const Operation& operation) {
  std::string text = "\n" + header({"argument", "kind", "default", "range", "also", "meaning"});
  for (const ArgumentSpec& argument : operation.arguments)
    text += row({code(argument.name), kind_text(argument),
                 argument.required ? "required" : code(default_text(argument)), range_text(argument),
                 code(argument.alias), argument.help});
  return text;
}

std::string formula_text(const Operation& operation) {
  std::string text = "\n- formula: `" + operation.formula_text + "`\n";
  for (const Derivative& derivative : derivatives(operation))
    text += "- derivative by `" + derivative.operand + "`: `" + derivative.text + "`\n";
  std::vector<std::string> kinks;
  for (const Slope& kink : slopes(operation))
    kinks.push_back(number_text(kink.slope) + " at `" + operation.operands[0].name + " = " +
                    number_text(kink.at) + "`");
  if (!kinks.empty()) text += "- slope at the kinks: " + join(kinks, ", ") + "\n";
  return text;
}

std::string section(const Operation& operation) {
  std::string text = "\n### " + operation.name + "\n\n`" + signature(operation) + "`: " + operation.summary;
  if (!operation.torch.empty()) text += " In PyTorch: `" + operation.torch + "`.";
  text += "\n\n" + header({"operand", "is a", "meaning"});
  for (const OperandSpec& operand : operation.operands)
    text += row({code(operand.name), role_text(operand), operand.help});
  if (!operation.arguments.empty()) text += argument_table(operation);
  if (operation.code == OpCode::kPointwise) text += formula_text(operation);
  return text;
}

std::string primitive_table() {
  std::string text = kPrimitives + header({"primitive", "derivatives"});
  for (const PrimitiveInfo& primitive : primitives()) {
    const PrimitiveText written = primitive_text(primitive);
    std::vector<std::string> parts;
    for (const Derivative& derivative : written.derivatives)
      parts.push_back("by `" + derivative.operand + "`: `" + derivative.text + "`");
    text += row({code(written.formula), join(parts, ", ")});
  }
  return text;
}

}  // namespace

std::string operations_page() {
  std::string text = kIntroduction;
  for (const Family& family : families()) {
    text += family_table(family);
    for (const Operation* operation : family.operations) text += section(*operation);
  }
  return text + primitive_table();
}

}  // namespace fuseblock::cli
