// Differentiation of a block, node by node from the outputs back: what the rules in adjoint_*.cc share.
//
// The backward block begins as a copy of the forward one, so that rules may use any forward value; what no
// gradient needs is dropped at the end. docs/adjoints.md derives the rules.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fuseblock/typed_block.h"

namespace fuseblock {

class Adjoint {
 public:
  Adjoint(const TypedBlock& forward, std::vector<std::string> wanted);

  TypedBlock run();

  // For the rules. Values of the forward block are meant unless said otherwise.
  const TypedBlock& forward() const { return forward_; }
  Builder& build() { return builder_; }
  // Whether a gradient of the value is needed at all.
  bool needs(Value value) const { return needs_[static_cast<std::size_t>(value.id)]; }
  // The value as the backward block knows it.
  Value here(Value value) const { return copies_[static_cast<std::size_t>(value.id)]; }
  // Adds a contribution (a value of the backward block, of the type of `value`) to the gradient of a value.
  void add(Value value, Value contribution);
  // The same for a contribution of the type `from`, which is summed (or averaged) over the axes where `value`
  // is shorter.
  void add_reduced(Value value, Value contribution, const TensorType& from, bool average = false);
  // A formula over values of the backward block and numbers, by their names in the text.
  using Term = std::variant<Value, double>;
  Value formula(std::string_view text, std::initializer_list<std::pair<std::string_view, Term>> terms);

 private:
  void copy_forward();
  void find_needs();
  void start_from_outputs();
  Value gradient(Value value);
  void differentiate(int node, Value d_result);
  void differentiate_pointwise(int node, Value d_result);
  Value output_gradient(const std::string& name, Value argument, std::vector<Value>& outputs);
  TypedBlock infer(const Block& block) const;
  void cast_outputs(const TypedBlock& typed, std::vector<Value>& outputs);

  const TypedBlock& forward_;
  std::vector<std::string> wanted_;
  Builder builder_;
  std::vector<Value> copies_;                      // by forward value
  std::vector<bool> needs_;                        // by forward value
  std::vector<std::vector<Value>> contributions_;  // by forward value, as values of the backward block
  std::vector<Value> d_outputs_;                   // the incoming gradients, as values of the backward block
  std::int32_t forward_values_ = 0;                // how many values of the backward block are copies
  std::vector<bool> named_;                        // by value of the backward block: has its final name
};

// The arguments of a node by name, to apply an operation with the same arguments again.
Builder::NamedArguments named_arguments(const Node& node);

void differentiate_convolution(Adjoint& adjoint, int node, Value d_y);
void differentiate_norm(Adjoint& adjoint, int node, Value d_y);
void differentiate_reduction(Adjoint& adjoint, int node, Value d_y);
void differentiate_pool(Adjoint& adjoint, int node, Value d_y);

}  // namespace fuseblock
