#include "cpu/position_sinks.h"

#include <algorithm>
#include <vector>

namespace fuseblock::cpu {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class Rewriter {
 public:
  explicit Rewriter(Schedule& schedule) : schedule_(schedule) {}

  void run() {
    for (ScheduleStep& step : schedule_.steps) {
      if (step.kind != StepKind::kSweep || !over_positions(step.sweep.domain)) continue;
      if (std::find(step.sweep.domain.begin(), step.sweep.domain.end(), 0) != step.sweep.domain.end())
        continue;
      std::vector<Sink> sinks;
      for (const Sink& sink : step.sweep.sinks) rewrite(sink, sinks);
      step.sweep.sinks = std::move(sinks);
    }
    for (ScheduleStep& step : schedule_.steps)
      if (step.kind == StepKind::kFinalise)
        std::erase_if(step.parts, [&](int part) {
          return std::find(taken_.begin(), taken_.end(), part) != taken_.end();
        });
  }

 private:
  Part& part(int number) { return schedule_.graph.parts[at(number)]; }

  // Adds what becomes of a sink.
  void rewrite(const Sink& sink, std::vector<Sink>& sinks) {
    const bool of_elements = sink.kind == SinkKind::kStatistic && part(sink.part).axes.empty();
    if (!of_elements || !is_only_merged(sink.part)) {
      sinks.push_back(sink);
      return;
    }
    AxisSet common = kSpatialAxes;  // of the merges that need more than positions
    std::vector<int> others;
    for (int number : merges_of(sink.part)) {
      if (!kSpatialAxes.contains_all(part(number).axes)) {
        others.push_back(number);
        common = common - (kSpatialAxes - part(number).axes);
        continue;
      }
      sinks.push_back(taken_by(number, sink));
    }
    if (others.empty()) {
      for (int slot : sink.slots) schedule_.slots[at(slot)].kind = SlotKind::kTile;
      return;
    }
    sinks.push_back(sink);
    if (common.empty()) return;
    Part& fine = part(sink.part);
    reduce(fine, common);
    for (int slot : sink.slots) schedule_.slots[at(slot)].extents = fine.extents;
    for (int number : others) part(number).axes = part(number).axes - common;
  }

  // Whether a statistic of elements is there for merges over positions alone, or over positions and more.
  bool is_only_merged(int number) {
    const std::vector<int>& outputs = schedule_.graph.outputs;
    if (std::find(outputs.begin(), outputs.end(), number) != outputs.end()) return false;
    for (const Part& user : schedule_.graph.parts)
      if (user.kind != PartKind::kMerge &&
          std::find(user.operands.begin(), user.operands.end(), number) != user.operands.end())
        return false;
    return true;
  }

  std::vector<int> merges_of(int number) {
    std::vector<int> found;
    for (int i = 0; i < static_cast<int>(schedule_.graph.parts.size()); ++i)
      if (part(i).kind == PartKind::kMerge && part(i).operands[0] == number) found.push_back(i);
    return found;
  }

  // The merge as a statistic that the sweep takes.
  Sink taken_by(int number, const Sink& sink) {
    Part& whole = part(number);
    whole.kind = PartKind::kReduce;
    whole.operands = part(sink.part).operands;
    taken_.push_back(number);
    Sink result = sink;
    result.part = number;
    for (std::size_t i = 0; i < result.slots.size(); ++i)
      result.slots[i] = schedule_.statistic_slot(number, static_cast<int>(i));
    return result;
  }

  static void reduce(Part& part, AxisSet axes) {
    part.axes = axes;
    for (Axis axis : axes.list()) {
      std::int64_t& extent = part.extents[at(index(axis))];
      part.count *= extent;
      extent = 1;
    }
  }

  Schedule& schedule_;
  std::vector<int> taken_;  // merges that sweeps take over
};

}  // namespace

void take_over_positions(Schedule& schedule) { Rewriter(schedule).run(); }

}  // namespace fuseblock::cpu
