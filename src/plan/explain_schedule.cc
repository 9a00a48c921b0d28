#include "plan/explain_schedule.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "plan/amounts.h"
#include "plan/estimate.h"
#include "plan/narrator.h"

namespace fuseblock {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostNames = 8;  // in a line of text
constexpr const char* kIndent = "       ";

std::string listed(const std::vector<std::string>& words, std::size_t most, const char* separator = ", ") {
  std::string text;
  for (std::size_t i = 0; i < std::min(words.size(), most); ++i) text += (i == 0 ? "" : separator) + words[i];
  if (words.size() > most) text += " and " + std::to_string(words.size() - most) + " more";
  return text;
}

std::string joined(const std::vector<std::string>& words) { return listed(words, words.size(), "; "); }

// The first of some lines behind an arrow, the others below it.
std::string arrow(const std::vector<std::string>& lines) {
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i)
    text += kIndent + std::string(i == 0 ? "-> " : "   ") + lines[i] + "\n";
  return text;
}

// A value of the block that no memory ever holds.
struct NeverWritten {
  std::string name;
  double bytes = 0;
};

std::vector<NeverWritten> never_written(const Schedule& schedule) {
  const Block& block = schedule.block.block();
  std::vector<std::string> held;
  for (const Slot& slot : schedule.slots) {
    if (slot.kind == SlotKind::kTile) continue;
    held.push_back(schedule.graph[slot.part].name);
    if (slot.kind == SlotKind::kOutput && !slot.borrowed)
      held.push_back(schedule.outputs[static_cast<std::size_t>(slot.number)].name);
  }
  std::vector<NeverWritten> result;
  for (const Node& node : block.nodes()) {
    const std::string& name = block.value(node.result).name;
    if (std::find(held.begin(), held.end(), name) == held.end())
      result.push_back({name, static_cast<double>(schedule.block.type(node.result).byte_count())});
  }
  return result;
}

// What writing each of them once and reading it once would move.
double never_written_bytes(const std::vector<NeverWritten>& values) {
  double bytes = 0;
  for (const NeverWritten& value : values) bytes += 2 * value.bytes;
  return bytes;
}

std::string never_written_text(const Schedule& schedule) {
  const std::vector<NeverWritten> values = never_written(schedule);
  if (values.empty()) return "";
  std::vector<std::string> names;
  for (const NeverWritten& value : values) names.push_back(value.name);
  return "never written to memory: " + listed(names, kMostNames) + "; writing and reading " +
         (values.size() == 1 ? "it" : "each") + " once would move " +
         amount(never_written_bytes(values), "B") + "\n";
}

std::string times_as_long(double seconds, double chosen) {
  if (chosen <= 0 || seconds < chosen) return "";
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%.3g", seconds / chosen);
  return ", " + std::string(digits.data()) + " times as long";
}

std::string decision_text(const Decision& decision) {
  std::string text = "choice for " + decision.value + ": " + decision.chosen + ", " + decision.reason + "\n";
  double chosen = 0;
  for (const Alternative& each : decision.alternatives)
    if (each.name == decision.chosen) chosen = each.seconds;
  for (const Alternative& each : decision.alternatives) {
    const bool lost = each.name != decision.chosen;
    text += "  " + std::string(lost ? "  " : "* ") + each.name + ", about " + time_text(each.seconds) +
            (lost ? times_as_long(each.seconds, chosen) : "") + ": " + each.detail + "\n";
  }
  return text;
}

std::string sweep_text(const Narrator& narrator, const Sweep& sweep, const StepEstimate& estimate) {
  std::string text = "sweep over " + extents_text(sweep.domain) + ", about " + time_text(estimate.seconds) +
                     ": " + amount(estimate.operations) + " operations, " + amount(estimate.read_bytes, "B") +
                     " read, " + amount(estimate.written_bytes, "B") + " written\n";
  text += kIndent + narrator.source(sweep) + "\n" + arrow(narrator.program(sweep));
  std::vector<std::string> sinks;
  for (const Sink& sink : sweep.sinks) sinks.push_back(narrator.sink(sink));
  text += arrow(sinks) + arrow(narrator.epilogue(sweep));
  sinks.clear();
  for (const Sink& sink : sweep.epilogue.sinks) sinks.push_back(narrator.sink(sink));
  return text + arrow(sinks);
}

std::string finalise_text(const Narrator& narrator, const ScheduleStep& step, const StepEstimate& estimate) {
  std::string text = "finalise, about " + time_text(estimate.seconds) + "\n";
  for (const std::string& line : narrator.statistics(step)) text += kIndent + line + "\n";
  std::vector<std::string> outputs;
  for (int slot : step.operands) outputs.push_back("output " + narrator.slot_label(slot));
  return text + arrow(outputs);
}

// A pool or a host call.
std::string stage_text(const Schedule& schedule, const ScheduleStep& step, const StepEstimate& estimate) {
  const Narrator narrator(schedule);
  return narrator.stage(step) + ", about " + time_text(estimate.seconds) + "\n" +
         arrow({narrator.written(step.result)});
}

