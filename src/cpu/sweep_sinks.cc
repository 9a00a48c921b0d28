// The sinks of a sweep: statistics for each channel, for each element and across channels, and what follows the latter.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/sweep_runner.h"
#include "cpu/vector/reduce.h"

namespace fuseblock::cpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The state of a chunk; `before` is that of the elements before it.
template <class T>
State chunk_state(Statistic statistic, TileOperand<T> value, std::size_t count, const State& before) {
  const auto elements = static_cast<double>(count);
  if (value.uniform) {
    const auto element = static_cast<double>(*value.data);
    switch (statistic) {
      case Statistic::kSum: return {element * elements, 0, elements};
      case Statistic::kExpSum: return {element, elements, elements};
      default: return {element, 0, elements};
    }
  }
  switch (statistic) {
    case Statistic::kSum: return {sum(value.data, count), 0, elements};
    case Statistic::kMax: return {static_cast<double>(largest(value.data, count)), 0, elements};
    case Statistic::kMin: return {static_cast<double>(smallest(value.data, count)), 0, elements};
    case Statistic::kMoments: {
      const TileMoments result =
          before.count > 0 ? moments(value.data, count, before.first) : moments(value.data, count);
      return {result.mean, result.m2, elements};
    }
    case Statistic::kExpSum: {
      const T top = largest(value.data, count);
      // Nothing but -inf counts each element as its own maximum; inf and NaN leave no sum.
      if (!std::isfinite(top))
        return {static_cast<double>(top), top < 0 ? elements : std::numeric_limits<double>::quiet_NaN(),
                elements};
      return {static_cast<double>(top), sum_exp(value.data, top, count), elements};
    }
  }
  throw InternalError("an unknown statistic");
}

}  // namespace

template <class T>
void SweepRunner<T>::take(const SinkPlan& plan, const Task& task, std::int64_t c, Range positions,
                          TileOperand<T> value, const Context& context) const {
  const auto count = at(positions.size());
  if (plan.manner == Manner::kPerChannel) {
    State& state = states(context, plan)[c];
    state = merge(plan.statistic, state, chunk_state(plan.statistic, value, count, state));
    return;
  }
  if (plan.manner == Manner::kPerElement) {
    for (std::size_t i = 0; i < plan.sink->slots.size(); ++i) {
      const SlotView& view = (*context.views)[at(plan.sink->slots[i])];
      double* slot = elements_at<double>(view.data);
      for (std::size_t e = 0; e < count; ++e) {
        const State state =
            element_state(plan.statistic, static_cast<double>(value.data[value.uniform ? 0 : e]));
        slot[(task.n * channels_ + c) * extents_.count() + positions.begin + static_cast<std::int64_t>(e)] =
            i == 0 ? state.first : state.second;
      }
    }
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
      T* row = rows + (plan.statistic == Statistic::kExpSum ? (c - task.channels.begin) * chunk_ : 0);
      if (value.uniform)
        std::fill_n(row, count, *value.data);
      else
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
      store_positions((*context.views)[at(slot)], extents_, task.n, 0, positions.begin, positions.size(),
                      TileOperand<T>{i == 0 ? first : second, false});
    }
  }
  if (!sweep_->epilogue.sinks.empty()) run_epilogue(task, positions, context);
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

// The program on the results of the reductions over channels, at the positions of a chunk.
template <class T>
void SweepRunner<T>::run_epilogue(const Task& task, Range positions, const Context& context) const {
  const Epilogue& epilogue = sweep_->epilogue;
  T* scratch = elements(context, epilogue_offset_);
  T* buffers = scratch + epilogue_.scratch_elements();
  T* uniforms = buffers + epilogue.inputs.size() * at(kChunkPitch);
  std::vector<TileOperand<T>> inputs(epilogue.inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const int slot = epilogue.inputs[i];
    const SlotView& view = (*context.views)[at(slot)];
    if (const T* own = own_component(slot, context)) {
      inputs[i] = {own, false};
    } else if (epilogue_varies_[i]) {
      inputs[i] = {load_positions(view, extents_, task.n, 0, positions.begin, positions.size(),
                                  buffers + i * at(kChunkPitch)),
                   false};
    } else {
      uniforms[i] = load_uniform<T>(view, task.n, 0);
      inputs[i] = {uniforms + i, true};
    }
  }
  epilogue_.run(inputs, at(positions.size()), scratch);
  for (std::size_t i = 0; i < epilogue.sinks.size(); ++i)
    store_positions((*context.views)[at(epilogue.sinks[i].slots[0])], extents_, task.n, 0, positions.begin,
                    positions.size(), epilogue_.result(i, inputs, scratch));
}

// The other members are instantiated where they are defined.
#define FUSEBLOCK_INSTANTIATE(T)                                                                        \
  template void SweepRunner<T>::take(const SinkPlan&, const Task&, std::int64_t, Range, TileOperand<T>, \
                                     const Context&) const;                                             \
  template void SweepRunner<T>::begin_across(Range, const Context&) const;                              \
  template void SweepRunner<T>::end_across(const Task&, Range, const Context&) const;                   \
  template void SweepRunner<T>::run_epilogue(const Task&, Range, const Context&) const;                 \
  template const T* SweepRunner<T>::own_component(int, const Context&) const;
FUSEBLOCK_INSTANTIATE(float)
FUSEBLOCK_INSTANTIATE(double)
#undef FUSEBLOCK_INSTANTIATE

}  // namespace fuseblock::cpu
