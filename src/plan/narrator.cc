#include "plan/narrator.h"

#include <algorithm>

#include "plan/amounts.h"

namespace fuseblock {
namespace {

constexpr std::size_t kLongestFormula = 160;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::string statistic_name(Statistic statistic) {
  switch (statistic) {
    case Statistic::kSum: return "sum";
    case Statistic::kMax: return "max";
    case Statistic::kMin: return "min";
    case Statistic::kMoments: return "moments";
    case Statistic::kExpSum: return "max and sum of exp";
  }
  return "";
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// One over the root of a sum: what norms multiply with.
bool is_rstd(const Part& part) {
  const auto& steps = part.formula.steps();
  if (part.kind != PartKind::kPointwise || part.operands.size() != 1 || steps.empty()) return false;
  const Formula::Step& last = steps.back();
  if (last.primitive != Primitive::kDiv) return false;
  const Formula::Step& dividend = steps[at(last.a)];
  return dividend.primitive == Primitive::kConstant && dividend.constant == 1 &&
         steps[at(last.b)].primitive == Primitive::kSqrt;
}

}  // namespace

std::string extents_text(const Extents& extents) {
  std::string text;
  for (std::int64_t extent : extents) text += (text.empty() ? "" : ",") + std::to_string(extent);
  return "[" + text + "]";
}

std::string Narrator::label(int number) const {
  const Part& part = schedule_.graph[number];
  if (!part.name.empty()) return part.name;
  switch (part.kind) {
    case PartKind::kReduce: return statistic_name(part.statistic) + "(" + label(part.operands[0]) + ")";
    case PartKind::kMerge:
      return statistic_name(part.statistic) + " of groups(" + label(part.operands[0]) + ")";
    case PartKind::kComponent: return component_label(number);
    case PartKind::kRegroup: return label(part.operands[0]) + " by groups";
    case PartKind::kPointwise: return pointwise_label(number);
    default: return "part" + std::to_string(number);
  }
}

std::string Narrator::slot_label(int slot) const {
  const Slot& which = schedule_.slots[at(slot)];
  if (which.kind == SlotKind::kOutput && !which.borrowed) return schedule_.outputs[at(which.number)].name;
  return label(which.part);
}

std::string Narrator::written(int slot) const {
  const Slot& which = schedule_.slots[at(slot)];
  if (which.borrowed)
    return "store " + label(which.part) + " in the memory of output " +
           schedule_.outputs[at(which.number)].name;
  return (which.kind == SlotKind::kOutput ? "output " : "store ") + slot_label(slot);
}

bool Narrator::is_partial(const Part& statistic) const {
  return !statistic.axes.empty() &&
         leaves_positions(statistic, schedule_.graph[statistic.operands[0]].extents);
}

// `mean(y)`; of each channel by itself `channel_mean(y)`.
std::string Narrator::component_label(int number) const {
  const Part& part = schedule_.graph[number];
  const Part& statistic = schedule_.graph[part.operands[0]];
  std::string what = statistic_name(statistic.statistic);
  if (statistic.statistic == Statistic::kMoments) what = part.component == 0 ? "mean" : "squares";
  if (statistic.statistic == Statistic::kExpSum) what = part.component == 0 ? "max" : "sum_exp";
  if (statistic.kind == PartKind::kReduce && !statistic.axes.contains(Axis::kC) && !is_partial(statistic))
    what = "channel_" + what;
  int value = part.operands[0];
  while (schedule_.graph[value].kind == PartKind::kMerge || schedule_.graph[value].kind == PartKind::kReduce)
    value = schedule_.graph[value].operands[0];
  return what + "(" + label(value) + ")";
}

std::string Narrator::pointwise_label(int number) const {
  const Part& part = schedule_.graph[number];
  if (!is_rstd(part)) return "part" + std::to_string(number);
  const std::string of = label(part.operands[0]);
  const std::size_t bracket = of.find('(');
  return "rstd" + (bracket == std::string::npos ? "(" + of + ")" : of.substr(bracket));
}

std::string Narrator::definition(int number) const {
  const Part& part = schedule_.graph[number];
  if (part.kind != PartKind::kPointwise) return label(number);
  std::vector<std::string> names;
  for (int operand : part.operands) names.push_back(label(operand));
  if (part.formula.written_size() > kLongestFormula)
    return label(number) + " = a formula of " + amount(static_cast<double>(part.formula.steps().size())) +
           " steps over " + listed(names);
  return label(number) + " = " + part.formula.to_string(names);
}

std::string Narrator::source(const Sweep& sweep) const {
  if (sweep.source >= 0) {
    const Part& conv = schedule_.graph[sweep.source];
    std::string text = schedule_.block.block().stage_text(conv.node) + " of " + label(conv.operands[0]);
    if (sweep.staged[0].steps.size() > 1) text += ", which is computed while it is staged";
    return text;
  }
  // Those of the sweep's own extents; where all are broadcast, all of them.
  std::vector<std::string> own;
  std::vector<std::string> all;
  for (int slot : sweep.inputs) {
    const Slot& which = schedule_.slots[at(slot)];
    if (which.kind == SlotKind::kStatistic) continue;
    all.push_back(slot_label(slot));
    if (which.extents == sweep.domain) own.push_back(slot_label(slot));
  }
  if (all.empty()) return "nothing to load";
  return "load " + listed(own.empty() ? all : own);
}

int Narrator::visited(const Sink& sink) const {
  if (sink.kind == SinkKind::kStore) return schedule_.slots[at(sink.slots[0])].part;
  return schedule_.graph[sink.part].operands[0];
}

std::vector<int> Narrator::computed(std::vector<int> wanted, const std::vector<int>& inputs,
                                    int source) const {
  std::vector<bool> read(schedule_.graph.parts.size(), false);
  for (int slot : inputs)
    if (slot >= 0) read[at(schedule_.slots[at(slot)].part)] = true;
  if (source >= 0) read[at(source)] = true;
  std::vector<bool> seen = read;
  std::vector<int> result;
  while (!wanted.empty()) {
    const int part = wanted.back();
    wanted.pop_back();
    if (seen[at(part)] || schedule_.graph[part].kind != PartKind::kPointwise) continue;
    seen[at(part)] = true;
    result.push_back(part);
    for (int operand : schedule_.graph[part].operands) wanted.push_back(operand);
  }
  std::sort(result.begin(), result.end());  // parts come after their operands
  return result;
}

std::vector<std::string> Narrator::program(const Sweep& sweep) const {
  std::vector<int> wanted;
  for (const Sink& each : sweep.sinks) wanted.push_back(visited(each));
  std::vector<std::string> lines;
  for (int part : computed(wanted, sweep.inputs, sweep.source)) lines.push_back(definition(part));
  return lines;
}

std::vector<std::string> Narrator::epilogue(const Sweep& sweep) const {
  std::vector<int> wanted;
  for (const Sink& each : sweep.epilogue.sinks) wanted.push_back(visited(each));
  std::vector<std::string> lines;
  for (int part : computed(wanted, sweep.epilogue.inputs, -1)) lines.push_back(definition(part));
  return lines;
}

std::string Narrator::sink(const Sink& sink) const {
  if (sink.kind == SinkKind::kStore) return written(sink.slots[0]);
  const Part& part = schedule_.graph[sink.part];
  if (sink.kind == SinkKind::kContract)
    return "contract " + label(part.operands[0]) + " with " + label(part.operands[1]) + " into " +
           label(sink.part);
  const std::string what = statistic_name(part.statistic) + " of " + label(part.operands[0]);
  if (part.axes == AxisSet{Axis::kC} || is_partial(part)) return what + " over " + to_string(part.axes);
  return what + " for each n,c";
}

std::vector<std::string> Narrator::statistics(const ScheduleStep& step) const {
  std::vector<std::string> lines;
  for (int part : step.parts)
    if (schedule_.graph[part].kind != PartKind::kComponent) lines.push_back(definition(part));
  return lines;
}

std::string Narrator::stage(const ScheduleStep& step) const {
  const Part& part = schedule_.graph[step.parts[0]];
  return (step.kind == StepKind::kHostCall ? "host call: " : "") +
         schedule_.block.block().stage_text(part.node) + " of " + label(part.operands[0]);
}

}  // namespace fuseblock
