#include "plan/explain_dot.h"

#include <map>
#include <set>
#include <span>

#include "plan/amounts.h"
#include "plan/estimate.h"
#include "plan/narrator.h"

namespace fuseblock {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// In quotes; lines are set flush left where `left` says so.
std::string quoted(const std::string& text, bool left = false) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n')
      result += left ? "\\l" : "\\n";
    else
      result += c;
  }
  return result + (left ? "\\l\"" : "\"");
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

// The block on one line, or one statement a line.
std::string block_title(const Block& block) {
  std::string text = block.to_string();
  for (std::size_t i = text.find("; "); i != std::string::npos; i = text.find("; ", i)) text[i + 1] = '\n';
  return text;
}

// The statements of a picture, nodes by their identifiers.
class Picture {
 public:
  explicit Picture(const std::string& title) {
    text_ = "digraph \"plan\" {\n  label=" + quoted(title) +
            ";\n  labelloc=\"t\";\n  node [shape=\"box\", fontname=\"Helvetica\", fontsize=\"10\"];\n"
            "  edge [fontname=\"Helvetica\", fontsize=\"9\"];\n"
            "  graph [fontname=\"Helvetica\", fontsize=\"11\"];\n";
  }

  void node(const std::string& id, const std::string& label, const std::string& shape, bool left = false) {
    text_ += indent_ + quoted(id) + " [label=" + quoted(label, left) + ", shape=" + quoted(shape) + "];\n";
  }
  // Each edge once, and none from a node to itself.
  void edge(const std::string& from, const std::string& to) {
    if (from != to && edges_.insert({from, to}).second)
      arrows_ += "  " + quoted(from) + " -> " + quoted(to) + ";\n";
  }
  void open_frame(const std::string& id, const std::string& label) {
    text_ += "  subgraph " + quoted("cluster_" + id) + " {\n    label=" + quoted(label) + ";\n";
    indent_ = "    ";
  }
  void close_frame() {
    text_ += "  }\n";
    indent_ = "  ";
  }
  std::string finish() const { return text_ + arrows_ + "}\n"; }

 private:
  std::string text_;
  std::string arrows_;
  std::string indent_ = "  ";
  std::set<std::pair<std::string, std::string>> edges_;
};

class ScheduleDrawer {
 public:
  ScheduleDrawer(const Schedule& schedule, const DeviceDescription& device)
      : schedule_(schedule),
        narrator_(schedule),
        cost_(device, schedule.block),
        estimates_(estimate_steps(schedule, cost_)),
        picture_(block_title(schedule.block.block()) + "\non " + device.name + ", about " +
                 time_text(total(estimates_).seconds)) {}

  std::string run() {
    draw_slots();
    for (std::size_t i = 0; i < schedule_.steps.size(); ++i) {
      const ScheduleStep& step = schedule_.steps[i];
      const std::string id = "step" + std::to_string(i + 1);
      const std::string title = std::to_string(i + 1) + "  ";
      switch (step.kind) {
        case StepKind::kSweep: draw_sweep(step.sweep, id, title, estimates_[i]); break;
        case StepKind::kFinalise: draw_finalise(step, id, title); break;
        case StepKind::kPool:
        case StepKind::kHostCall: draw_stage(step, id, title, estimates_[i]); break;
      }
    }
    return picture_.finish();
  }

 private:
  static std::string slot_id(int slot) { return "slot" + std::to_string(slot); }

  // Arguments, outputs and stored values are places of their own. A statistic is drawn as the step that makes it.
  void draw_slots() {
    for (int slot = 0; slot < static_cast<int>(schedule_.slots.size()); ++slot) {
      const Slot& which = schedule_.slots[at(slot)];
      const std::string name = narrator_.slot_label(slot);
      const std::string size = amount(slot_bytes(schedule_, slot, cost_), "B");
      if (which.kind == SlotKind::kArgument)
        picture_.node(slot_id(slot), name + "\n" + size, "ellipse");
      else if (which.kind == SlotKind::kOutput && !which.borrowed)
        picture_.node(slot_id(slot), name + "\n" + size, "doubleoctagon");
      else if (which.kind == SlotKind::kStored || which.borrowed)
        picture_.node(slot_id(slot), name + "\n" + size, "cylinder");
      else
        continue;
      made_by_[slot] = slot_id(slot);
    }
  }

  void read(int slot, const std::string& reader) {
    const auto maker = slot < 0 ? made_by_.end() : made_by_.find(slot);
    if (maker != made_by_.end()) picture_.edge(maker->second, reader);
  }

  void write(int slot, const std::string& writer) {
    if (made_by_.contains(slot) && made_by_[slot] == slot_id(slot))
      picture_.edge(writer, slot_id(slot));
    else
      made_by_[slot] = writer;
  }