std::string kept_text(const Kept& kept) {
  return "steps " + std::to_string(kept.first + 1) + " to " + std::to_string(kept.last + 1) +
         " go together, " + std::to_string(kept.channels) + " channels of a sample at a time (" +
         amount(kept.bytes, "B") + "): what one sweep has moved is in the cache when the next reads it" +
         (kept.value_bytes > 0
              ? ", and so is what two of them compute (" + amount(kept.value_bytes, "B") + ")"
              : "") +
         "\n";
}

Json step_json(const Schedule& schedule, const ScheduleStep& step, const StepEstimate& estimate) {
  const Narrator narrator(schedule);
  Json entry;
  if (step.kind == StepKind::kFinalise) {
    entry["kind"] = "finalise";
    entry["statistics"] = narrator.statistics(step);
    entry["outputs"] = Json::array();
    for (int slot : step.operands) entry["outputs"].push_back(narrator.slot_label(slot));
  } else if (step.kind != StepKind::kSweep) {
    entry["kind"] = step.kind == StepKind::kPool ? "pool" : "host call";
    entry["stage"] = narrator.stage(step);
    if (step.kind == StepKind::kHostCall) entry["call"] = narrator.stage(step);
  } else {
    const Sweep& sweep = step.sweep;
    std::vector<std::string> sinks;
    for (const Sink& sink : sweep.sinks) sinks.push_back(narrator.sink(sink));
    std::vector<std::string> last;
    for (const Sink& sink : sweep.epilogue.sinks) last.push_back(narrator.sink(sink));
    entry["kind"] = "sweep";
    entry["domain"] = sweep.domain;
    entry["source"] = narrator.source(sweep);
    entry["program"] = joined(narrator.program(sweep));
    entry["sinks"] = joined(sinks);
    entry["epilogue"] = joined(narrator.epilogue(sweep));
    entry["epilogue_sinks"] = joined(last);
  }
  entry["operations"] = estimate.operations;
  entry["bytes"] = estimate.read_bytes + estimate.written_bytes;
  entry["read_bytes"] = estimate.read_bytes;
  entry["written_bytes"] = estimate.written_bytes;
  entry["milliseconds"] = estimate.seconds * 1e3;
  return entry;
}

Json decision_json(const Decision& decision) {
  Json entry = {{"value", decision.value}, {"chosen", decision.chosen}, {"reason", decision.reason}};
  entry["alternatives"] = Json::array();
  for (const Alternative& each : decision.alternatives) {
    entry["alternatives"].push_back(
        {{"name", each.name}, {"milliseconds", each.seconds * 1e3}, {"detail", each.detail}});
    entry[each.name + "_ms"] = each.seconds * 1e3;
  }
  return entry;
}

}  // namespace

std::string schedule_text(const Schedule& schedule, const DeviceDescription& device) {
  const Narrator narrator(schedule);
  const std::vector<StepEstimate> estimates = estimate_steps(schedule, CostModel(device, schedule.block));
  std::string text = "plan for " + device.name + "\n";
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const ScheduleStep& step = schedule.steps[i];
    text += "  " + std::to_string(i + 1) + "  ";
    switch (step.kind) {
      case StepKind::kSweep: text += sweep_text(narrator, step.sweep, estimates[i]); break;
      case StepKind::kFinalise: text += finalise_text(narrator, step, estimates[i]); break;
      case StepKind::kPool:
      case StepKind::kHostCall: text += stage_text(schedule, step, estimates[i]); break;
    }
  }
  for (const Kept& kept : schedule.kept) text += kept_text(kept);
  text += never_written_text(schedule);
  for (const Decision& decision : schedule.decisions) text += decision_text(decision);
  const StepEstimate sum = total(estimates);
  return text + "in all about " + time_text(sum.seconds) + ": " + amount(sum.operations) + " operations, " +
         amount(sum.read_bytes, "B") + " read, " + amount(sum.written_bytes, "B") + " written\n";
}

Json schedule_json(const Schedule& schedule, const DeviceDescription& device) {
  const CostModel cost(device, schedule.block);
  const std::vector<StepEstimate> estimates = estimate_steps(schedule, cost);
  Json document;
  document["sweeps"] = Json::array();
  for (std::size_t i = 0; i < schedule.steps.size(); ++i)
    document["sweeps"].push_back(step_json(schedule, schedule.steps[i], estimates[i]));
  document["sweep_count"] = schedule.sweep_count();
  document["kept"] = Json::array();
  for (const Kept& kept : schedule.kept)
    document["kept"].push_back({{"first", kept.first + 1},
                                {"last", kept.last + 1},
                                {"channels", kept.channels},
                                {"bytes", kept.bytes},
                                {"value_bytes", kept.value_bytes}});
  document["stored_bytes"] = schedule.stored_bytes(cost.element_bytes());
  document["never_written"] = Json::array();
  for (const NeverWritten& value : never_written(schedule)) document["never_written"].push_back(value.name);
  document["never_written_bytes"] = never_written_bytes(never_written(schedule));
  document["decisions"] = Json::array();
  for (const Decision& decision : schedule.decisions)
    document["decisions"].push_back(decision_json(decision));
  const StepEstimate sum = total(estimates);
  document["read_bytes"] = sum.read_bytes;
  document["written_bytes"] = sum.written_bytes;
  document["estimated_ms"] = sum.seconds * 1e3;
  return document;
}

}  // namespace fuseblock
