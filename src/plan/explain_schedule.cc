#include "plan/explain_schedule.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "block/formula_builder.h"

namespace fuseblock {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLongestFormula = 160;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::string extents_text(const Extents& extents) {
  std::string text;
  for (std::int64_t extent : extents) text += (text.empty() ? "" : ",") + std::to_string(extent);
  return "[" + text + "]";
}

std::string milliseconds(double value) {
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%.3g ms", value);
  return digits.data();
}

class Narrator {
 public:
  explicit Narrator(const Schedule& schedule) : schedule_(schedule) {}

  // What a part is called: by the block, or by what it is.
  std::string label(int number) const {
    const Part& part = schedule_.graph[number];
    if (!part.name.empty()) return part.name;
    switch (part.kind) {
      case PartKind::kReduce: return statistic_name(part.statistic) + "(" + label(part.operands[0]) + ")";
      case PartKind::kMerge:
        return statistic_name(part.statistic) + " of groups(" + label(part.operands[0]) + ")";
      case PartKind::kComponent: return component_name(number);
      case PartKind::kPointwise: return "value" + std::to_string(number);
      default: return "part" + std::to_string(number);
    }
  }

  std::string slot_label(int slot) const {
    const Slot& which = schedule_.slots[at(slot)];
    return label(which.part);
  }

  std::string source(const Sweep& sweep) const {
    if (sweep.source < 0) {
      std::string names;
      for (int slot : sweep.inputs)
        if (slot >= 0 && is_large(slot)) names += (names.empty() ? "" : ", ") + slot_label(slot);
      return "load(" + names + ")";
    }
    const Part& conv = schedule_.graph[sweep.source];
    std::string text = schedule_.block.block().stage_text(conv.node) + " of " + label(conv.operands[0]);
    if (sweep.staged[0].steps.size() > 1) text += " (computed while staged)";
    return text;
  }

  std::string program(const Sweep& sweep) const {
    std::string text;
    std::vector<int> seen;
    for (const Sink& sink : sweep.sinks) {
      if (std::find(seen.begin(), seen.end(), sink.step) != seen.end()) continue;
      seen.push_back(sink.step);
      std::string formula = formula_text(sweep, sink.step);
      if (formula.size() > kLongestFormula) formula = formula.substr(0, kLongestFormula) + "...";
      text += (text.empty() ? "" : "; ") + formula;
    }
    return text;
  }

  std::string sinks(const Sweep& sweep) const {
    std::string text;
    for (const Sink& sink : sweep.sinks) {
      text += text.empty() ? "" : ", ";
      if (sink.kind == SinkKind::kStore) {
        text += written(sink.slots[0]);
      } else if (sink.kind == SinkKind::kContract) {
        text += "contract into " + label(sink.part);
      } else {
        const Part& part = schedule_.graph[sink.part];
        text +=
            statistic_name(part.statistic) + (part.axes == AxisSet{Axis::kC} ? " over c" : " for each n,c");
      }
    }
    return text;
  }

  // `host call: conv2d(8, k=3) of x -> store y`
  std::string host_call(const ScheduleStep& step) const {
    const Part& part = schedule_.graph[step.parts[0]];
    return "host call: " + schedule_.block.block().stage_text(part.node) + " of " + label(part.operands[0]) +
           " -> " + written(step.result);
  }

  // Where a value goes: `store y`, `output y`.
  std::string written(int slot) const {
    const Slot& which = schedule_.slots[at(slot)];
    if (which.borrowed)
      return "store " + label(which.part) + " in the memory of output " +
             schedule_.outputs[at(which.number)].name;
    return (which.kind == SlotKind::kOutput ? "output " : "store ") + label(which.part);
  }

  double operations(const Sweep& sweep) const {
    double elements = 1;
    for (std::int64_t extent : sweep.domain) elements *= static_cast<double>(extent);
    double count = 0;
    for (const Formula::Step& step : sweep.steps)
      if (step.primitive != Primitive::kInput && step.primitive != Primitive::kConstant) count += elements;
    for (const Sink& sink : sweep.sinks) {
      if (sink.kind == SinkKind::kStatistic) count += 4 * elements;
      if (sink.kind == SinkKind::kContract)
        count += schedule_.block.operation_count(schedule_.graph[sink.part].node);
    }
    if (sweep.source >= 0) count += schedule_.block.operation_count(schedule_.graph[sweep.source].node);
    return count;
  }