  void draw_sweep(const Sweep& sweep, const std::string& id, const std::string& title,
                  const StepEstimate& estimate) {
    picture_.open_frame(id, title + "sweep over " + extents_text(sweep.domain) + ", about " +
                                time_text(estimate.seconds) + "\n" + amount(estimate.operations) +
                                " operations, " + amount(estimate.read_bytes, "B") + " read, " +
                                amount(estimate.written_bytes, "B") + " written");
    const std::string source = id + "_source";
    picture_.node(source, narrator_.source(sweep), "box");
    std::string last = draw_program(narrator_.program(sweep), id + "_program", source);
    const std::string program = last;
    draw_sinks(sweep.sinks, id + "_sink", last);
    const std::string reduced = sweep.sinks.empty() ? last : id + "_sink0";
    last = draw_program(narrator_.epilogue(sweep), id + "_epilogue", reduced);
    const std::string epilogue = last;
    draw_sinks(sweep.epilogue.sinks, id + "_epilogue_sink", last);
    picture_.close_frame();

    for (const Prologue& prologue : sweep.staged)
      for (int slot : prologue.inputs) read(slot, source);
    read(sweep.weight, source);
    read(sweep.bias, source);
    for (int slot : sweep.inputs) {
      const bool whole = slot >= 0 && sweep.source < 0 && schedule_.slots[at(slot)].extents == sweep.domain;
      read(slot, whole ? source : program);
    }
    for (int slot : sweep.epilogue.inputs)
      if (slot >= 0 && schedule_.slots[at(slot)].kind != SlotKind::kTile) read(slot, epilogue);
    write_sinks(sweep.sinks, id + "_sink");
    write_sinks(sweep.epilogue.sinks, id + "_epilogue_sink");
  }

  // The node that the program's results come from: its own, or where it is empty what stands before it.
  std::string draw_program(const std::vector<std::string>& lines, const std::string& id,
                           const std::string& before) {
    if (lines.empty()) return before;
    picture_.node(id, joined(lines), "box", true);
    picture_.edge(before, id);
    return id;
  }

  void draw_sinks(const std::vector<Sink>& sinks, const std::string& id, const std::string& from) {
    for (std::size_t i = 0; i < sinks.size(); ++i) {
      picture_.node(id + std::to_string(i), narrator_.sink(sinks[i]), "box");
      picture_.edge(from, id + std::to_string(i));
    }
  }

  void write_sinks(const std::vector<Sink>& sinks, const std::string& id) {
    for (std::size_t i = 0; i < sinks.size(); ++i)
      for (int slot : sinks[i].slots)
        if (schedule_.slots[at(slot)].kind != SlotKind::kTile) write(slot, id + std::to_string(i));
  }

  void draw_finalise(const ScheduleStep& step, const std::string& id, const std::string& title) {
    std::vector<std::string> lines = {title + "finalise"};
    for (const std::string& line : narrator_.statistics(step)) lines.push_back(line);
    picture_.node(id, joined(lines), "note", true);
    for (int part : step.parts)
      for (int operand : schedule_.graph[part].operands)
        for (int slot = 0; slot < static_cast<int>(schedule_.slots.size()); ++slot)
          if (schedule_.slots[at(slot)].part == operand &&
              schedule_.slots[at(slot)].kind != SlotKind::kOutput)
            read(slot, id);
    for (int slot = 0; slot < static_cast<int>(schedule_.slots.size()); ++slot) {
      const Slot& which = schedule_.slots[at(slot)];
      for (int part : step.parts)
        if (which.part == part && which.kind == SlotKind::kStatistic) made_by_[slot] = id;
    }
    for (int slot : step.operands) {
      // An output may be a statistic that a sweep has taken.
      for (int other = 0; other < static_cast<int>(schedule_.slots.size()); ++other)
        if (schedule_.slots[at(other)].part == schedule_.slots[at(slot)].part &&
            schedule_.slots[at(other)].kind == SlotKind::kStatistic)
          read(other, id);
      write(slot, id);
    }
  }

  void draw_stage(const ScheduleStep& step, const std::string& id, const std::string& title,
                  const StepEstimate& estimate) {
    picture_.node(id, title + narrator_.stage(step) + "\nabout " + time_text(estimate.seconds), "box");
    for (int slot : step.operands) read(slot, id);
    write(step.result, id);
  }

  const Schedule& schedule_;
  Narrator narrator_;
  CostModel cost_;
  std::vector<StepEstimate> estimates_;
  Picture picture_;
  std::map<int, std::string> made_by_;  // by slot: the node that its readers come from
};

}  // namespace

std::string schedule_dot(const Schedule& schedule, const DeviceDescription& device) {
  return ScheduleDrawer(schedule, device).run();
}

std::string block_dot(const TypedBlock& block, const DeviceDescription& device) {
  const Block& graph = block.block();
  Picture picture(block_title(graph) + "\non " + device.name);
  auto id = [](Value value) { return "value" + std::to_string(value.id); };
  for (Value argument : graph.arguments())
    picture.node(id(argument), graph.value(argument).name + "\n" + to_string(block.type(argument)),
                 "ellipse");
  for (int node = 0; node < static_cast<int>(graph.nodes().size()); ++node) {
    const Node& which = graph.nodes()[at(node)];
    picture.node(id(which.result), graph.stage_text(node) + "\n" + to_string(block.type(which.result)),
                 "box");
    for (const Operand& operand : which.operands)
      if (!operand.is_scalar()) picture.edge(id(operand.value()), id(which.result));
  }
  const std::span<const Value> outputs = graph.outputs();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string output = "output" + std::to_string(i);
    picture.node(output, graph.value(outputs[i]).name, "doubleoctagon");
    picture.edge(id(outputs[i]), output);
  }
  return picture.finish();
}

}  // namespace fuseblock
