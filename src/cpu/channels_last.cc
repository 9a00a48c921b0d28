#include "cpu/channels_last.h"

#include <algorithm>

#include "cpu/position_statistic.h"
#include "cpu/prologue_runner.h"
#include "cpu/turned.h"

namespace fuseblock::cpu {
namespace {

// More channels do not fit L1 together.
constexpr std::int64_t kMostChannels = 4096;
// Nor do they where samples are the positions, but the other kind of sweep would take each element by itself.
constexpr std::int64_t kMostTurnedChannels = 65536;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class Finder {
 public:
  explicit Finder(const Schedule& schedule) : schedule_(schedule) {
    choice_.steps.assign(schedule.steps.size(), false);
    choice_.slots.assign(schedule.slots.size(), false);
  }

  ChannelsLastChoice run() {
    for (std::size_t i = 0; i < schedule_.steps.size(); ++i) {
      const ScheduleStep& step = schedule_.steps[i];
      choice_.steps[i] = step.kind == StepKind::kSweep ? fits(step.sweep) : fits_pool(step);
    }
    for (const Kept& kept : schedule_.kept)
      for (int i = kept.first; i <= kept.last; ++i) choice_.steps[at(i)] = false;
    for (std::size_t i = 0; i < schedule_.slots.size(); ++i)
      choice_.slots[i] = schedule_.slots[i].kind == SlotKind::kStored && is_large(static_cast<int>(i)) &&
                         (is_fixed(static_cast<int>(i)) || !schedule_.slots[i].dtype);
    while (drop_slots() || drop_steps()) {
    }
    for (std::size_t i = 0; i < schedule_.steps.size(); ++i)
      if (schedule_.steps[i].kind != StepKind::kSweep) choice_.steps[i] = false;
    find_together();
    return choice_;
  }

 private:
  const Slot& slot(int i) const { return schedule_.slots[at(i)]; }
  // Whether the slot varies along channels and positions.
  bool is_large(int i) const { return slot(i).extents[1] != 1 && slot_varies(schedule_, i); }

  // Whether the slot lies channels_last whoever touches it.
  bool is_fixed(int i) const {
    return slot(i).kind == SlotKind::kStored && slot(i).layout == fuseblock::Layout::kChannelsLast;
  }

  static std::vector<int> operands_of(const ScheduleStep& step) {
    std::vector<int> slots = step.operands;
    if (step.result >= 0) slots.push_back(step.result);
    const Sweep& sweep = step.sweep;
    slots.insert(slots.end(), sweep.inputs.begin(), sweep.inputs.end());
    slots.insert(slots.end(), sweep.epilogue.inputs.begin(), sweep.epilogue.inputs.end());
    for (const std::vector<Sink>* sinks : {&sweep.sinks, &sweep.epilogue.sinks})
      for (const Sink& sink : *sinks) slots.insert(slots.end(), sink.slots.begin(), sink.slots.end());
    for (const Prologue& prologue : sweep.staged)
      slots.insert(slots.end(), prologue.inputs.begin(), prologue.inputs.end());
    slots.push_back(sweep.weight);
    slots.push_back(sweep.bias);
    std::erase_if(slots, [](int i) { return i < 0; });
    return slots;
  }

  bool fits(const Sweep& sweep) const {
    const Extents& domain = sweep.domain;
    if (sweep.source >= 0 || !sweep.staged.empty()) return false;
    if (!over_positions(sweep.domain)) return fits_turned(sweep);
    const std::int64_t positions = domain[2] * domain[3] * domain[4];
    if (domain[0] == 0 || positions == 0 || domain[1] < 2 || domain[1] > kMostChannels) return false;
    for (const Sink& sink : sweep.sinks) {
      if (sink.kind == SinkKind::kContract) return false;
      if (sink.kind != SinkKind::kStatistic) continue;
      const Part& part = schedule_.graph[sink.part];
      if (leaves_positions(part, domain)) return false;
      if (part.axes != AxisSet{Axis::kC} && part.statistic == Statistic::kExpSum) return false;
    }
    bool any = false;
    auto is_ours = [&](int i) {
      any = any || is_large(i);
      return can_be_ours(i);
    };
    for (int i : sweep.inputs)
      if (!is_ours(i)) return false;
    for (const Sink& sink : sweep.sinks)
      if (sink.kind == SinkKind::kStore && !is_ours(sink.slots[0])) return false;
    return any;
  }

  // Any layout: without positions there is one order.
  static bool fits_turned(const Sweep& sweep) {
    const Extents& domain = sweep.domain;
    return domain[0] > 1 && domain[1] > 1 && domain[1] <= kMostTurnedChannels &&
           std::none_of(sweep.sinks.begin(), sweep.sinks.end(),
                        [](const Sink& sink) { return sink.kind == SinkKind::kContract; });
  }

  // Pools take any layout; where all is channels_last, their vectors go along the channels.
  bool fits_pool(const ScheduleStep& step) const {
    return step.kind == StepKind::kPool && can_be_ours(step.result) &&
           std::all_of(step.operands.begin(), step.operands.end(), [&](int i) { return can_be_ours(i); });
  }

  bool can_be_ours(int i) const {
    return !is_large(i) || slot(i).kind == SlotKind::kStored || is_channels_last(i);
  }

  bool is_channels_last(int i) const {
    const auto number = at(slot(i).number);
    if (slot(i).kind == SlotKind::kArgument)
      return schedule_.inputs[number].type.layout == fuseblock::Layout::kChannelsLast;
    if (slot(i).kind == SlotKind::kOutput)
      return schedule_.outputs[number].type.layout == fuseblock::Layout::kChannelsLast;
    return false;
  }

  // Stored values that another kind of step touches stay contiguous.
  bool drop_slots() {
    bool changed = false;
    for (std::size_t step = 0; step < schedule_.steps.size(); ++step) {
      if (choice_.steps[step]) continue;
      for (int i : operands_of(schedule_.steps[step])) {
        if (!choice_.slots[at(i)] || is_fixed(i)) continue;
        choice_.slots[at(i)] = false;
        changed = true;
      }
    }
    return changed;
  }

  // Steps that touch a contiguous stored value are not ours.
  bool drop_steps() {
    bool changed = false;
    for (std::size_t step = 0; step < schedule_.steps.size(); ++step) {
      if (!choice_.steps[step]) continue;
      const std::vector<int> operands = operands_of(schedule_.steps[step]);
      const bool mixed = std::any_of(operands.begin(), operands.end(), [&](int i) {
        return slot(i).kind == SlotKind::kStored && is_large(i) && !choice_.slots[at(i)];
      });
      if (!mixed) continue;
      choice_.steps[step] = false;
      changed = true;
    }
    return changed;
  }

  void find_together() {
    const auto count = static_cast<int>(schedule_.steps.size());
    for (int i = 0; i < count; ++i) choice_.together.push_back(i);
    for (int first = 0; first < count; ++first) {
      if (!choice_.steps[at(first)]) continue;
      std::vector<int> read;  // slots, by the sweeps, as the next
      std::vector<int> written;
      std::vector<int> made;  // parts, by finalise steps
      int last = first;
      for (int i = first; i < count; ++i) {
        const ScheduleStep& step = schedule_.steps[at(i)];
        if (step.kind == StepKind::kFinalise) {
          made.insert(made.end(), step.parts.begin(), step.parts.end());
          continue;
        }
        if (!choice_.steps[at(i)] || step.sweep.domain != schedule_.steps[at(first)].sweep.domain ||
            !reads_only_here(step.sweep, written, made) || overwrites(step.sweep, read))
          break;
        read.insert(read.end(), step.sweep.inputs.begin(), step.sweep.inputs.end());
        for (const std::vector<Sink>* sinks : {&step.sweep.sinks, &step.sweep.epilogue.sinks})
          for (const Sink& sink : *sinks) written.insert(written.end(), sink.slots.begin(), sink.slots.end());
        choice_.together[at(i)] = first;
        last = i;
      }
      first = last;
    }
  }

  // Whether what the sweep reads of `written` is there for each position by itself, and nothing of `made`.
  bool reads_only_here(const Sweep& sweep, const std::vector<int>& written,
                       const std::vector<int>& made) const {
    auto is_in = [](const std::vector<int>& list, int value) {
      return std::find(list.begin(), list.end(), value) != list.end();
    };
    auto is_here = [&](int i) {
      const Extents& extents = slot(i).extents;
      const bool everywhere = extents[0] == sweep.domain[0] && extents[2] == sweep.domain[2] &&
                              extents[3] == sweep.domain[3] && extents[4] == sweep.domain[4];
      return !is_in(made, slot(i).part) && (everywhere || !is_in(written, i));
    };
    return std::all_of(sweep.inputs.begin(), sweep.inputs.end(), is_here) &&
           std::all_of(sweep.epilogue.inputs.begin(), sweep.epilogue.inputs.end(),
                       [&](int i) { return slot(i).kind == SlotKind::kTile || is_here(i); });
  }

  // Whether the sweep writes an output over a value of `read` that lies in its memory.
  bool overwrites(const Sweep& sweep, const std::vector<int>& read) const {
    return std::any_of(sweep.sinks.begin(), sweep.sinks.end(), [&](const Sink& sink) {
      return sink.kind == SinkKind::kStore && std::any_of(read.begin(), read.end(), [&](int i) {
               return slot(i).borrowed && slot(i).number == slot(sink.slots[0]).number;
             });
    });
  }

  const Schedule& schedule_;
  ChannelsLastChoice choice_;
};

}  // namespace

ChannelsLastChoice find_channels_last(const Schedule& schedule) { return Finder(schedule).run(); }

}  // namespace fuseblock::cpu
