// Type inference, node by node: what the rules in typing_*.cc share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "block/geometry.h"
#include "fuseblock/typed_block.h"

namespace fuseblock {

struct TypedBlock::Body {
  Block block;
  std::vector<TensorType> types;  // by value
};

class Typing {
 public:
  Typing(const Block& block, const TensorType& x, const TypeMap& others);

  std::vector<TensorType> run();

  const Block& block() const { return block_; }
  // The type of operand `index`. One that is still open gets the type of `anchor`, or is aligned with it from
  // the right.
  const TensorType& operand(int node, int index, const TensorType& anchor);
  const TensorType& operand(int node, int index) { return operand(node, index, *types_[0]); }
  // The same for an operand that has to lie on n, c and some spatial axes: one that is open with as many plain
  // extents lies on them.
  const TensorType& operand_with_positions(int node, int index, int spatial_rank);
  // The operand must have the extents of `wanted`; one that is open gets its type.
  const TensorType& expect(int node, int index, const TensorType& wanted);

 private:
  void infer(int node);
  TensorType infer_pointwise(int node);
  TensorType align(int node, const std::string& name, TensorType type, const TensorType& anchor,
                   bool is_parameter);
  void check_given_names() const;

  const Block& block_;
  const TypeMap& others_;
  std::vector<std::optional<TensorType>> types_;
};

// Rules: the type of a node's result. They check everything about the node and fail through the block.
TensorType infer_convolution(Typing& typing, int node);
TensorType infer_norm(Typing& typing, int node);
TensorType infer_reduction(Typing& typing, int node);
TensorType infer_pool(Typing& typing, int node);
TensorType infer_structural(Typing& typing, int node);

// `type` with other extents on some axes and without others; keeps the layout where it still makes sense.
TensorType with_extents(const TensorType& type, AxisSet axes,
                        const std::array<std::int64_t, kAxisCount>& extents);
// An argument with one number for each spatial axis, in the places d, h, w; `otherwise` on the axes the value
// does not have, and everywhere where the argument is none.
Spatial spatial_argument(const Block& block, int node, std::string_view name, int rank,
                         const Spatial& otherwise);
// A per-channel parameter.
TensorType channel_type(DType dtype, std::int64_t channels);

}  // namespace fuseblock
