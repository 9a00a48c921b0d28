// From a block to its parts, node by node.
#include <algorithm>

#include "plan/graph_builder.h"

namespace fuseblock {
namespace {

class Lowering {
 public:
  explicit Lowering(const TypedBlock& block) : typed_(block), part_of_(block.block().values().size(), -1) {}

  Graph run() {
    for (Value argument : block().arguments())
      part_of(argument) =
          builder_.argument(argument, typed_.type(argument).canonical(), block().value(argument).name);
    for (int node = 0; node < static_cast<int>(block().nodes().size()); ++node) {
      const Value result = block().nodes()[at(node)].result;
      const int part = lower(node);
      part_of(result) = part;
      if (builder_[part].name.empty()) builder_.at(part).name = block().value(result).name;
    }
    std::vector<int> outputs;
    for (Value output : block().outputs()) outputs.push_back(part_of(output));
    return builder_.finish(outputs);
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  const Block& block() const { return typed_.block(); }
  int& part_of(Value value) { return part_of_[static_cast<std::size_t>(value.id)]; }

  int lower(int node) {
    const Node& which = block().nodes()[at(node)];
    const Extents extents = typed_.type(which.result).canonical();
    std::vector<int> operands;
    for (const Operand& operand : which.operands)
      if (!operand.is_scalar()) operands.push_back(part_of(operand.value()));
    switch (which.operation->code) {
      case OpCode::kPointwise:
      case OpCode::kFormula: return builder_.pointwise(block().formula(node), operands);
      case OpCode::kCast: return operands[0];
      case OpCode::kZeros: return builder_.pointwise(Formula::constant(0), {}, extents);
      case OpCode::kExpand: return expand(which, operands, extents);
      case OpCode::kConvolution: return builder_.window(PartKind::kConv, node, operands, extents);
      // The operand that only gives its type is left out.
      case OpCode::kConvolutionGradInput:
        return builder_.window(PartKind::kConv, node, {operands[0], operands[1]}, extents);
      case OpCode::kConvolutionGradWeight:
        return builder_.window(PartKind::kContract, node, {operands[0], operands[1]}, extents);
      case OpCode::kMaxPool:
      case OpCode::kAvgPool: return builder_.window(PartKind::kPool, node, operands, extents);
      case OpCode::kAvgPoolGrad: return builder_.window(PartKind::kPool, node, {operands[0]}, extents);
      case OpCode::kMaxPoolTake:
      case OpCode::kMaxPoolPut: return builder_.window(PartKind::kPool, node, operands, extents);
      case OpCode::kGroupNorm:
      case OpCode::kInstanceNorm:
      case OpCode::kLayerNorm: return centred_norm(node, operands);
      case OpCode::kRmsNorm: return rms_norm(node, operands);
      case OpCode::kBatchNorm: return batch_norm(which, operands);
      case OpCode::kL2Normalize: return l2_normalize(node, operands);
      case OpCode::kSoftmax: return softmax(node, operands);
      case OpCode::kMean: return builder_.mean(operands[0], statistics(node).axes, statistics(node).groups);
      case OpCode::kSum: return builder_.sum(operands[0], statistics(node).axes);
      case OpCode::kMax: return extreme(Statistic::kMax, node, operands);
      case OpCode::kMin: return extreme(Statistic::kMin, node, operands);
      case OpCode::kLogSumExp: return logsumexp(node, operands);
      case OpCode::kRstd: {
        const StatisticsGeometry geometry = statistics(node);
        return builder_.rstd(operands[0], geometry.axes, geometry.eps, geometry.groups);
      }
    }
    throw InternalError("an operation that cannot be lowered: " + which.operation->name);
  }

  // Says what a part is to the stage of a node, unless it is another's already.
  int with_role(int part, int node, const char* role) {
    if (builder_[part].role.empty())
      builder_.at(part).role = block().value(block().nodes()[at(node)].result).name + "." + role;
    return part;
  }

  StatisticsGeometry statistics(int node) const { return statistics_geometry(typed_, node); }

  int expand(const Node& which, const std::vector<int>& operands, const Extents& extents) {
    double copies = 1;
    for (std::size_t i = 0; i < extents.size(); ++i)
      if (builder_[operands[0]].extents[i] == 1) copies *= static_cast<double>(extents[i]);
    const Formula x = Formula::input(0);
    const Formula formula =
        which.flag("share") ? Formula::apply(Primitive::kDiv, {x, Formula::constant(copies)}) : x;
    return builder_.pointwise(formula, {operands[0]}, extents);
  }

  // (x - mean) * rstd * weight + bias
  int centred_norm(int node, const std::vector<int>& operands) {
    const StatisticsGeometry geometry = statistics(node);
    const int moments = builder_.statistic(Statistic::kMoments, operands[0], geometry.axes, geometry.groups);
    const int mean = with_role(builder_.component(moments, 0), node, "mean");
    const int rstd =
        with_role(builder_.rstd(operands[0], geometry.axes, geometry.eps, geometry.groups), node, "rstd");
    if (operands.size() == 1) return builder_.formula("(p - q) * r", {operands[0], mean, rstd});
    if (operands.size() == 2)
      return builder_.formula("(p - q) * (r * s)", {operands[0], mean, rstd, operands[1]});
    return builder_.formula("(p - q) * (r * s) + t", {operands[0], mean, rstd, operands[1], operands[2]});
  }

  int rms_norm(int node, const std::vector<int>& operands) {
    const StatisticsGeometry geometry = statistics(node);
    const int mean_square = with_role(builder_.mean(builder_.formula("p * p", {operands[0]}), geometry.axes),
                                      node, "mean_square");
    const Formula root = Formula::apply(
        Primitive::kSqrt,
        {Formula::apply(Primitive::kAdd, {Formula::input(0), Formula::constant(geometry.eps)})});
    const int scale = with_role(
        builder_.pointwise(Formula::apply(Primitive::kDiv, {Formula::constant(1), root}), {mean_square}),
        node, "rstd");
    if (operands.size() == 1) return builder_.formula("p * q", {operands[0], scale});
    return builder_.formula("p * q * r", {operands[0], scale, operands[1]});
  }

  // Rule `evaluation-mode batch norm`: a subtraction and a multiply-add with coefficients per channel.
  int batch_norm(const Node& which, const std::vector<int>& operands) {
    const Formula root = Formula::apply(
        Primitive::kSqrt,
        {Formula::apply(Primitive::kAdd, {Formula::input(0), Formula::constant(which.number("eps"))})});
    const int rstd =
        builder_.pointwise(Formula::apply(Primitive::kDiv, {Formula::constant(1), root}), {operands[2]});
    if (operands.size() == 3) return builder_.formula("(p - q) * r", {operands[0], operands[1], rstd});
    const int scale = builder_.formula("p * q", {rstd, operands[3]});
    return builder_.formula("(p - q) * r + s", {operands[0], operands[1], scale, operands[4]});
  }

  int l2_normalize(int node, const std::vector<int>& operands) {
    const StatisticsGeometry geometry = statistics(node);
    const int square_sum =
        with_role(builder_.sum(builder_.formula("p * p", {operands[0]}), geometry.axes), node, "square_sum");
    const Formula root = Formula::apply(Primitive::kSqrt, {Formula::input(0)});
    const Formula eps = Formula::constant(geometry.eps);
    const Formula divisor =
        Formula::apply(Primitive::kSelect, {Formula::apply(Primitive::kLess, {root, eps}), eps, root});
    return builder_.formula("p / q", {operands[0], builder_.pointwise(divisor, {square_sum})});
  }

  int softmax(int node, const std::vector<int>& operands) {
    const auto [largest, sum] = exponential_sum(node, operands[0]);
    return builder_.formula("exp(p - q) / r", {operands[0], largest, sum});
  }

  int logsumexp(int node, const std::vector<int>& operands) {
    const auto [largest, sum] = exponential_sum(node, operands[0]);
    // An infinite maximum is the result itself.
    return builder_.formula("select(abs(p) == inf, p, p + log(q))", {largest, sum});
  }

  // The largest element, and the sum of exp(x - largest).
  std::pair<int, int> exponential_sum(int node, int x) {
    const int sums = builder_.statistic(Statistic::kExpSum, x, statistics(node).axes);
    return {with_role(builder_.component(sums, 0), node, "max"),
            with_role(builder_.component(sums, 1), node, "sum_exp")};
  }

  int extreme(Statistic statistic, int node, const std::vector<int>& operands) {
    return builder_.component(builder_.statistic(statistic, operands[0], statistics(node).axes), 0);
  }

  const TypedBlock& typed_;
  std::vector<int> part_of_;
  GraphBuilder builder_;
};

}  // namespace

Graph lower(const TypedBlock& block) { return Lowering(block).run(); }

}  // namespace fuseblock
