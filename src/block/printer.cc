// Writes blocks in the notation. Whatever is written reads back as the same block: arguments that have their
// default are left out, and so are names that the reader would give by itself.
#include <unordered_map>
#include <unordered_set>

#include "block/formula_text.h"
#include "block/text.h"
#include "fuseblock/block.h"

namespace fuseblock {
namespace {

constexpr std::size_t kLongestStageInMessage = 80;

class Printer {
 public:
  explicit Printer(const Block& block) : block_(block) {}

  // Whether each stage takes the one before it, and the last is the only output.
  bool is_pipe() const {
    const auto nodes = block_.nodes();
    if (nodes.empty() || block_.outputs().size() != 1 || block_.outputs()[0] != nodes.back().result)
      return false;
    Value previous{0};
    for (const Node& node : nodes) {
      if (node.operation->code == OpCode::kFormula) return false;
      if (node.operands[0].is_scalar() || node.operands[0].value() != previous) return false;
      previous = node.result;
    }
    return true;
  }

  std::string pipe() {
    std::unordered_set<std::string> taken = {"x"};
    std::unordered_map<std::string, int> next_number;
    std::string text;
    for (std::size_t i = 0; i < block_.nodes().size(); ++i) {
      const Node& node = block_.nodes()[i];
      for (const Operand& operand : node.operands)
        if (!operand.is_scalar()) taken.insert(name(operand.value()));
      text += (i > 0 ? " | " : "") + stage(node);
      std::string automatic = node.operation->name;
      int& number = next_number.try_emplace(automatic, 2).first->second;
      if (taken.contains(automatic)) {
        while (taken.contains(automatic + std::to_string(number))) ++number;
        automatic += std::to_string(number);
      }
      if (automatic != name(node.result)) text += " as " + name(node.result);
      taken.insert(name(node.result));
    }
    return text;
  }

  std::string statements() const {
    std::string text;
    for (const Node& node : block_.nodes()) text += name(node.result) + " = " + right_side(node) + "; ";
    std::vector<std::string> outputs;
    for (Value output : block_.outputs()) outputs.push_back(name(output));
    return text + "return " + join(outputs, ", ");
  }

  // The stage without its main operand: `conv2d(64, k=3)`.
  std::string stage(const Node& node) const {
    if (node.operation->code == OpCode::kFormula) return name(node.result) + " = " + formula(node);
    const std::string inner = join(items(node, 1), ", ");
    return node.operation->name + (inner.empty() ? "" : "(" + inner + ")");
  }

 private:
  std::string right_side(const Node& node) const {
    if (node.operation->code == OpCode::kFormula) {
      // A formula that is one call of an operation would read as that operation.
      const Primitive root = node.formula.steps().back().primitive;
      const bool reads_as_call = root != Primitive::kInput && root != Primitive::kConstant &&
                                 find_operation(info(root).name) != nullptr;
      return reads_as_call ? "(" + formula(node) + ")" : formula(node);
    }
    return node.operation->name + "(" + join(items(node, 0), ", ") + ")";
  }

  std::string formula(const Node& node) const {
    std::vector<std::string> names;
    for (const Operand& operand : node.operands) names.push_back(name(operand.value()));
    return node.formula.to_string(names);
  }

  // Value operands from `first` on, arguments that differ from their defaults, parameters that are not the
  // stage's own.
  std::vector<std::string> items(const Node& node, std::size_t first) const {
    std::vector<std::string> result;
    const Operation& operation = *node.operation;
    const auto value_operands = static_cast<std::size_t>(operation.value_operand_count());
    for (std::size_t i = first; i < value_operands; ++i)
      result.push_back(node.operands[i].is_scalar() ? number_text(node.operands[i].scalar())
                                                    : name(node.operands[i].value()));
    bool by_position = true;
    for (std::size_t i = 0; i < operation.arguments.size(); ++i) {
      const ArgumentSpec& spec = operation.arguments[i];
      const ArgumentValue& value = node.arguments[i];
      if (spec.kind == ArgumentKind::kAxes) {
        if (const std::string axes = to_string(value); !axes.empty()) result.push_back(axes);
        continue;
      }
      if (!spec.required && value == spec.default_value) {
        by_position = false;
        continue;
      }
      // The first argument stands by its place where it is required; all others are easier to read with their
      // names.
      if (spec.kind == ArgumentKind::kFlag && std::get<bool>(value))
        result.push_back(spec.name);
      else if (spec.required && by_position)
        result.push_back(to_string(value));
      else
        result.push_back(spec.name + "=" + to_string(value));
      by_position = false;
    }
    add_given_parameters(node, value_operands, result);
    return result;
  }

  void add_given_parameters(const Node& node, std::size_t next, std::vector<std::string>& result) const {
    for (const OperandSpec& spec : node.operation->operands) {
      if (spec.role != OperandRole::kParameter && spec.role != OperandRole::kBuffer) continue;
      bool present = true;
      for (const std::string& flag : spec.present_if) present = present && node.flag(flag);
      if (!present) continue;
      const Value value = node.operands[next++].value();
      const bool own = block_.value(value).kind == ValueKind::kParameter &&
                       name(value) == name(node.result) + "." + spec.name;
      if (!own) result.push_back(spec.name + "=" + name(value));
    }
  }

  const std::string& name(Value value) const { return block_.value(value).name; }

  const Block& block_;
};

}  // namespace

std::string Block::to_string() const {
  Printer printer(*this);
  return printer.is_pipe() ? printer.pipe() : printer.statements();
}

std::string Block::to_statements() const { return Printer(*this).statements(); }

std::string Block::stage_text(int node) const {
  const std::string text = Printer(*this).stage(nodes()[static_cast<std::size_t>(node)]);
  return text.size() <= kLongestStageInMessage ? text : text.substr(0, kLongestStageInMessage) + "...";
}

}  // namespace fuseblock
