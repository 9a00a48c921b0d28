// The sinks of a sweep: statistics for each channel, over some positions, for each element and across
// channels, and what follows the latter.
#include <algorithm>

#include "cpu/row_state.h"
#include "cpu/sweep_runner.h"
#include "cpu/vector/reduce.h"

namespace fuseblock::cpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

template <class T>
void SweepRunner<T>::take(const SinkPlan& plan, const Task& task, std::int64_t c, const Range& positions,
                          TileOperand<T> value, const Context& context) const {
  const auto count = at(positions.size());
  if (plan.manner == Manner::kPerChannel) {
    State& state = states(context, plan)[c];
    state = merge(plan.statistic, state, row_state(plan.statistic, value, count, state));
    return;
  }
  if (plan.over_positions) {
    const bool partial = plan.over_positions->crosses() && splits_ > 1 && context.joins;
    plan.over_positions->take(
        positions, task.begin, value,
        position_totals(plan, task.split, task.n, c, partial, context.views, context.workspace),
        elements(context, plan.scratch_offset));
    return;
  }
  if (plan.manner == Manner::kPerElement) {
    const auto second = static_cast<T>(element_state(plan.statistic, 0).second);
    const TileOperand<T> components[] = {value, {&second, true}};
    for (std::size_t i = 0; i < plan.sink->slots.size(); ++i)
      store_positions(context.views[at(plan.sink->slots[i])], extents_, task.n, c, positions.begin,
                      positions.size(), components[i]);
    return;
  }
  T* first = elements(context, plan.scratch_offset);
  T* second = first + kChunkPitch;
  T* rows = second + kChunkPitch;
  const TileOperand<T> before = {first, false};
  const TileOperand<T> unused = {nullptr, true};
  switch (plan.statistic) {
    case Statistic::kSum: apply(Primitive::kAdd, before, value, unused, first, count); return;
    case Statistic::kMax: apply(Primitive::kMaximum, before, value, unused, first, count); return;
    case Statistic::kMin: apply(Primitive::kMinimum, before, value, unused, first, count); return;
    case Statistic::kMoments:
    case Statistic::kExpSum: {
      T* row = plan.statistic == Statistic::kExpSum ? kept_row(plan, task, c, context) : rows;
      if (value.uniform)
        std::fill_n(row, count, *value.data);
      else if (value.data != row)
        std::copy_n(value.data, count, row);
      if (plan.statistic == Statistic::kExpSum)
        apply(Primitive::kMaximum, before, value, unused, first, count);
      else
        moments_row(first, second, row, count, c - task.channels.begin + 1);
      return;
    }
  }
}

template <class T>
PositionTotals SweepRunner<T>::position_totals(const SinkPlan& plan, std::int64_t split, std::int64_t n,
                                               std::int64_t c, bool partial, SlotViews views,
                                               std::byte* workspace) const {
  const bool two = plan.sink->slots.size() == 2;
  if (partial) {
    const std::int64_t results = plan.over_positions->results();
    const std::int64_t channel = (split * batch_ + n) * channels_ + c;
    double* first = elements_at<double>(workspace + plan.partial_offset) + channel * results * (two ? 2 : 1);
    return {first, two ? first + results : nullptr};
  }
  const auto of_slot = [&](std::size_t i) {
    const SlotView& view = views[at(plan.sink->slots[i])];
    return elements_at<double>(view.data) + view.offset(n, c, 0, 0, 0);
  };
  return {of_slot(0), two ? of_slot(1) : nullptr};
}

template <class T>
void SweepRunner<T>::join_positions(const SinkPlan& plan, const Workers& workers, SlotViews views,
                                    std::byte* workspace) const {
  const PositionStatistic<T>& statistic = *plan.over_positions;
  workers.run(splits_, [&](std::int64_t part, int) {
    const Range results = balanced_part(statistic.results(), splits_, part);
    for (std::int64_t n = 0; n < batch_; ++n)
      for (std::int64_t c = 0; c < channels_; ++c) {
        const PositionTotals totals = position_totals(plan, 0, n, c, false, views, workspace);
        double count = 0;
        for (std::int64_t split = 0; split < splits_; ++split) {
          const double other =
              static_cast<double>(positions_of_split(split)) / static_cast<double>(statistic.results());
          statistic.join(totals, count, position_totals(plan, split, n, c, true, views, workspace), other,
                         results);
          count += other;
        }
      }
  });
}

template <class T>
void SweepRunner<T>::begin_across(Range positions, const Context& context) const {
  for (const SinkPlan& plan : sinks_) {
    if (plan.sink->kind != SinkKind::kStatistic || plan.manner != Manner::kAcrossChannels) continue;
    T* first = elements(context, plan.scratch_offset);
    std::fill_n(first, positions.size(), static_cast<T>(empty_state(plan.statistic).first));
    std::fill_n(first + kChunkPitch, positions.size(), T{0});
  }
}

template <class T>
void SweepRunner<T>::end_across(const Task& task, Range positions, const Context& context) const {
  const auto count = at(positions.size());
  for (const SinkPlan& plan : sinks_) {
    if (plan.sink->kind != SinkKind::kStatistic || plan.manner != Manner::kAcrossChannels) continue;
    T* first = elements(context, plan.scratch_offset);
    T* second = first + kChunkPitch;
    if (plan.statistic == Statistic::kExpSum) {
      const T* rows = second + kChunkPitch;
      for (std::int64_t c = 0; c < channels_; ++c) add_exp_row(second, rows + c * chunk_, first, count);
    }
    for (std::size_t i = 0; i < plan.sink->slots.size(); ++i) {
      const int slot = plan.sink->slots[i];
      if (schedule_->slots[at(slot)].kind == SlotKind::kTile) continue;
      store_positions(context.views[at(slot)], extents_, task.n, 0, positions.begin, positions.size(),
                      TileOperand<T>{i == 0 ? first : second, false});
    }
  }
  if (epilogue_)
    epilogue_->run(
        context.views, task.n, positions, [&](int slot) { return own_component(slot, context); },
        elements(context, epilogue_offset_));
}

template <class T>
const T* SweepRunner<T>::own_component(int slot, const Context& context) const {
  for (const SinkPlan& plan : sinks_) {
    if (plan.sink->kind != SinkKind::kStatistic || plan.manner != Manner::kAcrossChannels) continue;
    for (std::size_t i = 0; i < plan.sink->slots.size(); ++i)
      if (plan.sink->slots[i] == slot) return elements(context, plan.scratch_offset) + i * at(kChunkPitch);
  }
  return nullptr;
}

// The other members are instantiated where they are defined.
#define FUSEBLOCK_INSTANTIATE(T)                                                                            \
  template void SweepRunner<T>::take(const SinkPlan&, const Task&, std::int64_t, const Range&,              \
                                     TileOperand<T>, const Context&) const;                                 \
  template PositionTotals SweepRunner<T>::position_totals(const SinkPlan&, std::int64_t, std::int64_t,      \
                                                          std::int64_t, bool, SlotViews, std::byte*) const; \
  template void SweepRunner<T>::join_positions(const SinkPlan&, const Workers&, SlotViews, std::byte*)      \
      const;                                                                                                \
  template void SweepRunner<T>::begin_across(Range, const Context&) const;                                  \
  template void SweepRunner<T>::end_across(const Task&, Range, const Context&) const;                       \
  template const T* SweepRunner<T>::own_component(int, const Context&) const;
FUSEBLOCK_INSTANTIATE(float)
FUSEBLOCK_INSTANTIATE(double)
#undef FUSEBLOCK_INSTANTIATE

}  // namespace fuseblock::cpu
