// A block that has met an input type: every value has a type, every parameter a shape, and the extents are
// known to fit. From here a block can be differentiated, counted and planned.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fuseblock/block.h"
#include "fuseblock/type.h"

namespace fuseblock {

// Types of extra inputs and parameters by name.
using TypeMap = std::map<std::string, TensorType, std::less<>>;

struct NamedType {
  std::string name;
  TensorType type;
};

class TypedBlock {
 public:
  // Finds the type of every value, given that of `x`. `others` may give the types of extra inputs and
  // parameters:
  //  - an extra input without one has the type of the value it is combined with;
  //  - an unlabelled one is aligned with it from the right, or lies where a convolution expects it; a parameter of one axis on c;
  //  - a parameter without one has the shape its stage asks for and the dtype of the stage's input.
  // Statistics and programs are not rounded between stages, so the dtype of an inner value only says what its
  // consumer would see. Throws UserError with the stage, the argument, what was expected and what came.
  static TypedBlock infer(const Block& block, const TensorType& x, const TypeMap& others = {});

  const Block& block() const;
  const TensorType& type(Value value) const;
  // What a caller must supply: x, extra inputs, parameters, in the order of Block::arguments().
  std::vector<NamedType> arguments() const;
  // The parameters among them.
  std::vector<NamedType> parameters() const;
  std::vector<NamedType> outputs() const;

  // Arithmetic operations of a node: two a multiply-add, one a primitive or an addition.
  double operation_count(int node) const;
  // Bytes a node reads and writes when it runs by itself.
  double byte_count(int node) const;
  // Bytes of the arguments and the outputs: what any plan must move.
  double border_bytes() const;

  // The arguments that have a gradient: all but running statistics.
  std::vector<std::string> differentiable() const;
  // The block that computes gradients. Its arguments are those of this block that it needs and, for each
  // output `o`, the gradient `d_o` with the output's type; its outputs are `d_` + name for each wanted
  // argument, in that order. Nothing wanted means everything differentiable. Throws UserError for a name that
  // is no argument or has no gradient.
  TypedBlock backward(std::vector<std::string> wanted = {}) const;

 private:
  struct Body;
  explicit TypedBlock(std::shared_ptr<const Body> body) : body_(std::move(body)) {}
  std::shared_ptr<const Body> body_;
};

}  // namespace fuseblock
