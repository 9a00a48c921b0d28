#include "cuda/arrange.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cuda/conv_sum.h"
#include "plan/slot_memory.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

bool reduces_over_channels(const Schedule& schedule, const Sink& sink) {
  return sink.kind == SinkKind::kStatistic && schedule.graph[sink.part].axes == AxisSet{Axis::kC};
}

// By part: some sweep, pool or host call reads it, or what is made of it between sweeps.
std::vector<bool> read_by_sweeps(const Schedule& schedule) {
  std::vector<bool> result(schedule.graph.parts.size(), false);
  auto read = [&](const std::vector<int>& slots) {
    for (int slot : slots)
      if (slot >= 0) result[at(schedule.slots[at(slot)].part)] = true;
  };
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind != StepKind::kFinalise) read(step.operands);
    for (const std::vector<int>* slots : {&step.sweep.inputs, &step.sweep.epilogue.inputs}) read(*slots);
    for (const Prologue& prologue : step.sweep.staged) read(prologue.inputs);
  }
  for (std::size_t i = schedule.graph.parts.size(); i-- > 0;)
    if (result[i])
      for (int operand : schedule.graph.parts[i].operands) result[at(operand)] = true;
  return result;
}

// Statistics of single elements, of which others over some of the positions' axes are made, are stored values: the
// element, and what a statistic of one element has beside it.
void store_elements(const Schedule& schedule, Sweep& sweep) {
  std::vector<Sink> sinks;
  for (const Sink& sink : sweep.sinks) {
    const bool single = sink.kind == SinkKind::kStatistic && schedule.graph[sink.part].axes.empty() &&
                        over_positions(sweep.domain);
    if (!single) {
      sinks.push_back(sink);
      continue;
    }
    sinks.push_back({SinkKind::kStore, sink.step, sink.part, {sink.slots[0]}});
    if (sink.slots.size() < 2) continue;
    Formula::Step constant;
    constant.constant = schedule.graph[sink.part].statistic == Statistic::kExpSum ? 1 : 0;
    sweep.steps.push_back(constant);
    sinks.push_back({SinkKind::kStore, static_cast<int>(sweep.steps.size()) - 1, sink.part, {sink.slots[1]}});
  }
  sweep.sinks = std::move(sinks);
}

// Convolutions that no kernel takes with what follows become steps of their own that store them, once for all sweeps.
class ConvStorer {
 public:
  explicit ConvStorer(Schedule schedule)
      : schedule_(std::move(schedule)), stored_(schedule_.graph.parts.size(), -1) {}

  Schedule run() {
    std::vector<ScheduleStep> steps = std::move(schedule_.steps);
    schedule_.steps.clear();
    for (ScheduleStep& step : steps) {
      if (step.kind == StepKind::kSweep) {
        store_elements(schedule_, step.sweep);
        if (step.sweep.source >= 0 && !is_plain(step.sweep) &&
            conv_kernel(schedule_, step.sweep) == ConvKernel::kDirect)
          store_convolution(step.sweep);
      }
      schedule_.steps.push_back(std::move(step));
    }
    return std::move(schedule_);
  }

 private:
  // Whether a sink stores what the sweep's source gives.
  static bool stores_source(const Sweep& sweep, const Sink& sink) {
    const Formula::Step& step = sweep.steps[at(sink.step)];
    return sink.kind == SinkKind::kStore && step.primitive == Primitive::kInput &&
           sweep.inputs[at(step.input)] < 0;
  }
  static bool is_plain(const Sweep& sweep) {
    return std::all_of(sweep.sinks.begin(), sweep.sinks.end(),
                       [&](const Sink& sink) { return stores_source(sweep, sink); });
  }

  // The sweep reads what is stored.
  void store_convolution(Sweep& sweep) {
    const int part = sweep.source;
    int& slot = stored_[at(part)];
    for (const Sink& sink : sweep.sinks)
      if (slot < 0 && stores_source(sweep, sink) &&
          schedule_.slots[at(sink.slots[0])].kind == SlotKind::kStored) {
        slot = sink.slots[0];
        add_store(sweep, slot);
      }
    std::erase_if(sweep.sinks,
                  [&](const Sink& sink) { return stores_source(sweep, sink) && sink.slots[0] == slot; });
    if (slot < 0) {
      slot = static_cast<int>(schedule_.slots.size());
      schedule_.slots.push_back({SlotKind::kStored, -1, part, 0, schedule_.graph[part].extents});
      add_store(sweep, slot);
    }
    for (Decision& decision : schedule_.decisions)
      if (decision.value == schedule_.graph[part].name && decision.chosen == "recompute")
        decision.take("store", "no kernel computes it together with what follows");
    sweep.source = sweep.weight = sweep.bias = -1;
    std::replace(sweep.inputs.begin(), sweep.inputs.end(), -1, slot);
    prune(sweep);
  }

