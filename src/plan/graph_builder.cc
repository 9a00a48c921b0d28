#include "plan/graph_builder.h"

#include <algorithm>
#include <bit>

#include "block/formula_text.h"

namespace fuseblock {
namespace {

constexpr AxisSet kBatchAndChannels = {Axis::kN, Axis::kC};

std::size_t place(Axis axis) { return static_cast<std::size_t>(index(axis)); }

Extents broadcast(const std::vector<Part>& parts, const std::vector<int>& operands) {
  Extents extents = {1, 1, 1, 1, 1};
  for (int operand : operands)
    for (std::size_t i = 0; i < extents.size(); ++i) {
      const std::int64_t other = parts[static_cast<std::size_t>(operand)].extents[i];
      if (extents[i] == 1) extents[i] = other;
    }
  return extents;
}

// Whether a formula is v * s + t in input number `v`, with s and t free of it.
bool is_affine(const Formula& formula, int v) {
  enum class Form : std::uint8_t { kFree, kAffine, kOther };
  std::vector<Form> forms;
  for (const Formula::Step& step : formula.steps()) {
    auto form = [&](std::int32_t id) { return id < 0 ? Form::kFree : forms[static_cast<std::size_t>(id)]; };
    const Form a = form(step.a);
    const Form b = form(step.b);
    const Form c = form(step.c);
    const bool free = a == Form::kFree && b == Form::kFree && c == Form::kFree;
    const bool affine = a != Form::kOther && b != Form::kOther && c != Form::kOther;
    Form result = free ? Form::kFree : Form::kOther;
    switch (step.primitive) {
      case Primitive::kInput: result = step.input == v ? Form::kAffine : Form::kFree; break;
      case Primitive::kAdd:
      case Primitive::kSub:
      case Primitive::kNeg:
        if (!free && affine) result = Form::kAffine;
        break;
      case Primitive::kMul:
        if (!free && affine && (a == Form::kFree || b == Form::kFree)) result = Form::kAffine;
        break;
      case Primitive::kDiv:
        if (!free && affine && b == Form::kFree) result = Form::kAffine;
        break;
      default: break;
    }
    forms.push_back(result);
  }
  return forms.back() == Form::kAffine;
}

Formula product() { return Formula::apply(Primitive::kMul, {Formula::input(0), Formula::input(1)}); }

// Everything that makes a part what it is, as a key.
std::string key_of(const Part& part) {
  std::string key;
  auto add = [&](auto number) { key += std::to_string(number) + ","; };
  add(static_cast<int>(part.kind));
  for (std::int64_t extent : part.extents) add(extent);
  add(part.operands.size());
  for (int operand : part.operands) add(operand);
  for (const Formula::Step& step : part.formula.steps()) {
    add(static_cast<int>(step.primitive));
    add(step.a);
    add(step.b);
    add(step.c);
    add(step.input);
    add(std::bit_cast<std::uint64_t>(step.constant));
  }
  add(static_cast<int>(part.statistic));
  key += to_string(part.axes);
  add(part.groups);
  add(part.component);
  add(part.value.id);
  add(part.node);
  return key;
}

}  // namespace

int GraphBuilder::add(Part part) {
  const auto [entry, is_new] = known_.try_emplace(key_of(part), static_cast<int>(parts_.size()));
  if (is_new) parts_.push_back(std::move(part));
  return entry->second;
}

int GraphBuilder::argument(Value value, const Extents& extents, std::string name) {
  Part part;
  part.kind = PartKind::kArgument;
  part.value = value;
  if (value.id == 0) main_ = extents;
  part.large = value.id == 0 || (extents == main_ && extents[0] != 1);
  part.extents = extents;
  part.name = std::move(name);
  return add(std::move(part));
}

int GraphBuilder::pointwise(const Formula& formula, std::vector<int> operands) {
  const Extents extents = broadcast(parts_, operands);
  return pointwise(formula, std::move(operands), extents);
}

// Rule `a broadcast value`: an operand that only repeats a smaller one along some axes is taken for that one.
int GraphBuilder::pointwise(const Formula& formula, std::vector<int> operands, const Extents& extents) {
  for (int& operand : operands) operand = narrowed(operand);
  const bool is_identity = formula.steps().size() == 1 && formula.steps()[0].primitive == Primitive::kInput;
  if (is_identity) {
    const int operand = operands[static_cast<std::size_t>(formula.steps()[0].input)];
    if ((*this)[operand].extents == extents) return operand;
  }
  Part part;
  part.kind = PartKind::kPointwise;
  part.formula = formula;
  part.operands = std::move(operands);
  part.extents = extents;
  return add(std::move(part));
}

int GraphBuilder::narrowed(int number) {
  const Part part = (*this)[number];
  if (part.kind != PartKind::kPointwise || part.operands.empty() || part.elements() == 0) return number;
  const Extents natural = broadcast(parts_, part.operands);
  return natural == part.extents ? number : pointwise(part.formula, part.operands, natural);
}

int GraphBuilder::widened(int number, const Extents& extents) {
  return (*this)[number].extents == extents ? number : pointwise(Formula::input(0), {number}, extents);
}

int GraphBuilder::formula(std::string_view text, std::vector<int> operands) {
  FormulaBuilder steps;
  Lexer lexer(text);
  ExpressionContext context;
  context.name = [&](const Token& token) { return steps.input(token.text[0] - 'p'); };
  context.operation = [](std::string_view) { return nullptr; };
  const FormulaBuilder::Id root = read_expression(lexer, steps, context);
  return pointwise(steps.finish(root), std::move(operands));
}

int GraphBuilder::window(PartKind kind, int node, std::vector<int> operands, const Extents& extents) {
  Part part;
  part.kind = kind;
  part.node = node;
  part.operands = std::move(operands);
  part.extents = extents;
  return add(std::move(part));
}

int GraphBuilder::statistic(Statistic statistic, int part, AxisSet axes, std::int64_t groups) {
  AxisSet positions;  // spatial axes along which the value varies
  for (Axis axis : kSpatialAxes.list())
    if (varies((*this)[part], axis)) positions.insert(axis);
  const AxisSet live = axes - (kSpatialAxes - positions);
  const bool over_channels_only = live == AxisSet{Axis::kC} && groups == 1;
  if (over_channels_only) return reduce(statistic, part, live);
  // For each sample and channel over all positions, then over samples and channels. Where only some of the
  // positions are reduced every element is a statistic of its own at first.
  const AxisSet fine = axes.contains_all(positions) ? positions : AxisSet{};
  const int result = reduce(statistic, part, fine);
  const AxisSet coarse = live - fine;
  return coarse.empty() ? result : merge(statistic, result, coarse, groups);
}

int GraphBuilder::reduce(Statistic statistic, int part, AxisSet axes) {
  Part result;
  result.kind = PartKind::kReduce;
  result.statistic = statistic;
  result.axes = axes;
  result.operands = {part};
  result.extents = (*this)[part].extents;
  for (Axis axis : axes.list()) {
    result.count *= result.extents[place(axis)];
    result.extents[place(axis)] = 1;
  }
  return add(std::move(result));
}

int GraphBuilder::merge(Statistic statistic, int part, AxisSet axes, std::int64_t groups) {
  Part result;
  result.kind = PartKind::kMerge;
  result.statistic = statistic;
  result.axes = axes;
  result.groups = groups;
  result.operands = {part};
  result.extents = (*this)[part].extents;
  result.count = (*this)[part].count;
  for (Axis axis : (axes - AxisSet{Axis::kC}).list()) {
    result.count *= result.extents[place(axis)];
    result.extents[place(axis)] = 1;
  }
  if (axes.contains(Axis::kC)) {
    std::int64_t& channels = result.extents[place(Axis::kC)];
    result.count *= channels / groups;
    if (groups == 1) channels = 1;
  }
  return add(std::move(result));
}

int GraphBuilder::component(int statistic, int component) {
  Part part;
  part.kind = PartKind::kComponent;
  part.component = component;
  part.operands = {statistic};
  part.extents = (*this)[statistic].extents;
  return add(std::move(part));
}

// Rule `mean of affine`: a formula that is affine in one operand and whose other operands do not vary along
// the axes takes the mean to its argument: mean(f(v)) = f(mean(v)).
int GraphBuilder::affine_operand(int part, AxisSet axes) const {
  const Part& which = (*this)[part];
  if (which.kind != PartKind::kPointwise || which.operands.empty()) return -1;
  int varying = -1;
  for (std::size_t i = 0; i < which.operands.size(); ++i) {
    const Part& operand = (*this)[which.operands[i]];
    const auto along = axes.list();
    const bool varies_here =
        std::any_of(along.begin(), along.end(), [&](Axis axis) { return varies(operand, axis); });
    if (!varies_here) continue;
    if (varying >= 0) return -1;
    varying = static_cast<int>(i);
  }
  if (varying < 0) return -1;
  const Part& operand = (*this)[which.operands[static_cast<std::size_t>(varying)]];
  for (Axis axis : axes.list())
    if (operand.extents[place(axis)] != which.extents[place(axis)]) return -1;
  return is_affine(which.formula, varying) ? varying : -1;
}

// Rule `constant factors`: in a product of two values, a factor of the first that does not vary along the axes comes
// out, (s v) w = s (v w), so that the mean can move inside.
int GraphBuilder::factored(int part, AxisSet axes) {
  const std::vector<Axis> along = axes.list();
  const auto constant = [&](int operand) {
    return std::none_of(along.begin(), along.end(),
                        [&](Axis axis) { return varies((*this)[operand], axis); });
  };
  const auto is_product = [&](int operand) {
    const Part& which = (*this)[operand];
    return which.kind == PartKind::kPointwise && which.operands.size() == 2 && which.formula == product();
  };
  if (axes.empty() || !is_product(part)) return part;
  const int first = (*this)[part].operands[0];
  const int second = (*this)[part].operands[1];
  if (!is_product(first) || constant(second)) return part;
  const int a = (*this)[first].operands[0];
  const int b = (*this)[first].operands[1];
  if (constant(a) == constant(b)) return part;
  const int factor = constant(a) ? a : b;
  return pointwise(product(), {factor, pointwise(product(), {constant(a) ? b : a, second})});
}

int GraphBuilder::find_moments(int part, AxisSet axes, std::int64_t groups) const {
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& candidate = parts_[i];
    if (candidate.kind == PartKind::kReduce && candidate.statistic == Statistic::kMoments && groups == 1 &&
        candidate.operands[0] == part && candidate.axes == axes)
      return static_cast<int>(i);
  }
  return -1;
}

