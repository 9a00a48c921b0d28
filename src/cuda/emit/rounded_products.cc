#include "cuda/emit/rounded_products.h"

#include <algorithm>
#include <cmath>

namespace fuseblock::cuda {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

bool is_power_of_two(const Formula::Step& step) {
  int exponent = 0;
  return step.primitive == Primitive::kConstant && std::abs(std::frexp(step.constant, &exponent)) == 0.5;
}

// Whether a step is a product that has a rounding error. Quotients by constants are written as products.
bool is_product(const std::vector<Formula::Step>& steps, std::int32_t number) {
  const Formula::Step& step = steps[at(number)];
  if (step.primitive == Primitive::kDiv)
    return steps[at(step.b)].primitive == Primitive::kConstant && !is_power_of_two(steps[at(step.b)]);
  return step.primitive == Primitive::kMul && !is_power_of_two(steps[at(step.a)]) &&
         !is_power_of_two(steps[at(step.b)]);
}

// Whether a part is made of a statistic that differences are taken from exactly, and not of sums alone.
bool is_exact(const Graph& graph, int number) {
  const Part& part = graph[number];
  switch (part.kind) {
    case PartKind::kReduce:
    case PartKind::kMerge: return part.statistic != Statistic::kSum;
    case PartKind::kComponent:
    case PartKind::kRegroup:
    case PartKind::kPointwise:
      return std::any_of(part.operands.begin(), part.operands.end(),
                         [&](int operand) { return is_exact(graph, operand); });
    case PartKind::kArgument: return part.saved >= 0;
    default: return false;
  }
}

// Whether an input of the sweep is a statistic whose difference from a product asks for that product's own rounding.
bool asks_for_rounding(const Schedule& schedule, const Sweep& sweep, int input) {
  if (input < 0) return false;
  const Slot& slot = schedule.slots[at(input)];
  if (slot.part < 0) return false;
  if (slot.extents == sweep.domain) return slot.kind == SlotKind::kStatistic || slot.kind == SlotKind::kTile;
  return is_exact(schedule.graph, slot.part);
}

bool is_sum_of_exponentials(const Schedule& schedule, int input) {
  if (input < 0) return false;
  const Slot& slot = schedule.slots[at(input)];
  if (slot.part < 0) return false;
  const Part& part = schedule.graph[slot.part];
  const Part& whole = part.kind == PartKind::kComponent ? schedule.graph[part.operands[0]] : part;
  return (whole.kind == PartKind::kReduce || whole.kind == PartKind::kMerge) &&
         whole.statistic == Statistic::kExpSum;
}

}  // namespace

std::vector<bool> rounded_products(const Schedule& schedule, const Sweep& sweep) {
  std::vector<bool> rounded(sweep.steps.size(), false);
  const auto round = [&](std::int32_t step) {
    if (is_product(sweep.steps, step)) rounded[at(step)] = true;
  };
  for (const Sink& sink : sweep.sinks) {
    if (sink.kind != SinkKind::kStatistic) continue;
    const Statistic statistic = schedule.graph[sink.part].statistic;
    if (statistic == Statistic::kMoments || statistic == Statistic::kExpSum) round(sink.step);
  }
  // Of exponentials, by step: what is made of a sum of them, such as a logsumexp, is one.
  std::vector<bool> made_of_sum(sweep.steps.size(), false);
  for (std::size_t i = 0; i < sweep.steps.size(); ++i) {
    const Formula::Step& step = sweep.steps[i];
    if (step.primitive == Primitive::kInput)
      made_of_sum[i] = is_sum_of_exponentials(schedule, sweep.inputs[at(step.input)]);
    else if (step.primitive != Primitive::kExp)
      for (std::int32_t operand : {step.a, step.b, step.c})
        made_of_sum[i] = made_of_sum[i] || (operand >= 0 && made_of_sum[at(operand)]);
  }
  const auto is_statistic = [&](std::int32_t step) {
    const Formula::Step& which = sweep.steps[at(step)];
    return made_of_sum[at(step)] || (which.primitive == Primitive::kInput &&
                                     asks_for_rounding(schedule, sweep, sweep.inputs[at(which.input)]));
  };
  for (const Formula::Step& step : sweep.steps) {
    if (step.primitive != Primitive::kSub) continue;
    if (is_statistic(step.b)) round(step.a);
    if (is_statistic(step.a)) round(step.b);
  }
  return rounded;
}

bool takes_statistic_of_each(const Schedule& schedule, const Sweep& sweep) {
  return std::any_of(sweep.inputs.begin(), sweep.inputs.end(), [&](int input) {
    if (input < 0) return false;
    const Slot& slot = schedule.slots[at(input)];
    return slot.part >= 0 && slot.extents == sweep.domain && is_exact(schedule.graph, slot.part);
  });
}

std::vector<bool> rounded_at(const std::vector<bool>& rounded, const std::vector<std::int32_t>& places) {
  std::vector<bool> result;
  for (std::size_t i = 0; i < rounded.size(); ++i) {
    if (!rounded[i] || places[i] < 0) continue;
    result.resize(std::max(result.size(), at(places[i]) + 1), false);
    result[at(places[i])] = true;
  }
  return result;
}

}  // namespace fuseblock::cuda
