// The lowered block: norms, softmax and the other compound operations taken apart into pointwise formulas,
// reductions and windows, equal parts made once. This is what plans are cut from; docs/rewrites.md proves the
// rules that shape it.
//
// Extents are canonical (n c d h w, 1 for an axis a value does not have); values broadcast where an extent is
// 1.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "block/geometry.h"
#include "fuseblock/typed_block.h"

namespace fuseblock {

using Extents = std::array<std::int64_t, kAxisCount>;

enum class PartKind : std::uint8_t {
  kArgument,   // supplied by the caller
  kPointwise,  // a formula over other parts
  kConv,       // a convolution or its gradient by the input: operands input, weight[, bias]
  kContract,   // the gradient of a convolution by its weight: operands d_y, x
  kHost,  // a convolution or a gradient of one that the embedder computes; operands as of kConv and kContract
  kPool,  // a pool or its adjoint
  kReduce,     // a statistic of a part over axes; may have two components
  kMerge,      // a coarser statistic out of a finer one: over n, c or groups of channels
  kComponent,  // one component of a statistic, as a plain value
  kRegroup,  // a statistic with another number of channels: one for each group, or the group's at each channel
};

enum class Statistic : std::uint8_t {
  kSum,      // the sum
  kMax,      // the largest, NaN if there is one
  kMin,      // the smallest, NaN if there is one
  kMoments,  // mean, and the sum of squared deviations from it
  kExpSum,   // the largest, and the sum of exp(x - largest)
};

constexpr int component_count(Statistic statistic) {
  return statistic == Statistic::kMoments || statistic == Statistic::kExpSum ? 2 : 1;
}

struct Part {
  PartKind kind = PartKind::kArgument;
  Extents extents = {1, 1, 1, 1, 1};
  std::vector<int> operands;
  Formula formula;          // kPointwise
  Statistic statistic{};    // kReduce, kMerge
  AxisSet axes;             // kReduce, kMerge: the axes that are reduced
  std::int64_t groups = 1;  // kMerge over c: one result for each group of channels, standing at all of them
  std::int64_t count = 1;   // kReduce, kMerge: how many elements of the original value one result stands for
  int component = 0;        // kComponent
  Value value;              // kArgument: which of the block's, if it is one
  int saved = -1;           // kArgument: which of the values that forward saved, if it is one
  bool large = false;       // kArgument: visited by sweeps whatever its extents: x and what has its extents
  int node = -1;            // kConv, kContract, kPool: the block's node, whose geometry counts
  std::string name;         // the block's name for it, where it has one
  std::string role;         // what it is to a stage, `group_norm.rstd`, where it is the stage's own

  double elements() const;
};

struct Graph {
  std::vector<Part> parts;   // each comes after its operands
  std::vector<int> outputs;  // in the order of the block's outputs

  const Part& operator[](int part) const { return parts[static_cast<std::size_t>(part)]; }
};

// Takes a block apart. Parts that no output needs are left out.
Graph lower(const TypedBlock& block);

// The graph of what the outputs, numbers of `parts`, need.
Graph needed_parts(const std::vector<Part>& parts, const std::vector<int>& outputs);

// By part: whether it is small enough to be worked out between sweeps, in double precision: statistics, and formulas
// of them and of arguments that do not vary over positions.
std::vector<bool> find_statistics(const Graph& graph);

// Whether a value of these extents varies over positions.
inline bool over_positions(const Extents& extents) {
  return extents[2] != 1 || extents[3] != 1 || extents[4] != 1;
}

// Whether a part varies along an axis.
inline bool varies(const Part& part, Axis axis) {
  return part.extents[static_cast<std::size_t>(index(axis))] != 1;
}

// Whether a statistic of a value of these extents is over none or some of its positions and not all.
bool leaves_positions(const Part& statistic, const Extents& extents);

}  // namespace fuseblock
