#include "cpu/finalise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "cpu/conv/grid.h"
#include "cpu/vector/convert.h"
#include "fuseblock/tensor.h"

namespace fuseblock::cpu {
namespace {

using Position = std::array<std::int64_t, kAxisCount>;

constexpr std::size_t kChannels = 1;

template <class Visit>
void for_each(const Extents& begin, const Extents& end, Visit visit) {
  Position at{};
  for (at[0] = begin[0]; at[0] < end[0]; ++at[0])
    for (at[1] = begin[1]; at[1] < end[1]; ++at[1])
      for (at[2] = begin[2]; at[2] < end[2]; ++at[2])
        for (at[3] = begin[3]; at[3] < end[3]; ++at[3])
          for (at[4] = begin[4]; at[4] < end[4]; ++at[4]) visit(at);
}

// Elements along one axis.
struct Run {
  Position begin{};
  std::size_t axis = 0;
  std::int64_t count = 0;
};

// As many of them as are worked out together: their arrays, in the scratch of each worker, stay small.
constexpr std::int64_t kLongestRun = 32;

// Large arrays are shared by the threads: elements of a share, and shares.
constexpr std::int64_t kFewestShared = 4096;
constexpr std::int64_t kMostShares = 32;

// Everything in runs along the last axis that has more than one element.
template <class Visit>
void for_each_run(const Extents& begin, const Extents& end, Visit visit) {
  std::size_t axis = kAxisCount - 1;
  while (axis > 0 && end[axis] - begin[axis] == 1) --axis;
  Extents first = end;
  first[axis] = std::min(begin[axis] + 1, end[axis]);
  for_each(begin, first, [&](const Position& position) {
    for (std::int64_t i = begin[axis]; i < end[axis]; i += kLongestRun) {
      Run run = {position, axis, std::min(kLongestRun, end[axis] - i)};
      run.begin[axis] = i;
      visit(run);
    }
  });
}

// result[i] = the step's primitive of a[i], b[i], c[i]; operands that it does not take are null.
void evaluate_run(const Formula::Step& step, const double* a, const double* b, const double* c,
                  std::int64_t count, double* result) {
  switch (step.primitive) {
    case Primitive::kAdd:
      for (std::int64_t i = 0; i < count; ++i) result[i] = a[i] + b[i];
      return;
    case Primitive::kMul:
      for (std::int64_t i = 0; i < count; ++i) result[i] = a[i] * b[i];
      return;
    case Primitive::kDiv:
      for (std::int64_t i = 0; i < count; ++i) result[i] = a[i] / b[i];
      return;
    default: break;
  }
  const auto value = [](const double* operand, std::int64_t i) {
    return operand == nullptr ? 0 : operand[i];
  };
  for (std::int64_t i = 0; i < count; ++i)
    result[i] = evaluate(step.primitive, value(a, i), value(b, i), value(c, i));
}

// Where the elements of a part lie, apart from outputs.
std::vector<int> slots_of_parts(const Schedule& schedule) {
  std::vector<int> slot_of(schedule.graph.parts.size(), -1);
  for (std::size_t i = schedule.slots.size(); i-- > 0;)
    if (schedule.slots[i].kind != SlotKind::kOutput)
      slot_of[static_cast<std::size_t>(schedule.slots[i].part)] = static_cast<int>(i);
  return slot_of;
}

// Works statistics out, all of them or those of one unit.
class Finaliser {
 public:
  Finaliser(const Schedule& schedule, const std::vector<int>& slot_of, SlotViews views,
            FinaliseScratch scratch, const FinaliseUnit* unit, const Workers* workers)
      : schedule_(schedule),
        slot_of_(slot_of),
        views_(views),
        scratch_(scratch),
        unit_(unit),
        workers_(workers) {}

  void work_out(int number) {
    const Part& part = schedule_.graph[number];
    switch (part.kind) {
      case PartKind::kPointwise: pointwise(number); return;
      case PartKind::kComponent: component(number); return;
      case PartKind::kRegroup: regroup(number); return;
      case PartKind::kMerge:
      case PartKind::kReduce: merge_part(number); return;
      default: throw InternalError("not a statistic: " + part.name);
    }
  }