int GraphBuilder::mean(int part, AxisSet axes, std::int64_t groups) {
  if (const int narrow = narrowed(part); narrow != part) {
    Extents extents = (*this)[part].extents;
    for (Axis axis : axes.list())
      if (axis != Axis::kC || groups == 1) extents[place(axis)] = 1;
    return widened(mean(narrow, axes, groups), extents);
  }
  AxisSet live;
  for (Axis axis : axes.list())
    if (varies((*this)[part], axis)) live.insert(axis);
  if (live.empty()) return part;
  if (!live.contains(Axis::kC)) groups = 1;
  // Along the axes where nothing but one affine operand varies the mean moves inside; the rest is a mean of
  // the result.
  const AxisSet space = live - kBatchAndChannels;
  part = factored(part, space);
  for (AxisSet inner : {live, space}) {
    if (inner.empty() || (groups > 1 && inner.contains(Axis::kC))) continue;
    const int operand = affine_operand(part, inner);
    if (operand < 0) continue;
    const Formula formula = (*this)[part].formula;
    std::vector<int> operands = (*this)[part].operands;
    Extents extents = (*this)[part].extents;
    for (Axis axis : inner.list()) extents[place(axis)] = 1;
    operands[static_cast<std::size_t>(operand)] = mean(operands[static_cast<std::size_t>(operand)], inner);
    return mean(pointwise(formula, std::move(operands), extents), live - inner, groups);
  }
  const int moments = space.empty() ? -1 : find_moments(part, space, 1);
  if (moments >= 0) return mean(component(moments, 0), live - space, groups);
  const int total = statistic(Statistic::kSum, part, live, groups);
  const Formula over = Formula::apply(
      Primitive::kDiv, {Formula::input(0), Formula::constant(static_cast<double>((*this)[total].count))});
  return pointwise(over, {component(total, 0)});
}

