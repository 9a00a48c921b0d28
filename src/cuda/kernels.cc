#include "cuda/kernels.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "cuda/arrange.h"
#include "cuda/conv_sum.h"
#include "plan/narrator.h"

namespace fuseblock::cuda {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class Cutter {
 public:
  Cutter(const Schedule& schedule, const CutLimits& limits)
      : schedule_(schedule), limits_(limits), gathered_(gathered_sums(schedule)) {}

  std::vector<KernelCut> run() {
    std::vector<KernelCut> cuts;
    const int count = static_cast<int>(schedule_.steps.size());
    for (int first = 0; first < count;) {
      if (varies_over_positions(schedule_, step(first))) {
        for (int number : step(first).parts)
          if (part(number).kind != PartKind::kComponent)
            cuts.push_back(
                {.kind = KernelKind::kFinalise, .first = first, .last = first, .remaining = {number}});
        if (!step(first).operands.empty())
          cuts.push_back({.kind = KernelKind::kFinalise,
                          .first = first,
                          .last = first,
                          .outputs = step(first).operands});
        ++first;
        continue;
      }
      KernelCut cut = longest_from(first);
      first = cut.last + 1;
      cuts.push_back(std::move(cut));
    }
    for (KernelCut& cut : cuts) {
      find_shared(cut);
      if (cut.kind == KernelKind::kRows && is_channels_last(cut)) cut.kind = KernelKind::kSlices;
    }
    return cuts;
  }

 private:
  const ScheduleStep& step(int i) const { return schedule_.steps[at(i)]; }
  const Part& part(int i) const { return schedule_.graph[i]; }

  KernelCut longest_from(int first) {
    switch (step(first).kind) {
      case StepKind::kPool: return {.kind = KernelKind::kPool, .first = first, .last = first};
      case StepKind::kHostCall: return {.kind = KernelKind::kHostCall, .first = first, .last = first};
      case StepKind::kSweep: check(step(first).sweep); break;
      case StepKind::kFinalise: break;
    }
    if (step(first).kind == StepKind::kSweep && step(first).sweep.source >= 0) return conv_from(first);
    std::optional<KernelCut> rows = rows_from(first);
    if (rows) return *rows;
    if (step(first).kind == StepKind::kSweep) return columns_from(first);
    KernelCut cut = {.kind = KernelKind::kFinalise, .first = first, .last = first};
    cut.remaining = step(first).parts;
    cut.outputs = step(first).operands;
    return cut;
  }

  // A sweep over a convolution, and the finalise steps behind it. A unit is a sample.
  KernelCut conv_from(int first) {
    KernelCut cut = {.kind = KernelKind::kConvDirect, .first = first, .last = first};
    const Sweep& sweep = step(first).sweep;
    const ConvKernel kernel = conv_kernel(schedule_, sweep);
    if (kernel == ConvKernel::kDirect) return cut;
    made_.assign(schedule_.graph.parts.size(), false);
    local_ = made_;
    cut.kind = kernel == ConvKernel::kConv ? KernelKind::kConv : KernelKind::kConvWide;
    cut.unit_channels = sweep.domain[1];
    bool statistics = false;
    for (const Sink& sink : sweep.sinks) {
      if (sink.kind != SinkKind::kStatistic || part(sink.part).axes == AxisSet{Axis::kC}) continue;
      made_[at(sink.part)] = local_[at(sink.part)] = statistics = true;
    }
    for (int i = first + 1; statistics && i < static_cast<int>(schedule_.steps.size()); ++i) {
      if (step(i).kind != StepKind::kFinalise || varies_over_positions(schedule_, step(i))) break;
      for (int number : step(i).parts) {
        learn(number, sweep.domain);
        if (!local_[at(number)]) cut.remaining.push_back(number);
      }
      cut.last = i;
    }
    cut.local = local_;
    return cut;
  }

  // Sweeps over one domain that store, reduce over channels or gather sums, and read of each other only such reductions;
  // behind gathered sums the finalise steps too.
  KernelCut columns_from(int first) const {
    KernelCut cut = {.kind = KernelKind::kColumns, .first = first, .last = first};
    std::vector<bool> stored(schedule_.graph.parts.size(), false);
    bool gathers = false;
    int i = first;
    for (; i < static_cast<int>(schedule_.steps.size()) && step(i).kind == StepKind::kSweep; ++i) {
      const Sweep& sweep = step(i).sweep;
      if (i > first &&
          (sweep.domain != step(first).sweep.domain || !is_for_columns(schedule_, sweep, gathered_)))
        break;
      auto is_stored = [&](int slot) { return stored[at(schedule_.slots[at(slot)].part)]; };
      if (std::any_of(sweep.inputs.begin(), sweep.inputs.end(), is_stored) ||
          std::any_of(sweep.epilogue.inputs.begin(), sweep.epilogue.inputs.end(), is_stored))
        break;
      for (const std::vector<Sink>* sinks : {&sweep.sinks, &sweep.epilogue.sinks})
        for (const Sink& sink : *sinks)
          if (sink.kind == SinkKind::kStore) stored[at(schedule_.slots[at(sink.slots[0])].part)] = true;
      for (const Sink& sink : sweep.sinks)
        gathers = gathers || (sink.kind == SinkKind::kStatistic && gathered_[at(sink.part)]);
      cut.last = i;
    }
    for (; gathers && i < static_cast<int>(schedule_.steps.size()); ++i) {
      if (step(i).kind != StepKind::kFinalise || varies_over_positions(schedule_, step(i))) break;
      cut.remaining.insert(cut.remaining.end(), step(i).parts.begin(), step(i).parts.end());
      cut.last = i;
    }
    return cut;
  }