  void copy_to_output(int output_slot) {
    const Slot& slot = schedule_.slots[at(output_slot)];
    copy({}, slot.extents, slot_of_[at(slot.part)], output_slot);
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  // Statistics are doubles; only arguments and outputs are not.
  double read(int slot, const Position& p) const {
    const SlotView& view = views_[at(slot)];
    const std::int64_t offset = view.offset(p[0], p[1], p[2], p[3], p[4]);
    if (view.dtype == DType::kF64) return elements_at<double>(view.data)[offset];
    return load_element(view.data, view.dtype, offset);
  }

  void write(int slot, const Position& p, double value) const {
    const SlotView& view = views_[at(slot)];
    const std::int64_t offset = view.offset(p[0], p[1], p[2], p[3], p[4]);
    if (view.dtype == DType::kF64)
      elements_at<double>(view.data)[offset] = value;
    else
      store_element(view.data, view.dtype, offset, value);
  }

  void read_run(int slot, const Run& run, double* to) const {
    const SlotView& view = views_[at(slot)];
    const Position& p = run.begin;
    const std::int64_t offset = view.offset(p[0], p[1], p[2], p[3], p[4]);
    const std::int64_t stride = view.strides[run.axis];
    if (stride == 0 || run.count == 1) {
      std::fill_n(to, run.count, read(slot, p));
    } else if (view.dtype == DType::kF64) {
      const double* from = elements_at<double>(view.data) + offset;
      for (std::int64_t i = 0; i < run.count; ++i) to[i] = from[i * stride];
    } else {
      load_elements(view.data + offset * byte_size(view.dtype), view.dtype, stride, to,
                    static_cast<std::size_t>(run.count));
    }
  }

  void write_run(int slot, const Run& run, const double* from) const {
    const SlotView& view = views_[at(slot)];
    const Position& p = run.begin;
    if (run.count == 1) {
      write(slot, p, *from);
      return;
    }
    const std::int64_t offset = view.offset(p[0], p[1], p[2], p[3], p[4]);
    store_elements(from, view.data + offset * byte_size(view.dtype), view.dtype, view.strides[run.axis],
                   static_cast<std::size_t>(run.count));
  }

  // The unit's share of an array, or all of it. `channel_step` channels are one element of it.
  std::pair<Extents, Extents> here(const Extents& extents, std::int64_t channel_step) const {
    Extents begin{};
    Extents end = extents;
    if (unit_ != nullptr && extents[0] != 1) {
      begin[0] = unit_->n;
      end[0] = unit_->n + 1;
    }
    if (unit_ != nullptr && extents[1] != 1) {
      begin[1] = unit_->channels_begin / channel_step;
      end[1] = unit_->channels_end / channel_step;
    }
    return {begin, end};
  }

  // Calls visit(begin, end, worker) for all of an array, or for parts of a large one on several threads.
  template <class Visit>
  void share(const Extents& begin, const Extents& end, Visit visit) const {
    std::int64_t elements = 1;
    std::size_t longest = 0;
    for (std::size_t i = 0; i < begin.size(); ++i) {
      elements *= end[i] - begin[i];
      if (end[i] - begin[i] > end[longest] - begin[longest]) longest = i;
    }
    const std::int64_t extent = end[longest] - begin[longest];
    const std::int64_t parts = std::min({elements / kFewestShared, kMostShares, extent});
    if (workers_ == nullptr || parts < 2) {
      visit(begin, end, 0);
      return;
    }
    run_tasks(*workers_, parts, [&](std::int64_t number, int worker) {
      const Range part = balanced_part(extent, parts, number);
      Extents first = begin;
      Extents last = end;
      first[longest] = begin[longest] + part.begin;
      last[longest] = begin[longest] + part.end;
      visit(first, last, worker);
    });
  }

  void pointwise(int number) {
    const Part& part = schedule_.graph[number];
    const auto [begin, end] = here(part.extents, 1);
    share(begin, end, [&](const Extents& first, const Extents& last, int worker) {
      pointwise(number, first, last, scratch_.of(worker));
    });
  }

  void pointwise(int number, const Extents& begin, const Extents& end, double* results) const {
    const Part& part = schedule_.graph[number];
    const std::span<const Formula::Step> steps = part.formula.steps();
    const auto result = [&](std::size_t step) { return results + step * kLongestRun; };
    for_each_run(begin, end, [&](const Run& run) {
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const Formula::Step& step = steps[i];
        const auto operand = [&](std::int32_t id) {
          return id < 0 ? nullptr : result(static_cast<std::size_t>(id));
        };
        if (step.primitive == Primitive::kInput)
          read_run(slot_of_[at(part.operands[at(step.input)])], run, result(i));
        else if (step.primitive == Primitive::kConstant)
          std::fill_n(result(i), run.count, step.constant);
        else
          evaluate_run(step, operand(step.a), operand(step.b), operand(step.c), run.count, result(i));
      }
      write_run(slot_of_[at(number)], run, result(steps.size() - 1));
    });
  }

