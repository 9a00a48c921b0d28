#include "plan/unfused.h"

#include <algorithm>
#include <map>
#include <optional>

namespace fuseblock {
namespace {

constexpr std::size_t kAlignment = 64;

// A node as a block by itself, and the values of the whole block that are its arguments, in order.
struct SingleNode {
  TypedBlock block;
  std::vector<Value> arguments;
};

// Names and types stay; what the operands were made by is left out, so that they become inputs. `x` stays an argument
// even where the node does not read it.
SingleNode single_node(const TypedBlock& whole, const Node& node) {
  const Block& graph = whole.block();
  Builder build;
  TypeMap types;
  auto input = [&](Value value) {
    const std::string& name = graph.value(value).name;
    if (value.id != 0) types.insert_or_assign(name, whole.type(value));
    return build.value(name);
  };

  Value result;
  if (node.operation->code == OpCode::kFormula) {
    std::vector<Value> operands;
    for (const Operand& operand : node.operands) operands.push_back(input(operand.value()));
    result = build.apply(node.formula, operands);
  } else {
    const auto values = static_cast<std::size_t>(node.operation->value_operand_count());
    std::vector<Operand> operands;
    for (std::size_t i = 0; i < values; ++i)
      operands.push_back(node.operands[i].is_scalar() ? node.operands[i] : input(node.operands[i].value()));
    Builder::NamedOperands parameters;
    std::size_t next = values;
    for (std::size_t i = values; i < node.operation->operands.size(); ++i) {
      const OperandSpec& spec = node.operation->operands[i];
      const bool present = std::all_of(spec.present_if.begin(), spec.present_if.end(),
                                       [&](const std::string& flag) { return node.flag(flag); });
      if (present) parameters.emplace_back(spec.name, input(node.operands[next++].value()));
    }
    Builder::NamedArguments arguments;
    for (std::size_t i = 0; i < node.arguments.size(); ++i)
      if (!std::holds_alternative<std::monostate>(node.arguments[i]))
        arguments.emplace_back(node.operation->arguments[i].name, node.arguments[i]);
    result = build.apply(node.operation->name, operands, arguments, {}, parameters);
  }
  SingleNode single = {TypedBlock::infer(build.finish({result}), whole.type(build.x()), types), {}};
  for (const NamedType& argument : single.block.arguments())
    single.arguments.push_back(graph.find(argument.name).value());
  if (single.block.outputs().front().type != whole.type(node.result))
    throw InternalError("unfused: " + node.operation->name + " by itself gives " +
                        to_string(single.block.outputs().front().type) + ", in its block " +
                        to_string(whole.type(node.result)));
  return single;
}

std::size_t rounded_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Places for memory that is taken and given back: the first gap that is large enough.
class Arena {
 public:
  std::size_t take(std::size_t bytes) {
    std::size_t begin = 0;
    for (const auto& [place, size] : taken_) {
      if (place >= begin + bytes) break;
      begin = place + size;
    }
    if (bytes > 0) taken_.emplace(begin, bytes);
    peak_ = std::max(peak_, begin + bytes);
    return begin;
  }
  void give_back(std::size_t begin) { taken_.erase(begin); }
  std::size_t peak() const { return peak_; }

 private:
  std::map<std::size_t, std::size_t> taken_;  // begin -> bytes
  std::size_t peak_ = 0;
};

class UnfusedExecutable : public Executable {
 public:
  UnfusedExecutable(const Engine& engine, const TypedBlock& block, const PlanOptions& options)
      : types_(block.block().values().size()), sources_(block.block().values().size()) {
    const Block& graph = block.block();
    for (std::size_t i = 0; i < types_.size(); ++i)
      types_[i] = block.type(Value{static_cast<std::int32_t>(i)});
    int number = 0;
    for (Value value : graph.arguments()) source(value) = {Place::kInput, static_cast<std::size_t>(number++)};
    number = 0;
    for (Value value : graph.outputs()) source(value) = {Place::kOutput, static_cast<std::size_t>(number++)};
    std::size_t inner_bytes = 0;
    for (const Node& node : graph.nodes()) {
      const SingleNode single = single_node(block, node);
      steps_.push_back({engine.prepare(single.block, options), single.arguments, node.result});
      inner_bytes = std::max(inner_bytes, steps_.back().executable->workspace_bytes());
    }
    place_intermediates();
    inner_bytes_ = inner_bytes;
  }