  void check(const Sweep& sweep) const {
    const Narrator narrator(schedule_);
    if (sweep.source >= 0) {
      const ConvSum conv = conv_sum(schedule_, sweep.source);
      if (!conv.gathers && conv.geometry.pad_mode != PadMode::kZeros)
        throw NotSupportedError("cuda: " + narrator.source(sweep) +
                                ": there is no kernel for gradients of padding that repeats elements yet");
    }
    for (const Sink& sink : sweep.sinks) {
      if (sink.kind == SinkKind::kContract)
        throw NotSupportedError("cuda: " + narrator.sink(sink) +
                                ": there is no kernel for weight gradients yet");
    }
  }

  // Sweeps that take statistics for each sample and channel alone, over one domain, and the finalise steps before,
  // between and behind them.
  std::optional<KernelCut> rows_from(int first) {
    made_.assign(schedule_.graph.parts.size(), false);
    local_ = made_;
    unit_channels_ = 1;
    std::int64_t numbers = 0;
    std::optional<KernelCut> best;
    const Extents* domain = nullptr;
    for (int i = first; i < static_cast<int>(schedule_.steps.size()) && domain == nullptr; ++i)
      if (step(i).kind == StepKind::kSweep) domain = &step(i).sweep.domain;
    if (domain == nullptr) return std::nullopt;
    KernelCut cut = {.kind = KernelKind::kRows, .first = first};
    for (int i = first; i < static_cast<int>(schedule_.steps.size()); ++i) {
      if (step(i).kind == StepKind::kFinalise) {
        if (varies_over_positions(schedule_, step(i))) break;
        for (int number : step(i).parts) {
          learn(number, *domain);
          if (!local_[at(number)]) cut.remaining.push_back(number);
          numbers += 2;
        }
      } else {
        if (step(i).kind != StepKind::kSweep || !is_plain(step(i).sweep, *domain)) break;
        for (const Sink& sink : step(i).sweep.sinks) {
          if (sink.part < 0 || sink.kind != SinkKind::kStatistic) continue;
          made_[at(sink.part)] = local_[at(sink.part)] = true;
          numbers += 6;
        }
      }
      // The first sweep alone is always possible.
      if (best && numbers * unit_channels_ > limits_.unit_numbers) break;
      cut.last = i;
      cut.unit_channels = unit_channels_;
      cut.local = local_;
      if (best || step(i).kind == StepKind::kSweep) best = cut;
      if (i == first && step(i).kind == StepKind::kFinalise &&
          numbers * unit_channels_ > limits_.unit_numbers)
        return std::nullopt;
    }
    return best;
  }

  // Whether a unit can work a statistic out by itself, and how many channels it needs for that.
  void learn(int number, const Extents& domain) {
    const Part& which = part(number);
    bool local = which.extents[0] == domain[0] || which.extents[0] == 1;
    for (int operand : which.operands) local = local && (!made_[at(operand)] || local_[at(operand)]);
    std::int64_t needed = 1;
    const Extents& from = part(which.operands.empty() ? number : which.operands[0]).extents;
    if (which.kind == PartKind::kMerge || which.kind == PartKind::kReduce) {
      local = local && (from[0] == 1 || !which.axes.contains(Axis::kN));
      // Convolutions of the host may stand between domains of other channels.
      local = local && (from[1] == 1 || from[1] == domain[1]);
      if (which.axes.contains(Axis::kC) && from[1] != 1) needed = domain[1] / which.groups;
    } else if (which.kind == PartKind::kRegroup) {
      const bool to_groups = which.extents[1] < from[1];
      local = local && (to_groups ? from[1] : which.extents[1]) == domain[1] &&
              (to_groups || !made_[at(which.operands[0])]);
      if (to_groups) needed = from[1] / std::max<std::int64_t>(which.extents[1], 1);
    } else {
      local = local && (which.extents[1] == 1 || which.extents[1] == domain[1]);
    }
    local = local && !over_positions(which.extents) && needed > 0 && domain[1] % needed == 0;
    if (local) unit_channels_ = std::lcm(unit_channels_, needed);
    made_[at(number)] = true;
    local_[at(number)] = local;
  }

