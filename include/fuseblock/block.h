// A block: what to compute. A small graph of operations on named values with one main input `x`, parameters,
// extra inputs and outputs. It says nothing about extents or about how it is run, and it never changes once
// made.
//
//   auto block = fuseblock::Block::parse("conv3d(24, k=3) | group_norm(8) | mean(c,d,h,w)");
//   auto two   = fuseblock::Block::parse("y = conv3d(x, 24, k=3); z = relu(y); return z, y");
//
// docs/notation.md describes the notation. `parse(to_string(b)) == b` holds for every block.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuseblock/error.h"
#include "fuseblock/operations.h"

namespace fuseblock {

// A value of a block or of a builder, by number.
struct Value {
  std::int32_t id = -1;
  bool operator==(const Value&) const = default;
};

// What an operation is applied to: a value, or a number where the operand allows one.
class Operand {
 public:
  Operand(Value value) : value_(value) {}      // NOLINT(google-explicit-constructor)
  Operand(double scalar) : scalar_(scalar) {}  // NOLINT(google-explicit-constructor)

  bool is_scalar() const { return value_.id < 0; }
  Value value() const { return value_; }
  double scalar() const { return scalar_; }
  // Numbers are compared bit by bit.
  bool operator==(const Operand& other) const;

 private:
  Value value_;
  double scalar_ = 0;
};

enum class ValueKind : std::uint8_t {
  kInput,      // `x` and the extra inputs
  kParameter,  // `stage.weight`
  kResult,     // made by a node
};

struct ValueInfo {
  std::string name;
  ValueKind kind = ValueKind::kResult;
  // The node that makes a result or owns a parameter; -1 for inputs and for parameters whose stage is not in
  // the block.
  int node = -1;
};

// One operation applied to values.
struct Node {
  const Operation* operation = nullptr;
  // In the order of the operation's operands, without those whose flags are off.
  std::vector<Operand> operands;
  // One for each argument of the operation, defaults filled in.
  std::vector<ArgumentValue> arguments;
  // For OpCode::kFormula: the formula over the operands.
  Formula formula;
  Value result;

  // Arguments by name; the name and the type must be the operation's own.
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  bool flag(std::string_view name) const;
  const std::string& keyword(std::string_view name) const;
  AxisSet axes(std::string_view name) const;
  const ArgumentValue& argument(std::string_view name) const;
  // The value of operand `index`, which must not be a scalar.
  Value operand(int index) const;

  bool operator==(const Node&) const = default;
};

class Block {
 public:
  // Reads either form of the notation. Throws UserError with line, column and excerpt.
  static Block parse(std::string_view text);
  // Reads what to_json writes; arguments with defaults may be left out. Throws UserError with a position or
  // pointer.
  static Block from_json(std::string_view json);

  // Pipes where they suffice, statements elsewhere.
  std::string to_string() const;
  // One statement a value.
  std::string to_statements() const;
  // {"statements": [{"name", "op", "operands", "args"} or {"name", "formula"}], "outputs": [...], "inputs", "parameters"}.
  std::string to_json() const;
  // One stage as the notation writes it, without its operands that a pipe supplies: `group_norm(8)`.
  std::string stage_text(int node) const;

  // Value 0 is `x`; the others stand in the order of their first use.
  std::span<const ValueInfo> values() const;
  const ValueInfo& value(Value value) const;
  // Each node comes after those whose results it uses.
  std::span<const Node> nodes() const;
  std::span<const Value> outputs() const;
  // `x`, then extra inputs, then parameters: what a caller must supply, in this order.
  std::vector<Value> arguments() const;
  std::optional<Value> find(std::string_view name) const;
  // The formula of a pointwise node over its operands that are values, with numbers and arguments filled in.
  Formula formula(int node) const;
  // False for values that never have a gradient (running statistics).
  bool differentiable(Value value) const;

  // Throws UserError with the stage in front of the message and, for a block read from text, the position of
  // the stage.
  [[noreturn]] void fail(int node, const std::string& message) const;
  [[noreturn]] void fail_unsupported(int node, const std::string& message) const;

  bool operator==(const Block& other) const;

 private:
  friend class Builder;
  struct Body;
  explicit Block(std::shared_ptr<const Body> body) : body_(std::move(body)) {}
  std::shared_ptr<const Body> body_;
};

// Makes a block in C++:
//
//   Builder build;
//   Value y = build.apply("conv2d", {build.x()}, {{"channels", 64}, {"k", 3}}, "y");
//   Value z = build.apply("group_norm", {y}, {{"groups", 16}});
//   Block block = build.finish({build.apply("add", {z, y})});
class Builder {
 public:
  using NamedArguments = std::vector<std::pair<std::string, ArgumentValue>>;
  using NamedOperands = std::vector<std::pair<std::string, Value>>;

  Builder();
  ~Builder();
  Builder(Builder&&) noexcept;
  Builder& operator=(Builder&&) noexcept;

  Value x() const { return Value{0}; }
  // The value of that name. A name that was never introduced becomes an extra input, or with a dot in it
  // (`stage.weight`) a parameter whose stage is not in the block.
  Value value(std::string_view name);
  // Applies an operation. `operands` are its value operands in order; parameters are made unless given in
  // `parameters`. An empty name is filled in: the operation's, with a number from the second on. Throws
  // UserError that names the argument.
  Value apply(std::string_view operation, const std::vector<Operand>& operands,
              const NamedArguments& arguments = {}, std::string_view name = {},
              const NamedOperands& parameters = {});
  // A pointwise formula over values: inputs of the formula are numbered as `operands` are.
  Value apply(const Formula& formula, const std::vector<Value>& operands, std::string_view name = {});
  // A pointwise formula written as text over names, which resolve as in `value`.
  Value formula(std::string_view text, std::string_view name = {});
  // `name` if it is free, else the name with the smallest number from 2 that is.
  std::string free_name(std::string_view name) const;
  const std::string& name(Value value) const;
  // Whether the value is made by an operation rather than supplied by the caller.
  bool is_result(Value value) const;
  // Values so far; they are numbered from 0.
  std::int32_t value_count() const;
  // Gives a result another name; the parameters of its stage keep theirs.
  void rename(Value value, std::string_view name);
  // The block of the operations that the outputs need. Throws UserError where outputs are missing, named
  // twice or no results.
  Block finish(const std::vector<Value>& outputs);

 private:
  friend class NotationReader;
  friend class JsonReader;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fuseblock