  double bytes(const Sweep& sweep) const {
    double total = 0;
    for (int slot : sweep.inputs)
      if (slot >= 0) total += slot_bytes(slot);
    for (const Prologue& prologue : sweep.staged)
      for (int slot : prologue.inputs) total += slot_bytes(slot);
    if (sweep.weight >= 0) total += slot_bytes(sweep.weight);
    for (const Sink& sink : sweep.sinks)
      for (int slot : sink.slots) total += slot_bytes(slot);
    return total;
  }

  double slot_bytes(int slot) const {
    const Slot& which = schedule_.slots[at(slot)];
    double elements = 1;
    for (std::int64_t extent : which.extents) elements *= static_cast<double>(extent);
    return elements * (which.kind == SlotKind::kStatistic ? 8 : 4);
  }

 private:
  static std::string statistic_name(Statistic statistic) {
    switch (statistic) {
      case Statistic::kSum: return "sum";
      case Statistic::kMax: return "max";
      case Statistic::kMin: return "min";
      case Statistic::kMoments: return "moments";
      case Statistic::kExpSum: return "max and sum of exp";
    }
    return "";
  }

  std::string component_name(int number) const {
    const Part& part = schedule_.graph[number];
    const Part& statistic = schedule_.graph[part.operands[0]];
    std::string what = statistic_name(statistic.statistic);
    if (statistic.statistic == Statistic::kMoments) what = part.component == 0 ? "mean" : "squares";
    if (statistic.statistic == Statistic::kExpSum) what = part.component == 0 ? "max" : "sum_exp";
    int value = part.operands[0];
    while (schedule_.graph[value].kind == PartKind::kMerge ||
           schedule_.graph[value].kind == PartKind::kReduce)
      value = schedule_.graph[value].operands[0];
    return what + "(" + label(value) + ")";
  }

  bool is_large(int slot) const { return schedule_.slots[at(slot)].kind != SlotKind::kStatistic; }

  std::string formula_text(const Sweep& sweep, int step) const {
    FormulaBuilder builder;
    std::vector<FormulaBuilder::Id> ids;
    for (int i = 0; i <= step; ++i) {
      const Formula::Step& which = sweep.steps[at(i)];
      auto id = [&](std::int32_t operand) { return operand < 0 ? -1 : ids[at(operand)]; };
      if (which.primitive == Primitive::kInput)
        ids.push_back(builder.input(which.input));
      else if (which.primitive == Primitive::kConstant)
        ids.push_back(builder.constant(which.constant));
      else
        ids.push_back(builder.apply(which.primitive, id(which.a), id(which.b), id(which.c)));
    }
    std::vector<std::string> names;
    for (int slot : sweep.inputs) names.push_back(slot < 0 ? label(sweep.source) : slot_label(slot));
    const Formula formula = builder.finish(ids.back());
    return formula.written_size() > kLongestFormula
               ? "a formula of " + amount(static_cast<double>(formula.steps().size())) + " steps"
               : formula.to_string(names);
  }

  const Schedule& schedule_;
};

// Convolution results that no slot holds.
std::vector<int> never_written(const Schedule& schedule) {
  std::vector<int> result;
  for (std::size_t i = 0; i < schedule.graph.parts.size(); ++i) {
    if (schedule.graph.parts[i].kind != PartKind::kConv) continue;
    const bool written = std::any_of(schedule.slots.begin(), schedule.slots.end(),
                                     [&](const Slot& slot) { return slot.part == static_cast<int>(i); });
    if (!written) result.push_back(static_cast<int>(i));
  }
  return result;
}

}  // namespace

std::string amount(double value) {
  constexpr std::array<const char*, 6> kPrefixes = {"", " k", " M", " G", " T", " P"};
  std::size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), value < 10 && prefix > 0 ? "%.1f" : "%.0f", value);
  return std::string(digits.data()) + kPrefixes[prefix];
}

