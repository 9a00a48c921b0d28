#include "plan/keep.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace fuseblock {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class KeepFinder {
 public:
  KeepFinder(const Schedule& schedule, int element_bytes, const KeepLimits& limits)
      : schedule_(schedule), element_bytes_(element_bytes), limits_(limits) {}

  std::vector<Kept> run() {
    std::vector<Kept> found;
    const int count = static_cast<int>(schedule_.steps.size());
    for (int first = 0; first < count;) {
      const std::optional<Kept> kept = longest_from(first);
      if (kept) found.push_back(*kept);
      first = kept ? kept->last + 1 : first + 1;
    }
    return found;
  }

 private:
  const ScheduleStep& step(int i) const { return schedule_.steps[at(i)]; }

  // The longest run that begins with the sweep `first`.
  std::optional<Kept> longest_from(int first) {
    if (step(first).kind != StepKind::kSweep || !is_plain(step(first).sweep)) return std::nullopt;
    const Extents& domain = step(first).sweep.domain;
    std::optional<Kept> best;
    Kept kept;
    kept.first = first;
    made_.assign(schedule_.graph.parts.size(), false);
    local_.assign(schedule_.graph.parts.size(), false);
    block_ = 1;
    int sweeps = 0;
    for (int i = first; i < static_cast<int>(schedule_.steps.size()); ++i) {
      if (step(i).kind == StepKind::kFinalise) {
        learn_finalise(step(i), domain);
        continue;
      }
      if (step(i).kind != StepKind::kSweep) break;
      const Sweep& sweep = step(i).sweep;
      if (!is_plain(sweep) || sweep.domain != domain || !reads_local(sweep)) break;
      for (const Sink& sink : sweep.sinks)
        if (sink.part >= 0) made_[at(sink.part)] = local_[at(sink.part)] = true;
      ++sweeps;
      kept.last = i;
      kept.channels = block_;
      kept.bytes = bytes(first, i) / static_cast<double>(domain[0]) / static_cast<double>(domain[1]) *
                   static_cast<double>(block_);
      kept.local = local_;
      const std::int64_t units = domain[0] * (domain[1] / std::max<std::int64_t>(block_, 1));
      if (sweeps > 1 && kept.bytes <= limits_.bytes && units >= limits_.fewest_units) best = kept;
    }
    return best;
  }

  // Loads, contiguous where it loads at positions; statistics for each sample and channel only.
  bool is_plain(const Sweep& sweep) const {
    if (sweep.source >= 0 || sweep.domain[0] * sweep.domain[1] == 0) return false;
    for (const Sink& sink : sweep.sinks) {
      if (sink.kind == SinkKind::kContract) return false;
      if (sink.kind != SinkKind::kStatistic) continue;
      const AxisSet axes = schedule_.graph[sink.part].axes;
      if (axes == AxisSet{Axis::kC} || (axes.empty() && over_positions(sweep.domain))) return false;
    }
    return std::all_of(sweep.inputs.begin(), sweep.inputs.end(), [&](int slot) {
      const Slot& which = schedule_.slots[at(slot)];
      if (which.layout == Layout::kChannelsLast) return false;
      if (which.kind != SlotKind::kArgument || !over_positions(which.extents)) return true;
      return schedule_.inputs[at(which.number)].type.layout != Layout::kChannelsLast;
    });
  }

  // Which statistics of a finalise step a unit can work out by itself, and how many channels it needs for them.
  void learn_finalise(const ScheduleStep& finalise, const Extents& domain) {
    for (int number : finalise.parts) {
      const Part& part = schedule_.graph[number];
      made_[at(number)] = true;
      // What is saved for each group is taken from the channels in the end.
      bool local = part.extents[0] == domain[0] && part.kind != PartKind::kRegroup;
      for (int operand : part.operands) local = local && (!made_[at(operand)] || local_[at(operand)]);
      if (part.kind == PartKind::kMerge || part.kind == PartKind::kReduce) {
        local = local && (domain[0] == 1 || !part.axes.contains(Axis::kN)) && domain[1] % part.groups == 0;
        const Extents& from = schedule_.graph[part.operands[0]].extents;
        if (local && part.axes.contains(Axis::kC) && from[1] == domain[1])
          block_ = std::lcm(block_, domain[1] / part.groups);
      }
      if (local && part.extents[1] != domain[1]) block_ = domain[1];
      local_[at(number)] = local;
    }
  }

  // Everything that the sweep takes from earlier steps of the run is its own unit's.
  bool reads_local(const Sweep& sweep) const {
    return std::all_of(sweep.inputs.begin(), sweep.inputs.end(), [&](int slot) {
      const Slot& which = schedule_.slots[at(slot)];
      const bool stored = which.kind == SlotKind::kStored || which.borrowed;
      if (stored && made_[at(which.part)] && which.extents != sweep.domain) return false;
      return !made_[at(which.part)] || local_[at(which.part)];
    });
  }

  // What the steps read and write at positions, each value once.
  double bytes(int first, int last) const {
    std::vector<int> slots;
    for (int i = first; i <= last; ++i) {
      if (step(i).kind != StepKind::kSweep) continue;
      for (int slot : step(i).sweep.inputs) slots.push_back(slot);
      for (const Sink& sink : step(i).sweep.sinks)
        if (sink.kind == SinkKind::kStore) slots.push_back(sink.slots[0]);
    }
    std::sort(slots.begin(), slots.end());
    slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
    double total = 0;
    for (int slot : slots) {
      const Slot& which = schedule_.slots[at(slot)];
      if (!over_positions(which.extents)) continue;
      double elements = element_bytes_;
      for (std::int64_t extent : which.extents) elements *= static_cast<double>(extent);
      total += elements;
    }
    return total;
  }

  const Schedule& schedule_;
  int element_bytes_;
  KeepLimits limits_;
  std::vector<bool> made_;   // by part: made in the run
  std::vector<bool> local_;  // and of one unit's elements alone
  std::int64_t block_ = 1;   // channels of a unit
};

}  // namespace

std::vector<Kept> find_kept(const Schedule& schedule, int element_bytes, const KeepLimits& limits) {
  return KeepFinder(schedule, element_bytes, limits).run();
}

}  // namespace fuseblock