  std::size_t workspace_bytes() const override { return intermediate_bytes_ + inner_bytes_; }

  void run(const Arguments& arguments, std::span<std::byte> workspace) const override {
    const std::span<std::byte> inner = workspace.subspan(intermediate_bytes_, inner_bytes_);
    for (const Step& step : steps_) {
      Arguments own;
      own.stream = arguments.stream;
      for (Value value : step.arguments) own.inputs.push_back(input_view(value, arguments, workspace));
      own.outputs.push_back(output_view(step.result, arguments, workspace));
      step.executable->run(own, inner.first(step.executable->workspace_bytes()));
    }
  }

 private:
  enum class Place : std::uint8_t { kWorkspace, kInput, kOutput };
  // Where a value is: the number of an argument or an output, or an offset into the workspace.
  struct Source {
    Place place = Place::kWorkspace;
    std::size_t number = 0;
  };
  struct Step {
    std::unique_ptr<Executable> executable;
    std::vector<Value> arguments;
    Value result;
  };

  Source& source(Value value) { return sources_[static_cast<std::size_t>(value.id)]; }
  const Source& source(Value value) const { return sources_[static_cast<std::size_t>(value.id)]; }

  // A result has its place from the step that makes it to the last one that reads it.
  void place_intermediates() {
    std::vector<std::size_t> last_use(types_.size(), 0);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      last_use[static_cast<std::size_t>(steps_[i].result.id)] = i;
      for (Value value : steps_[i].arguments) last_use[static_cast<std::size_t>(value.id)] = i;
    }
    Arena arena;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Value result = steps_[i].result;
      if (source(result).place == Place::kWorkspace)
        source(result).number = arena.take(
            rounded_up(static_cast<std::size_t>(types_[static_cast<std::size_t>(result.id)].byte_count())));
      for (std::size_t value = 0; value < types_.size(); ++value)
        if (sources_[value].place == Place::kWorkspace && last_use[value] == i && is_made(value, i))
          arena.give_back(sources_[value].number);
    }
    intermediate_bytes_ = arena.peak();
  }

  // Whether a step up to `step` makes the value.
  bool is_made(std::size_t value, std::size_t step) const {
    return std::any_of(steps_.begin(), steps_.begin() + static_cast<std::ptrdiff_t>(step) + 1,
                       [&](const Step& s) { return static_cast<std::size_t>(s.result.id) == value; });
  }

  TensorView output_view(Value value, const Arguments& arguments, std::span<std::byte> workspace) const {
    const Source& from = source(value);
    if (from.place == Place::kOutput) return arguments.outputs[from.number];
    const TensorType& type = types_[static_cast<std::size_t>(value.id)];
    return {workspace.data() + from.number, type.dtype, type.extents, type.strides()};
  }

  ConstTensorView input_view(Value value, const Arguments& arguments, std::span<std::byte> workspace) const {
    const Source& from = source(value);
    return from.place == Place::kInput ? arguments.inputs[from.number]
                                       : ConstTensorView(output_view(value, arguments, workspace));
  }

  std::vector<TensorType> types_;  // by value
  std::vector<Source> sources_;    // by value
  std::vector<Step> steps_;
  std::size_t intermediate_bytes_ = 0;
  std::size_t inner_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Executable> prepare_unfused(const Engine& engine, const TypedBlock& block,
                                            const PlanOptions& options) {
  return std::make_unique<UnfusedExecutable>(engine, block, options);
}

}  // namespace fuseblock