  // The step that stores the source of a sweep.
  void add_store(const Sweep& sweep, int slot) {
    ScheduleStep step;
    step.sweep = sweep;
    step.sweep.inputs = {-1};
    Formula::Step element;
    element.primitive = Primitive::kInput;
    element.input = 0;
    step.sweep.steps = {element};
    step.sweep.sinks = {{SinkKind::kStore, 0, sweep.source, {slot}}};
    step.sweep.epilogue = {};
    step.sweep.staged.resize(1);
    schedule_.steps.push_back(std::move(step));
  }

  Schedule schedule_;
  std::vector<int> stored_;  // by part: the slot that a convolution was stored in here
};

class Arranger {
 public:
  explicit Arranger(Schedule schedule)
      : schedule_(std::move(schedule)),
        gathered_(gathered_sums(schedule_)),
        late_(schedule_.graph.parts.size(), false),
        stored_(late_) {}

  Schedule run() {
    std::vector<ScheduleStep> steps = std::move(schedule_.steps);
    schedule_.steps.clear();
    for (ScheduleStep& step : steps) {
      switch (step.kind) {
        case StepKind::kSweep: add_sweep(std::move(step)); break;
        case StepKind::kFinalise: add_finalise(std::move(step)); break;
        default: leave_columns(); schedule_.steps.push_back(std::move(step));
      }
    }
    flush();
    for (Slot& slot : schedule_.slots)
      if (slot.kind == SlotKind::kStored && !slot.dtype && is_channels_last(slot.extents))
        slot.layout = Layout::kChannelsLast;
    return std::move(schedule_);
  }

 private:
  // Whether all values of the border that have these extents are channels_last, and there are some.
  bool is_channels_last(const Extents& extents) const {
    int found = 0;
    bool all = true;
    for (const Slot& slot : schedule_.slots) {
      const bool input = slot.kind == SlotKind::kArgument;
      if ((!input && slot.kind != SlotKind::kOutput) || slot.extents != extents) continue;
      const NamedType& border = (input ? schedule_.inputs : schedule_.outputs)[at(slot.number)];
      ++found;
      all = all && border.type.layout == Layout::kChannelsLast;
    }
    return found > 0 && all && over_positions(extents);
  }

  bool over_channels(const Sink& sink) const { return reduces_over_channels(schedule_, sink); }
  // A statistic that a kernel `columns` does not take.
  bool is_other(const Sink& sink) const {
    return sink.kind == SinkKind::kStatistic && !over_channels(sink) && !gathered_[at(sink.part)];
  }
  bool is_late(int part) const {
    const Part& which = schedule_.graph[part];
    return late_[at(part)] || (which.kind == PartKind::kComponent && late_[at(which.operands[0])]);
  }
  bool slot_is_late(int slot) const { return slot >= 0 && is_late(schedule_.slots[at(slot)].part); }

  // Whether the sweep can follow those of the kernel `columns` that stands last.
  bool stays_in_columns(const Sweep& sweep) const {
    auto is_stored = [&](int slot) { return slot >= 0 && stored_[at(schedule_.slots[at(slot)].part)]; };
    return columns_ && *columns_ == sweep.domain && is_for_columns(schedule_, sweep, gathered_) &&
           std::none_of(sweep.inputs.begin(), sweep.inputs.end(), is_stored) &&
           std::none_of(sweep.epilogue.inputs.begin(), sweep.epilogue.inputs.end(), is_stored);
  }
  void leave_columns() {
    flush();
    columns_.reset();
    stored_.assign(stored_.size(), false);
  }