  void component(int number) {
    const Part& part = schedule_.graph[number];
    const auto [begin, end] = here(part.extents, 1);
    copy(begin, end, slot_of_[at(part.operands[0])] + part.component, slot_of_[at(number)]);
  }

  void copy(const Extents& begin, const Extents& end, int from, int to) const {
    share(begin, end, [&](const Extents& first, const Extents& last, int) {
      std::array<double, kLongestRun> values{};
      for_each_run(first, last, [&](const Run& run) {
        read_run(from, run, values.data());
        write_run(to, run, values.data());
      });
    });
  }

  // From one for each channel to the first of each group, or from one for each group to one for each channel.
  void regroup(int number) {
    const Part& part = schedule_.graph[number];
    const int from = slot_of_[at(part.operands[0])];
    const std::int64_t channels = part.extents[kChannels];
    const std::int64_t other = schedule_.graph[part.operands[0]].extents[kChannels];
    for_each({}, part.extents, [&](const Position& position) {
      Position source = position;
      source[kChannels] = position[kChannels] * other / channels;
      write(slot_of_[at(number)], position, read(from, source));
    });
  }

  // The state of one element of the operand: of a finer statistic, or of a plain value.
  State state_of(const Part& part, const Position& position) const {
    const Part& operand = schedule_.graph[part.operands[0]];
    const int slot = slot_of_[at(part.operands[0])];
    if (part.kind == PartKind::kReduce) return element_state(part.statistic, read(slot, position));
    State state;
    state.first = read(slot, position);
    state.second = component_count(part.statistic) == 2 ? read(slot + 1, position) : 0;
    state.count = static_cast<double>(operand.count);
    return state;
  }

  void merge_part(int number) {
    const Part& part = schedule_.graph[number];
    const Extents& from = schedule_.graph[part.operands[0]].extents;
    // One set of elements for each result; along c one group of channels.
    Extents sets = from;
    Extents set_extents = {1, 1, 1, 1, 1};
    for (Axis axis : kAllAxes) {
      if (!part.axes.contains(axis)) continue;
      const auto i = static_cast<std::size_t>(index(axis));
      sets[i] = i == kChannels ? part.groups : 1;
      set_extents[i] = from[i] / sets[i];
    }
    const auto [begin, end] = here(sets, set_extents[kChannels]);
    share(begin, end, [&](const Extents& first, const Extents& last, int) {
      for_each(first, last, [&](const Position& set) { merge_set(number, set, set_extents); });
    });
  }

  void merge_set(int number, const Position& set, const Extents& set_extents) const {
    const Part& part = schedule_.graph[number];
    Extents begin{};
    Extents end{};
    for (std::size_t i = 0; i < begin.size(); ++i) {
      begin[i] = set[i] * set_extents[i];
      end[i] = begin[i] + set_extents[i];
    }
    State total = empty_state(part.statistic);
    for_each(begin, end, [&](const Position& p) { total = merge(part.statistic, total, state_of(part, p)); });
    store_state(number, set, set_extents, total);
  }