int GraphBuilder::sum(int part, AxisSet axes) {
  AxisSet live;
  double repeats = 1;
  if (const int narrow = narrowed(part); narrow != part) {
    Extents extents = (*this)[part].extents;
    for (Axis axis : axes.list()) {
      if (!varies((*this)[narrow], axis)) repeats *= static_cast<double>(extents[place(axis)]);
      extents[place(axis)] = 1;
    }
    const Formula times = Formula::apply(Primitive::kMul, {Formula::input(0), Formula::constant(repeats)});
    return widened(pointwise(times, {sum(narrow, axes)}), extents);
  }
  for (Axis axis : axes.list())
    if (varies((*this)[part], axis)) live.insert(axis);
  if (live.empty()) return part;
  if (affine_operand(part, live - kBatchAndChannels) >= 0 && !(live - kBatchAndChannels).empty()) {
    for (Axis axis : live.list()) repeats *= static_cast<double>((*this)[part].extents[place(axis)]);
    const Formula times = Formula::apply(Primitive::kMul, {Formula::input(0), Formula::constant(repeats)});
    return pointwise(times, {mean(part, live)});
  }
  return component(statistic(Statistic::kSum, part, live), 0);
}

int GraphBuilder::rstd(int part, AxisSet axes, double eps, std::int64_t groups) {
  const int moments = statistic(Statistic::kMoments, part, axes, groups);
  const Formula mean_square = Formula::apply(
      Primitive::kDiv, {Formula::input(0), Formula::constant(static_cast<double>((*this)[moments].count))});
  const Formula shifted = Formula::apply(Primitive::kAdd, {mean_square, Formula::constant(eps)});
  const Formula root = Formula::apply(Primitive::kSqrt, {shifted});
  return pointwise(Formula::apply(Primitive::kDiv, {Formula::constant(1), root}), {component(moments, 1)});
}

Graph GraphBuilder::finish(const std::vector<int>& outputs) const { return needed_parts(parts_, outputs); }

}  // namespace fuseblock
