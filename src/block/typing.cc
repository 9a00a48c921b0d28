#include "block/typing.h"

#include "block/extents.h"
#include "block/text.h"

namespace fuseblock {
namespace {

TensorType labelled_input(const TensorType& x) {
  TensorType type = x;
  if (type.rank() < 2) throw UserError("x: an input has at least the axes n,c; got " + to_string(x));
  if (!type.labelled()) type.axes = default_axes(type.rank());
  if (!type.axes.contains_all({Axis::kN, Axis::kC}))
    throw UserError("x: an input has at least the axes n,c; got " + to_string(x));
  check_extents("x", type);
  return type;
}

}  // namespace

TensorType with_extents(const TensorType& type, AxisSet axes,
                        const std::array<std::int64_t, kAxisCount>& extents) {
  TensorType result;
  result.dtype = type.dtype;
  result.axes = axes;
  for (Axis axis : axes.list()) result.extents.push_back(extents[static_cast<std::size_t>(index(axis))]);
  const bool has_channels_and_space = axes.contains_all({Axis::kN, Axis::kC}) && axes.size() >= 3;
  result.layout = has_channels_and_space ? type.layout : Layout::kContiguous;
  return result;
}

Spatial spatial_argument(const Block& block, int node, std::string_view name, int rank,
                         const Spatial& otherwise) {
  const ArgumentValue& value = block.nodes()[static_cast<std::size_t>(node)].argument(name);
  const auto* one = std::get_if<std::int64_t>(&value);
  const auto* list = std::get_if<std::vector<std::int64_t>>(&value);
  if (list != nullptr && static_cast<int>(list->size()) != rank)
    block.fail(node, std::string(name) + "=" + to_string(value) + ": expected " + std::to_string(rank) +
                         (rank == 1 ? " number" : " numbers") + ", got " + std::to_string(list->size()));
  Spatial result = otherwise;
  for (std::size_t i = 0; i < static_cast<std::size_t>(rank); ++i) {
    const std::size_t at = static_cast<std::size_t>(3 - rank) + i;
    if (one != nullptr) result[at] = *one;
    if (list != nullptr) result[at] = (*list)[i];
  }
  return result;
}

TensorType channel_type(DType dtype, std::int64_t channels) { return TensorType::make(dtype, {channels}); }

Typing::Typing(const Block& block, const TensorType& x, const TypeMap& others)
    : block_(block), others_(others), types_(block.values().size()) {
  types_[0] = labelled_input(x);
}

std::vector<TensorType> Typing::run() {
  check_given_names();
  for (int node = 0; node < static_cast<int>(block_.nodes().size()); ++node) infer(node);
  std::vector<TensorType> result;
  for (std::size_t i = 0; i < types_.size(); ++i) {
    if (!types_[i]) throw InternalError("no type for `" + block_.values()[i].name + "`");
    result.push_back(std::move(*types_[i]));
  }
  return result;
}

void Typing::check_given_names() const {
  for (const auto& [name, type] : others_) {
    const auto value = block_.find(name);
    if (value && value->id > 0 && block_.value(*value).kind != ValueKind::kResult) {
      check_extents(name, type);
      continue;
    }
    std::vector<std::string> names;
    for (Value argument : block_.arguments())
      if (argument.id > 0) names.push_back(block_.value(argument).name);
    throw UserError("a type is given for " + in_quotes(name) + ", but the block has " +
                    (names.empty() ? "no extra input or parameter"
                                   : "the extra inputs and parameters " + join(names, ", ")));
  }
}

void Typing::infer(int node) {
  const Node& which = block_.nodes()[static_cast<std::size_t>(node)];
  TensorType result;
  switch (which.operation->code) {
    case OpCode::kPointwise:
    case OpCode::kFormula: result = infer_pointwise(node); break;
    case OpCode::kConvolution:
    case OpCode::kConvolutionGradInput:
    case OpCode::kConvolutionGradWeight: result = infer_convolution(*this, node); break;
    case OpCode::kGroupNorm:
    case OpCode::kInstanceNorm:
    case OpCode::kLayerNorm:
    case OpCode::kRmsNorm:
    case OpCode::kBatchNorm:
    case OpCode::kL2Normalize:
    case OpCode::kSoftmax: result = infer_norm(*this, node); break;
    case OpCode::kMean:
    case OpCode::kSum:
    case OpCode::kMax:
    case OpCode::kMin:
    case OpCode::kLogSumExp:
    case OpCode::kRstd: result = infer_reduction(*this, node); break;
    case OpCode::kMaxPool:
    case OpCode::kMaxPoolTake:
    case OpCode::kMaxPoolPut:
    case OpCode::kAvgPool:
    case OpCode::kAvgPoolGrad: result = infer_pool(*this, node); break;
    case OpCode::kCast:
    case OpCode::kZeros:
    case OpCode::kExpand: result = infer_structural(*this, node); break;
  }
  if (!countable(result)) block_.fail(node, "the result " + to_string(result) + " has more than 2^63 bytes");
  types_[static_cast<std::size_t>(which.result.id)] = std::move(result);
}

const TensorType& Typing::operand(int node, int index, const TensorType& anchor) {
  const Value value = block_.nodes()[static_cast<std::size_t>(node)].operand(index);
  auto& type = types_[static_cast<std::size_t>(value.id)];
  if (type) return *type;
  const ValueInfo& info = block_.value(value);
  const auto given = others_.find(info.name);
  type = given == others_.end()
             ? anchor
             : align(node, info.name, given->second, anchor, info.kind == ValueKind::kParameter);
  return *type;
}

const TensorType& Typing::operand_with_positions(int node, int index, int spatial_rank) {
  const Value value = block_.nodes()[static_cast<std::size_t>(node)].operand(index);
  auto& type = types_[static_cast<std::size_t>(value.id)];
  const auto given = others_.find(block_.value(value).name);
  const int rank = spatial_rank + 2;
  if (!type && given != others_.end() && !given->second.labelled() && given->second.rank() == rank) {
    type = given->second;
    type->axes = default_axes(rank);
  }
  return operand(node, index);
}

TensorType Typing::align(int node, const std::string& name, TensorType type, const TensorType& anchor,
                         bool is_parameter) {
  if (type.labelled()) return type;
  const std::vector<Axis> axes = anchor.axes.list();
  const auto rank = static_cast<std::size_t>(type.rank());
  if (is_parameter && rank == 1) {
    type.axes = {Axis::kC};
  } else if (rank <= axes.size()) {
    for (std::size_t i = axes.size() - rank; i < axes.size(); ++i) type.axes.insert(axes[i]);
  } else {
    type.axes = default_axes(type.rank());
    if (!type.axes.contains_all(anchor.axes))
      block_.fail(node, name + " has the type " + to_string(type) + ", which does not align with " +
                            to_string(anchor));
  }
  return type;
}

const TensorType& Typing::expect(int node, int index, const TensorType& wanted) {
  const Value value = block_.nodes()[static_cast<std::size_t>(node)].operand(index);
  auto& type = types_[static_cast<std::size_t>(value.id)];
  const ValueInfo& info = block_.value(value);
  if (!type) {
    const auto given = others_.find(info.name);
    if (!countable(wanted))
      block_.fail(node, info.name + " would be " + to_string(wanted) + ", more than 2^63 bytes");
    type = wanted;
    if (given == others_.end()) return *type;
    type->dtype = given->second.dtype;
    type->layout = given->second.layout;
    type->extents = given->second.extents;
    if (given->second.labelled() && given->second.rank() > 0) type->axes = given->second.axes;
  }
  if (type->extents != wanted.extents)
    block_.fail(node, info.name + ": expected " + extents_text(wanted) + ", got " + extents_text(*type));
  if (type->axes != wanted.axes)
    block_.fail(
        node, info.name + ": expected the axes " + to_string(wanted.axes) + ", got " + to_string(type->axes));
  return *type;
}

TensorType Typing::infer_pointwise(int node) {
  const Node& which = block_.nodes()[static_cast<std::size_t>(node)];
  // The first operand whose type is known anchors the others.
  const TensorType* anchor = nullptr;
  for (const Operand& operand : which.operands) {
    if (operand.is_scalar() || anchor != nullptr) continue;
    const auto& type = types_[static_cast<std::size_t>(operand.value().id)];
    if (type) anchor = &*type;
  }
  const TensorType fallback = anchor != nullptr ? *anchor : *types_[0];
  std::optional<TensorType> result;
  for (int i = 0; i < static_cast<int>(which.operands.size()); ++i) {
    if (which.operands[static_cast<std::size_t>(i)].is_scalar()) continue;
    const TensorType& type = operand(node, i, fallback);
    if (!result) {
      result = type;
      continue;
    }
    std::array<std::int64_t, kAxisCount> extents = result->canonical();
    const auto other = type.canonical();
    for (Axis axis : kAllAxes) {
      const auto at = static_cast<std::size_t>(index(axis));
      if (extents[at] != other[at] && extents[at] != 1 && other[at] != 1)
        block_.fail(node, block_.value(which.operand(i)).name + " has the type " + to_string(type) +
                              " and does not broadcast with " + to_string(*result) + ": along " +
                              letter(axis) + " " + std::to_string(other[at]) + " meets " +
                              std::to_string(extents[at]));
      if (extents[at] == 1) extents[at] = other[at];
    }
    const DType dtype = promote(result->dtype, type.dtype);
    const bool first_is_larger = result->rank() >= type.rank();
    result = with_extents(first_is_larger ? *result : type, result->axes | type.axes, extents);
    result->dtype = dtype;
  }
  return *result;
}

TensorType infer_structural(Typing& typing, int node) {
  const Node& which = typing.block().nodes()[static_cast<std::size_t>(node)];
  if (which.operation->code == OpCode::kZeros) return typing.operand(node, 0);
  if (which.operation->code == OpCode::kCast) {
    TensorType result = typing.operand(node, 0);
    result.dtype = parse_dtype(which.keyword("dtype"));
    return result;
  }
  const TensorType like = typing.operand(node, 1);
  const TensorType& x = typing.operand(node, 0, like);
  for (Axis axis : kAllAxes)
    if (x.extent(axis) != 1 && x.extent(axis) != like.extent(axis))
      typing.block().fail(
          node, to_string(x) + " cannot be expanded to " + to_string(like) + " along " + letter(axis));
  if (!like.axes.contains_all(x.axes))
    typing.block().fail(node, to_string(x) + " has axes that " + to_string(like) + " does not have");
  TensorType result = like;
  result.dtype = x.dtype;
  return result;
}

TypedBlock TypedBlock::infer(const Block& block, const TensorType& x, const TypeMap& others) {
  return TypedBlock(std::make_shared<Body>(Body{block, Typing(block, x, others).run()}));
}

const Block& TypedBlock::block() const { return body_->block; }
const TensorType& TypedBlock::type(Value value) const {
  return body_->types.at(static_cast<std::size_t>(value.id));
}

std::vector<NamedType> TypedBlock::arguments() const {
  std::vector<NamedType> result;
  for (Value value : block().arguments()) result.push_back({block().value(value).name, type(value)});
  return result;
}

std::vector<NamedType> TypedBlock::parameters() const {
  std::vector<NamedType> result;
  for (Value value : block().arguments())
    if (block().value(value).kind == ValueKind::kParameter)
      result.push_back({block().value(value).name, type(value)});
  return result;
}

std::vector<NamedType> TypedBlock::outputs() const {
  std::vector<NamedType> result;
  for (Value value : block().outputs()) result.push_back({block().value(value).name, type(value)});
  return result;
}

std::vector<std::string> TypedBlock::differentiable() const {
  std::vector<std::string> result;
  for (Value value : block().arguments())
    if (block().differentiable(value)) result.push_back(block().value(value).name);
  return result;
}

}  // namespace fuseblock