std::string schedule_text(const Schedule& schedule) {
  const Narrator narrator(schedule);
  std::string text = "plan\n";
  int number = 0;
  for (const ScheduleStep& step : schedule.steps) {
    const std::string head = "  " + std::to_string(++number) + "  ";
    if (step.kind == StepKind::kFinalise) {
      text += head + "finalise: ";
      std::string names;
      for (int part : step.parts) names += (names.empty() ? "" : ", ") + narrator.label(part);
      for (int slot : step.operands)
        names += (names.empty() ? "" : ", ") + ("output " + narrator.slot_label(slot));
      text += names + "\n";
    } else if (step.kind == StepKind::kHostCall) {
      text += head + narrator.host_call(step) + "\n";
    } else if (step.kind == StepKind::kPool) {
      text += head + schedule.block.block().stage_text(schedule.graph[step.parts[0]].node) + " -> store " +
              narrator.label(step.parts[0]) + "\n";
    } else {
      const Sweep& sweep = step.sweep;
      text += head + "sweep over " + extents_text(sweep.domain) + ": " + amount(narrator.operations(sweep)) +
              " operations, " + amount(narrator.bytes(sweep)) + " bytes\n";
      text += "       " + narrator.source(sweep) + "\n       -> " + narrator.program(sweep) + "\n       -> " +
              narrator.sinks(sweep) + "\n";
    }
  }
  for (int part : never_written(schedule))
    text += "never written: " + narrator.label(part) + ", which saves " +
            amount(2 * 4 * schedule.graph[part].elements()) + " bytes\n";
  for (const Decision& decision : schedule.decisions) {
    std::string estimates =
        "store " + milliseconds(decision.store_ms) + ", recompute " + milliseconds(decision.recompute_ms);
    if (!decision.alternatives.empty()) estimates.clear();
    for (const Alternative& each : decision.alternatives)
      estimates += (estimates.empty() ? "" : ", ") + each.name + " " + milliseconds(1e3 * each.seconds);
    text += "decision: " + decision.chosen + " " + decision.value + " (" + decision.reason + "; " +
            estimates + ")\n";
  }
  return text;
}

Json schedule_json(const Schedule& schedule) {
  const Narrator narrator(schedule);
  Json document;
  document["sweeps"] = Json::array();
  for (const ScheduleStep& step : schedule.steps) {
    Json entry;
    if (step.kind == StepKind::kFinalise) {
      entry["kind"] = "finalise";
      entry["statistics"] = Json::array();
      for (int part : step.parts) entry["statistics"].push_back(narrator.label(part));
    } else if (step.kind == StepKind::kHostCall) {
      entry["kind"] = "host call";
      entry["call"] = narrator.host_call(step);
    } else if (step.kind == StepKind::kPool) {
      entry["kind"] = "pool";
      entry["stage"] = schedule.block.block().stage_text(schedule.graph[step.parts[0]].node);
    } else {
      entry["kind"] = "sweep";
      entry["domain"] = step.sweep.domain;
      entry["source"] = narrator.source(step.sweep);
      entry["program"] = narrator.program(step.sweep);
      entry["sinks"] = narrator.sinks(step.sweep);
      entry["operations"] = narrator.operations(step.sweep);
      entry["bytes"] = narrator.bytes(step.sweep);
    }
    document["sweeps"].push_back(std::move(entry));
  }
  document["sweep_count"] = schedule.sweep_count();
  document["stored_bytes"] = schedule.stored_bytes(4);
  document["never_written"] = Json::array();
  for (int part : never_written(schedule)) document["never_written"].push_back(narrator.label(part));
  document["decisions"] = Json::array();
  for (const Decision& decision : schedule.decisions)
    document["decisions"].push_back({{"value", decision.value},
                                     {"chosen", decision.chosen},
                                     {"reason", decision.reason},
                                     {"store_ms", decision.store_ms},
                                     {"recompute_ms", decision.recompute_ms}});
  return document;
}

}  // namespace fuseblock