  // A sweep for this kernel: over its domain, without reductions over channels, reading nothing that needs all units.
  bool is_plain(const Sweep& sweep, const Extents& domain) const {
    if (sweep.source >= 0 || sweep.domain != domain) return false;
    for (const Sink& sink : sweep.sinks) {
      if (sink.kind == SinkKind::kContract) return false;
      if (sink.kind != SinkKind::kStatistic) continue;
      const AxisSet axes = part(sink.part).axes;
      if (axes == AxisSet{Axis::kC} || (axes.empty() && over_positions(domain))) return false;
    }
    return std::all_of(sweep.inputs.begin(), sweep.inputs.end(), [&](int slot) {
      const int read = schedule_.slots[at(slot)].part;
      const int owner = part(read).kind == PartKind::kComponent ? part(read).operands[0] : read;
      return (!made_[at(read)] || local_[at(read)]) && (!made_[at(owner)] || local_[at(owner)]);
    });
  }

  // Whether all values over the whole domain that a kernel reads and writes are channels_last, by their types.
  bool is_channels_last(const KernelCut& cut) const {
    int found = 0;
    bool all = true;
    for (int i = cut.first; i <= cut.last; ++i) {
      if (step(i).kind != StepKind::kSweep) continue;
      const Sweep& sweep = step(i).sweep;
      std::vector<int> slots = sweep.inputs;
      for (const Sink& sink : sweep.sinks) {
        if (sink.kind != SinkKind::kStore) continue;
        // A statistic that varies over positions lies as other statistics do.
        if (schedule_.slots[at(sink.slots[0])].kind == SlotKind::kStatistic) return false;
        slots.push_back(sink.slots[0]);
      }
      for (int number : slots) {
        const Slot& slot = schedule_.slots[at(number)];
        if (slot.kind == SlotKind::kStatistic || slot.extents != sweep.domain) continue;
        ++found;
        all = all && layout_of(schedule_, slot) == Layout::kChannelsLast;
      }
    }
    return found > 0 && all;
  }

  // The statistics that something outside of their unit reads: a later kernel, or what is worked out for all units.
  void find_shared(KernelCut& cut) const {
    cut.shared.assign(schedule_.graph.parts.size(), false);
    for (int i = cut.last + 1; i < static_cast<int>(schedule_.steps.size()); ++i) {
      const ScheduleStep& later = step(i);
      if (later.kind == StepKind::kFinalise)
        for (int number : later.parts)
          for (int operand : part(number).operands) share(cut, operand);
      if (later.kind != StepKind::kSweep) share_slots(cut, later.operands);
      share_slots(cut, later.sweep.inputs);
      share_slots(cut, later.sweep.epilogue.inputs);
      for (const Prologue& staged : later.sweep.staged) share_slots(cut, staged.inputs);
      share_slots(cut, {later.sweep.weight, later.sweep.bias});
    }
    cut.later = cut.shared;
    for (int number : cut.remaining)
      for (int operand : part(number).operands) share(cut, operand);
    for (int i = cut.first; i <= cut.last; ++i)
      if (step(i).kind == StepKind::kFinalise)
        for (int slot : step(i).operands) {
          const int output = schedule_.slots[at(slot)].part;
          if (std::find(cut.remaining.begin(), cut.remaining.end(), output) != cut.remaining.end())
            share(cut, output);
        }
  }

  void share_slots(KernelCut& cut, const std::vector<int>& slots) const {
    for (int slot : slots)
      if (slot >= 0) share(cut, schedule_.slots[at(slot)].part);
  }

  // A component is read out of the statistic that has it.
  void share(KernelCut& cut, int number) const {
    if (number < 0) return;
    cut.shared[at(number)] = true;
    if (part(number).kind == PartKind::kComponent) cut.shared[at(part(number).operands[0])] = true;
  }

  const Schedule& schedule_;
  CutLimits limits_;
  std::vector<bool> gathered_;
  std::vector<bool> made_;
  std::vector<bool> local_;
  std::int64_t unit_channels_ = 1;
};

}  // namespace

Layout layout_of(const Schedule& schedule, const Slot& slot) {
  if (slot.kind == SlotKind::kArgument) return schedule.inputs[at(slot.number)].type.layout;
  if (slot.kind == SlotKind::kOutput) return schedule.outputs[at(slot.number)].type.layout;
  return slot.layout;
}

bool varies_over_positions(const Schedule& schedule, const ScheduleStep& finalise) {
  if (finalise.kind != StepKind::kFinalise) return false;
  return std::any_of(finalise.parts.begin(), finalise.parts.end(),
                     [&](int number) {
                       const Part& part = schedule.graph[number];
                       return over_positions(part.extents) ||
                              std::any_of(part.operands.begin(), part.operands.end(), [&](int operand) {
                                return over_positions(schedule.graph[operand].extents);
                              });
                     }) ||
         std::any_of(finalise.operands.begin(), finalise.operands.end(),
                     [&](int slot) { return over_positions(schedule.slots[at(slot)].extents); });
}

std::vector<KernelCut> cut_into_kernels(const Schedule& schedule, const CutLimits& limits) {
  return Cutter(schedule, limits).run();
}

}  // namespace fuseblock::cuda