  void add_sweep(ScheduleStep step) {
    for (const Prologue& staged : step.sweep.staged)
      if (std::any_of(staged.inputs.begin(), staged.inputs.end(),
                      [&](int slot) { return slot_is_late(slot); }))
        flush();
    for (const std::vector<int>* inputs : {&step.sweep.inputs, &step.sweep.epilogue.inputs})
      if (std::any_of(inputs->begin(), inputs->end(), [&](int slot) { return slot_is_late(slot); })) flush();
    const bool reduces = step.sweep.source < 0 && std::any_of(
                                                      step.sweep.sinks.begin(), step.sweep.sinks.end(),
                                                      [&](const Sink& sink) { return over_channels(sink); });
    std::vector<Sink> others;
    for (const Sink& sink : step.sweep.sinks)
      if (is_other(sink)) others.push_back(sink);
    std::optional<ScheduleStep> second;
    if (reduces && !others.empty()) {
      second = step;
      second->sweep.epilogue = {};
      second->sweep.sinks = others;
      prune(second->sweep);
      std::erase_if(step.sweep.sinks, [&](const Sink& sink) { return is_other(sink); });
      prune(step.sweep);
    }
    if (columns_ && !stays_in_columns(step.sweep)) leave_columns();
    if (reduces) columns_ = step.sweep.domain;
    if (columns_) {
      for (const std::vector<Sink>* sinks : {&step.sweep.sinks, &step.sweep.epilogue.sinks})
        for (const Sink& sink : *sinks)
          if (sink.kind == SinkKind::kStore) stored_[at(schedule_.slots[at(sink.slots[0])].part)] = true;
      for (const Sink& sink : step.sweep.sinks)
        if (sink.part >= 0 && gathered_[at(sink.part)]) late_[at(sink.part)] = true;
    }
    if (second) {
      for (const Sink& sink : others) late_[at(sink.part)] = true;
      delayed_.push_back(std::move(*second));
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
    if (!early.parts.empty() || !early.operands.empty()) {
      if (columns_) {
        leave_columns();
        schedule_.steps.push_back(std::move(step));
        return;
      }
      schedule_.steps.push_back(std::move(early));
    }
    if (!late.parts.empty() || !late.operands.empty()) delayed_.push_back(std::move(late));
  }

  void flush() {
    for (ScheduleStep& step : delayed_) schedule_.steps.push_back(std::move(step));
    delayed_.clear();
    late_.assign(late_.size(), false);
  }

  Schedule schedule_;
  std::vector<bool> gathered_;
  std::vector<bool> late_;  // by part: made by a step that waits, or at the end of a kernel
  // The domain of the kernel `columns` that stands last, where the next sweep may follow in it, and by part what it stores.
  std::optional<Extents> columns_;
  std::vector<bool> stored_;
  std::vector<ScheduleStep> delayed_;
};

}  // namespace

std::vector<bool> gathered_sums(const Schedule& schedule) {
  // Of a block's shared memory, for the sums of all channels: a fraction of what every GPU has.
  constexpr std::int64_t kMostBytes = 65536;
  const std::vector<bool> read = read_by_sweeps(schedule);
  std::vector<bool> result(schedule.graph.parts.size(), false);
  std::int64_t numbers = 0;
  std::int64_t channels = 1;
  for (const ScheduleStep& step : schedule.steps) {
    if (step.kind != StepKind::kSweep || step.sweep.source >= 0) continue;
    for (const Sink& sink : step.sweep.sinks) {
      if (sink.kind != SinkKind::kStatistic || read[at(sink.part)]) continue;
      const Part& part = schedule.graph[sink.part];
      const bool of_elements = part.axes.empty() && over_positions(step.sweep.domain);
      if (part.statistic != Statistic::kSum || part.axes.contains(Axis::kC) || of_elements) continue;
      result[at(sink.part)] = true;
      ++numbers;
      channels = std::max(channels, step.sweep.domain[1]);
    }
  }
  if (numbers * channels * byte_size(arithmetic_type(schedule.inputs)) > kMostBytes)
    result.assign(result.size(), false);
  return result;
}

bool is_for_columns(const Schedule& schedule, const Sweep& sweep, const std::vector<bool>& gathered) {
  return sweep.source < 0 && std::all_of(
                                 sweep.sinks.begin(), sweep.sinks.end(),
                                 [&](const Sink& sink) {
                                   return sink.kind == SinkKind::kStore ||
                                          reduces_over_channels(schedule, sink) ||
                                          (sink.kind == SinkKind::kStatistic && gathered[at(sink.part)]);
                                 });
}

Schedule arranged(Schedule schedule) { return Arranger(ConvStorer(std::move(schedule)).run()).run(); }

}  // namespace fuseblock::cuda
