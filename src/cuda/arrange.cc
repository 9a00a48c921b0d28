#include "cuda/arrange.h"

#include <algorithm>
#include <utility>

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// Leaves the steps and the inputs that the sinks need.
void prune(Sweep& sweep) {
  std::vector<bool> needed(sweep.steps.size(), false);
  for (const Sink& sink : sweep.sinks) needed[at(sink.step)] = true;
  for (std::size_t i = sweep.steps.size(); i-- > 0;)
    if (needed[i])
      for (std::int32_t operand : {sweep.steps[i].a, sweep.steps[i].b, sweep.steps[i].c})
        if (operand >= 0) needed[at(operand)] = true;
  std::vector<std::int32_t> places(sweep.steps.size(), -1);
  std::vector<std::int32_t> input_places(sweep.inputs.size(), -1);
  std::vector<Formula::Step> steps;
  std::vector<int> inputs;
  for (std::size_t i = 0; i < sweep.steps.size(); ++i) {
    if (!needed[i]) continue;
    Formula::Step step = sweep.steps[i];
    for (std::int32_t* operand : {&step.a, &step.b, &step.c})
      if (*operand >= 0) *operand = places[at(*operand)];
    if (step.primitive == Primitive::kInput) {
      std::int32_t& place = input_places[at(step.input)];
      if (place < 0) {
        place = static_cast<std::int32_t>(inputs.size());
        inputs.push_back(sweep.inputs[at(step.input)]);
      }
      step.input = place;
    }
    places[i] = static_cast<std::int32_t>(steps.size());
    steps.push_back(step);
  }
  for (Sink& sink : sweep.sinks) sink.step = places[at(sink.step)];
  sweep.steps = std::move(steps);
  sweep.inputs = std::move(inputs);
}

class Arranger {
 public:
  explicit Arranger(Schedule schedule)
      : schedule_(std::move(schedule)), late_(schedule_.graph.parts.size(), false) {}

  Schedule run() {
    std::vector<ScheduleStep> steps = std::move(schedule_.steps);
    schedule_.steps.clear();
    for (ScheduleStep& step : steps) {
      switch (step.kind) {
        case StepKind::kSweep: add_sweep(std::move(step)); break;
        case StepKind::kFinalise: add_finalise(std::move(step)); break;
        default:
          if (std::any_of(step.operands.begin(), step.operands.end(),
                          [&](int slot) { return slot_is_late(slot); }))
            flush();
          schedule_.steps.push_back(std::move(step));
      }
    }
    flush();
    return std::move(schedule_);
  }

 private:
  bool over_channels(const Sink& sink) const {
    return sink.kind == SinkKind::kStatistic && schedule_.graph[sink.part].axes == AxisSet{Axis::kC};
  }
  bool is_late(int part) const {
    const Part& which = schedule_.graph[part];
    return late_[at(part)] || (which.kind == PartKind::kComponent && late_[at(which.operands[0])]);
  }
  bool slot_is_late(int slot) const { return slot >= 0 && is_late(schedule_.slots[at(slot)].part); }

  // Statistics of single elements, of which others over some of the positions' axes are made, are stored values: the
  // element, and what a statistic of one element has beside it.
  void store_elements(Sweep& sweep) const {
    std::vector<Sink> sinks;
    for (const Sink& sink : sweep.sinks) {
      const bool single = sink.kind == SinkKind::kStatistic && schedule_.graph[sink.part].axes.empty() &&
                          over_positions(sweep.domain);
      if (!single) {
        sinks.push_back(sink);
        continue;
      }
      sinks.push_back({SinkKind::kStore, sink.step, sink.part, {sink.slots[0]}});
      if (sink.slots.size() < 2) continue;
      Formula::Step constant;
      constant.constant = schedule_.graph[sink.part].statistic == Statistic::kExpSum ? 1 : 0;
      sweep.steps.push_back(constant);
      sinks.push_back(
          {SinkKind::kStore, static_cast<int>(sweep.steps.size()) - 1, sink.part, {sink.slots[1]}});
    }
    sweep.sinks = std::move(sinks);
  }

  void add_sweep(ScheduleStep step) {
    if (step.sweep.source < 0) store_elements(step.sweep);
    for (const std::vector<int>* inputs : {&step.sweep.inputs, &step.sweep.epilogue.inputs})
      if (std::any_of(inputs->begin(), inputs->end(), [&](int slot) { return slot_is_late(slot); })) flush();
    std::vector<Sink> others;
    for (const Sink& sink : step.sweep.sinks)
      if (sink.kind == SinkKind::kStatistic && !over_channels(sink)) others.push_back(sink);
    const bool mixed = !others.empty() && step.sweep.source < 0 &&
                       std::any_of(
                           step.sweep.sinks.begin(), step.sweep.sinks.end(),
                           [&](const Sink& sink) { return over_channels(sink); });
    if (mixed) {
      ScheduleStep second = step;
      second.sweep.epilogue = {};
      second.sweep.sinks = others;
      for (const Sink& sink : others) late_[at(sink.part)] = true;
      prune(second.sweep);
      delayed_.push_back(std::move(second));
      std::erase_if(step.sweep.sinks, [&](const Sink& sink) {
        return sink.kind == SinkKind::kStatistic && !over_channels(sink);
      });
      prune(step.sweep);
    }
    schedule_.steps.push_back(std::move(step));
  }

  void add_finalise(ScheduleStep step) {
    ScheduleStep early;
    early.kind = StepKind::kFinalise;
    ScheduleStep late = early;
    for (int part : step.parts) {
      const std::vector<int>& operands = schedule_.graph[part].operands;
      const bool waits =
          std::any_of(operands.begin(), operands.end(), [&](int operand) { return is_late(operand); });
      if (waits) late_[at(part)] = true;
      (waits ? late : early).parts.push_back(part);
    }
    for (int slot : step.operands) (slot_is_late(slot) ? late : early).operands.push_back(slot);
    if (!early.parts.empty() || !early.operands.empty()) schedule_.steps.push_back(std::move(early));
    if (!late.parts.empty() || !late.operands.empty()) delayed_.push_back(std::move(late));
  }

  void flush() {
    for (ScheduleStep& step : delayed_) schedule_.steps.push_back(std::move(step));
    delayed_.clear();
    late_.assign(late_.size(), false);
  }

  Schedule schedule_;
  std::vector<bool> late_;  // by part: made by a step that waits
  std::vector<ScheduleStep> delayed_;
};

}  // namespace

Schedule arranged(Schedule schedule) { return Arranger(std::move(schedule)).run(); }

}  // namespace fuseblock::cuda
