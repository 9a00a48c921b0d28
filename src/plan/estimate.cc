#include "plan/estimate.h"

#include <algorithm>
#include <set>

namespace fuseblock {
namespace {

constexpr double kStatisticOperations = 4;  // an element: a difference, a product, two sums

std::size_t at(int i) { return static_cast<std::size_t>(i); }

double count_of(const Extents& extents) {
  double count = 1;
  for (std::int64_t extent : extents) count *= static_cast<double>(extent);
  return count;
}

double bytes_of(const NamedType& tensor) { return static_cast<double>(byte_size(tensor.type.dtype)); }

bool is_special(Primitive primitive) {
  switch (primitive) {
    case Primitive::kSqrt:
    case Primitive::kExp:
    case Primitive::kExpm1:
    case Primitive::kLog:
    case Primitive::kLog1pExp:
    case Primitive::kTanh:
    case Primitive::kErf:
    case Primitive::kSigmoid: return true;
    default: return false;
  }
}

class Estimator {
 public:
  Estimator(const Schedule& schedule, const CostModel& cost)
      : schedule_(schedule), cost_(cost), used_(schedule.slots.size(), false) {}

  // `kept`: the step runs unit by unit together with others, so that what these have touched is in the cache.
  StepEstimate estimate(const ScheduleStep& step, bool kept) {
    StepEstimate result;
    std::set<int> read;
    std::set<int> written;
    switch (step.kind) {
      case StepKind::kSweep: count_sweep(step.sweep, result, read, written); break;
      case StepKind::kHostCall:
        count_convolution(schedule_.graph[step.parts[0]].node, result);
        read.insert(step.operands.begin(), step.operands.end());
        written.insert(step.result);
        break;
      case StepKind::kPool:
        result.operations = schedule_.block.operation_count(schedule_.graph[step.parts[0]].node);
        read.insert(step.operands.begin(), step.operands.end());
        written.insert(step.result);
        break;
      case StepKind::kFinalise:
        for (int part : step.parts)
          result.operations += kStatisticOperations * schedule_.graph[part].elements();
        written.insert(step.operands.begin(), step.operands.end());
        break;
    }
    const double moving = move(read, written, kept, result);
    const double computing =
        result.convolution_operations / cost_.convolution_rate() +
        cost_.program_seconds(result.operations - result.convolution_operations - result.special,
                              result.special);
    result.seconds = cost_.device().sweep_start + std::max(moving, computing);
    return result;
  }

 private:
  void count_program(const std::vector<Formula::Step>& steps, double elements, StepEstimate& result) const {
    for (const Formula::Step& step : steps) {
      if (step.primitive == Primitive::kInput || step.primitive == Primitive::kConstant) continue;
      result.operations += elements;
      if (is_special(step.primitive)) result.special += elements;
    }
  }

  void count_sweep(const Sweep& sweep, StepEstimate& result, std::set<int>& read,
                   std::set<int>& written) const {
    const double elements = count_of(sweep.domain);
    count_program(sweep.steps, elements, result);
    read.insert(sweep.inputs.begin(), sweep.inputs.end());
    read.insert({sweep.weight, sweep.bias});
    for (const Prologue& prologue : sweep.staged) {
      count_program(prologue.steps, schedule_.graph[prologue.part].elements(), result);
      read.insert(prologue.inputs.begin(), prologue.inputs.end());
    }
    if (sweep.source >= 0) count_convolution(schedule_.graph[sweep.source].node, result);
    for (const Sink& sink : sweep.sinks) {
      written.insert(sink.slots.begin(), sink.slots.end());
      if (sink.kind == SinkKind::kContract) count_convolution(schedule_.graph[sink.part].node, result);
      if (sink.kind != SinkKind::kStatistic) continue;
      result.operations += kStatisticOperations * elements;
      if (schedule_.graph[sink.part].statistic == Statistic::kExpSum) result.special += elements;
    }
    count_program(sweep.epilogue.steps,
                  elements / static_cast<double>(std::max<std::int64_t>(sweep.domain[1], 1)), result);
    read.insert(sweep.epilogue.inputs.begin(), sweep.epilogue.inputs.end());
    for (const Sink& sink : sweep.epilogue.sinks) written.insert(sink.slots.begin(), sink.slots.end());
  }

  void count_convolution(int node, StepEstimate& result) const {
    const double operations = schedule_.block.operation_count(node);
    result.operations += operations;
    result.convolution_operations += operations;
  }

  // Seconds. A value that an earlier step has touched comes from the cache where it fits; memory of the workspace is
  // touched for the first time by the first step that writes it.
  double move(const std::set<int>& read, const std::set<int>& written, bool kept, StepEstimate& result) {
    double seconds = 0;
    for (int slot : read) {
      if (slot < 0) continue;
      const double bytes = slot_bytes(schedule_, slot, cost_);
      result.read_bytes += bytes;
      const double again = kept ? cost_.device().cache_bandwidth : cost_.bandwidth(bytes);
      seconds += bytes / (used_[at(slot)] ? again : cost_.device().memory_bandwidth);
      used_[at(slot)] = true;
    }
    for (int slot : written) {
      if (slot < 0) continue;
      const double bytes = slot_bytes(schedule_, slot, cost_);
      const bool output = schedule_.slots[at(slot)].kind == SlotKind::kOutput;
      result.written_bytes += bytes;
      seconds += bytes / (output ? cost_.device().memory_bandwidth : cost_.bandwidth(bytes));
      if (!output && !used_[at(slot)]) seconds += cost_.touch_seconds(bytes);
      used_[at(slot)] = true;
    }
    return seconds;
  }

  const Schedule& schedule_;
  const CostModel& cost_;
  std::vector<bool> used_;  // by slot
};

}  // namespace

std::vector<StepEstimate> estimate_steps(const Schedule& schedule, const CostModel& cost) {
  Estimator estimator(schedule, cost);
  std::vector<StepEstimate> result;
  for (int i = 0; i < static_cast<int>(schedule.steps.size()); ++i) {
    const bool kept = std::any_of(schedule.kept.begin(), schedule.kept.end(),
                                  [&](const Kept& run) { return run.first <= i && i <= run.last; });
    result.push_back(estimator.estimate(schedule.steps[at(i)], kept));
  }
  return result;
}

StepEstimate total(const std::vector<StepEstimate>& steps) {
  StepEstimate sum;
  for (const StepEstimate& step : steps) {
    sum.operations += step.operations;
    sum.convolution_operations += step.convolution_operations;
    sum.special += step.special;
    sum.read_bytes += step.read_bytes;
    sum.written_bytes += step.written_bytes;
    sum.seconds += step.seconds;
  }
  return sum;
}

double slot_bytes(const Schedule& schedule, int slot, const CostModel& cost) {
  const Slot& which = schedule.slots[at(slot)];
  double size = 0;
  switch (which.kind) {
    case SlotKind::kArgument: size = bytes_of(schedule.inputs[at(which.number)]); break;
    case SlotKind::kOutput: size = bytes_of(schedule.outputs[at(which.number)]); break;
    case SlotKind::kStored:
      size = which.dtype ? static_cast<double>(byte_size(*which.dtype)) : cost.element_bytes();
      break;
    case SlotKind::kStatistic: size = sizeof(double); break;
    case SlotKind::kTile: break;
  }
  return size * which.elements();
}

}  // namespace fuseblock