  // A group's statistic stands at every channel of the group; elsewhere a set has one place.
  void store_state(int number, const Position& set, const Extents& set_extents, const State& state) const {
    const Part& part = schedule_.graph[number];
    Extents begin{};
    Extents end{};
    for (std::size_t i = 0; i < begin.size(); ++i) {
      const bool repeated = i == kChannels && part.groups > 1;
      begin[i] = repeated ? set[i] * set_extents[i] : set[i];
      end[i] = begin[i] + (repeated ? set_extents[i] : 1);
    }
    const int slot = slot_of_[at(number)];
    for_each(begin, end, [&](const Position& p) {
      write(slot, p, state.first);
      if (component_count(part.statistic) == 2) write(slot + 1, p, state.second);
    });
  }

  const Schedule& schedule_;
  const std::vector<int>& slot_of_;
  SlotViews views_;
  FinaliseScratch scratch_;
  const FinaliseUnit* unit_;
  const Workers* workers_;  // null: on the calling thread
};

double nan_max(double a, double b) { return evaluate(Primitive::kMaximum, a, b, 0); }

}  // namespace

State empty_state(Statistic statistic) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (statistic) {
    case Statistic::kSum: return {0, 0, 0};
    case Statistic::kMax: return {-kInfinity, 0, 0};
    case Statistic::kMin: return {kInfinity, 0, 0};
    // The mean of nothing is not a number, but merging starts from it.
    case Statistic::kMoments: return {0, 0, 0};
    case Statistic::kExpSum: return {-kInfinity, 0, 0};
  }
  throw InternalError("an unknown statistic");
}

State element_state(Statistic statistic, double value) {
  return {value, statistic == Statistic::kExpSum ? 1.0 : 0.0, 1};
}

State merge(Statistic statistic, const State& a, const State& b) {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  const double count = a.count + b.count;
  switch (statistic) {
    case Statistic::kSum: return {a.first + b.first, 0, count};
    case Statistic::kMax: return {nan_max(a.first, b.first), 0, count};
    case Statistic::kMin: return {evaluate(Primitive::kMinimum, a.first, b.first, 0), 0, count};
    case Statistic::kMoments: {
      const double distance = b.first - a.first;
      return {a.first + distance * (b.count / count),
              a.second + b.second + distance * distance * (a.count * b.count / count), count};
    }
    case Statistic::kExpSum: {
      const double largest = nan_max(a.first, b.first);
      // Equal maxima need no factor; that also keeps infinities out of exp(inf - inf).
      auto scaled = [&](const State& s) {
        return s.first == largest ? s.second : s.second * std::exp(s.first - largest);
      };
      return {largest, scaled(a) + scaled(b), count};
    }
  }
  throw InternalError("an unknown statistic");
}

FinaliseRunner::FinaliseRunner(const Schedule& schedule)
    : schedule_(&schedule), slot_of_(slots_of_parts(schedule)) {
  for (const Part& part : schedule.graph.parts)
    if (part.kind == PartKind::kPointwise)
      scratch_elements_ =
          std::max(scratch_elements_, part.formula.steps().size() * static_cast<std::size_t>(kLongestRun));
}

void FinaliseRunner::run(const ScheduleStep& step, const Workers& workers, SlotViews views,
                         FinaliseScratch scratch, const std::vector<bool>& done) const {
  Finaliser finaliser(*schedule_, slot_of_, views, scratch, nullptr, &workers);
  for (int part : step.parts)
    if (done.empty() || !done[static_cast<std::size_t>(part)]) finaliser.work_out(part);
  for (int slot : step.operands) finaliser.copy_to_output(slot);
}

void FinaliseRunner::run_unit(const ScheduleStep& step, SlotViews views, FinaliseScratch scratch,
                              const std::vector<bool>& local, const FinaliseUnit& unit) const {
  Finaliser finaliser(*schedule_, slot_of_, views, scratch, &unit, nullptr);
  for (int part : step.parts)
    if (local[static_cast<std::size_t>(part)]) finaliser.work_out(part);
}

}  // namespace fuseblock::cpu
