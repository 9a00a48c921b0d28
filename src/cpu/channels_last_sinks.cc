// The statistics of a channels_last sweep.
//
// For each channel they are taken in T down the columns of a few chunks and then go to totals in double precision.
// Moments are sums of distances from a shift and of their squares: from the mean of the first chunk, later from the
// mean so far. Where that is far from the mean of the next chunks, the distance between the two means is most of the
// squares and so of the final variance too: nothing is lost to cancellation.
#include <algorithm>
#include <cmath>

#include "cpu/channels_last_runner.h"
#include "cpu/row_state.h"
#include "cpu/rows.h"
#include "cpu/vector/columns.h"

namespace fuseblock::cpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

template <class T>
void ChannelsLastRunner<T>::begin_statistics(Context& context) const {
  context.samples = 0;
  context.pending = 0;
  for (const SinkPlan& plan : sinks_) {
    if (!is_of_columns(plan)) continue;
    T* columns = elements(context, plan.rows_offset);
    std::fill_n(columns, columns_, static_cast<T>(empty_state(plan.statistic).first));
    std::fill_n(columns + columns_, columns_, T{0});
    std::fill_n(totals(context, plan), 3 * channels_, 0.0);
  }
}

template <class T>
void ChannelsLastRunner<T>::take(const SinkPlan& plan, const T* x, Range chunk, Range block,
                                 Context& context) const {
  if (plan.single) return take_single(plan, x, chunk, context);
  if (!plan.across) {
    if (context.wide && plan.statistic == Statistic::kMoments)
      take_wide(plan, x, chunk.size(), context);
    else
      take_columns(plan, x, chunk.size(), context);
    return;
  }
  T* first = elements(context, plan.rows_offset) + (chunk.begin - block.begin);
  State state;
  for (std::int64_t p = 0; p < chunk.size(); ++p) {
    const TileOperand<T> row = {x + p * channels_, false};
    state = row_state(plan.statistic, row, at(channels_), state);
    first[p] = static_cast<T>(state.first);
    first[block_ + p] = static_cast<T>(state.second);
  }
}

// An element is its own mean, sum or extreme; the other component is the same for all.
template <class T>
void ChannelsLastRunner<T>::take_single(const SinkPlan& plan, const T* x, Range chunk,
                                        const Context& context) const {
  const auto view_of = [&](std::size_t i) { return context.views[at(plan.sink->slots[i])]; };
  store_points(view_of(0), extents_, channels_, context.n, chunk.begin, chunk.size(), x);
  if (plan.sink->slots.size() == 1) return;
  T* buffer = elements(context, buffers_offset_) + context.inputs.size() * pitch_;
  std::fill_n(buffer, chunk.size() * channels_, static_cast<T>(element_state(plan.statistic, 0).second));
  store_points(view_of(1), extents_, channels_, context.n, chunk.begin, chunk.size(), buffer);
}

template <class T>
void ChannelsLastRunner<T>::take_columns(const SinkPlan& plan, const T* x, std::int64_t count,
                                         const Context& context) const {
  T* columns = elements(context, plan.rows_offset);
  const std::size_t width = at(columns_);
  const std::size_t size = at(count * channels_);
  switch (plan.statistic) {
    case Statistic::kSum: add_columns(columns, x, width, size); return;
    case Statistic::kMax: maximum_columns(columns, x, width, size); return;
    case Statistic::kMin: minimum_columns(columns, x, width, size); return;
    case Statistic::kMoments: {
      T* shift = elements(context, plan.shift_offset);
      if (context.samples + context.pending == 0) {
        std::fill_n(shift, columns_, T{0});
        add_columns(shift, x, at(channels_), size);
        for (std::int64_t c = 0; c < channels_; ++c) shift[c] /= static_cast<T>(count);
        for (std::int64_t i = channels_; i < columns_; ++i) shift[i] = shift[i - channels_];
      }
      add_column_distances(columns, columns + columns_, shift, x, width, size);
      return;
    }
    case Statistic::kExpSum: break;
  }
  throw InternalError("a sum of exponentials over positions in a channels_last sweep");
}

// Distances from the first element, in double precision.
template <class T>
void ChannelsLastRunner<T>::take_wide(const SinkPlan& plan, const T* x, std::int64_t count,
                                      const Context& context) const {
  double* shift = totals(context, plan);
  double* sums = shift + channels_;
  double* squares = sums + channels_;
  if (context.samples + context.pending == 0)
    for (std::int64_t c = 0; c < channels_; ++c)
      shift[c] = std::isfinite(x[c]) ? static_cast<double>(x[c]) : 0.0;
  for (std::int64_t p = 0; p < count; ++p)
    for (std::int64_t c = 0; c < channels_; ++c) {
      const double distance = static_cast<double>(x[p * channels_ + c]) - shift[c];
      sums[c] += distance;
      squares[c] += distance * distance;
    }
}

// What the columns hold goes to the totals.
template <class T>
void ChannelsLastRunner<T>::flush(Context& context) const {
  for (const SinkPlan& plan : sinks_) {
    if (!is_of_columns(plan) || context.pending == 0) continue;
    if (plan.statistic == Statistic::kMoments && !context.wide) flush_moments(plan, context);
    if (plan.statistic != Statistic::kSum) continue;
    T* columns = elements(context, plan.rows_offset);
    double* sums = totals(context, plan);
    for (std::int64_t first = 0; first < columns_; first += channels_)
      for (std::int64_t c = 0; c < channels_; ++c) sums[c] += static_cast<double>(columns[first + c]);
    std::fill_n(columns, columns_, T{0});
  }
  context.samples += context.pending;
  context.pending = 0;
}

template <class T>
void ChannelsLastRunner<T>::flush_moments(const SinkPlan& plan, const Context& context) const {
  T* sums = elements(context, plan.rows_offset);
  T* squares = sums + columns_;
  T* shift = elements(context, plan.shift_offset);
  double* mean = totals(context, plan);
  double* m2 = mean + channels_;
  const auto count = static_cast<double>(context.pending);
  const auto before = static_cast<double>(context.samples);
  const double per_count = 1 / count;
  const double share = count / (before + count);
  const double weight = before * share;
  for (std::int64_t c = 0; c < channels_; ++c) {
    auto sum = static_cast<double>(sums[c]);
    auto square = static_cast<double>(squares[c]);
    for (std::int64_t i = c + channels_; i < columns_; i += channels_) {
      sum += static_cast<double>(sums[i]);
      square += static_cast<double>(squares[i]);
    }
    const double offset = sum * per_count;
    const double distance = static_cast<double>(shift[c]) + offset - mean[c];
    mean[c] += distance * share;
    m2[c] += std::max(square - sum * offset, 0.0) + distance * distance * weight;
  }
  for (std::int64_t c = 0; c < channels_; ++c) shift[c] = static_cast<T>(mean[c]);
  for (std::int64_t i = channels_; i < columns_; ++i) shift[i] = shift[i - channels_];
  std::fill_n(sums, 2 * columns_, T{0});
}

template <class T>
bool ChannelsLastRunner<T>::end_statistics(Context& context) const {
  const auto count = static_cast<double>(context.samples);
  bool finite = true;
  for (const SinkPlan& plan : sinks_) {
    if (!is_of_columns(plan)) continue;
    const T* columns = elements(context, plan.rows_offset);
    double* total = totals(context, plan);
    State* states = elements_at<State>(context.workspace + plan.partial_offset) +
                    (context.split * batch_ + context.n) * channels_;
    for (std::int64_t c = 0; c < channels_; ++c) {
      State& state = states[c];
      state = {total[c], 0, count};
      if (plan.statistic == Statistic::kMoments) {
        state.second = total[channels_ + c];
        if (context.wide) {
          const double offset = total[channels_ + c] / count;
          state.first += offset;
          state.second = std::max(total[2 * channels_ + c] - total[channels_ + c] * offset, 0.0);
        }
        finite = finite && std::isfinite(state.second);
      } else if (plan.statistic != Statistic::kSum) {
        state = empty_state(plan.statistic);
        for (std::int64_t i = c; i < columns_; i += channels_)
          state = merge(plan.statistic, state, {static_cast<double>(columns[i]), 0, 1});
        state.count = count;
      }
    }
  }
  return finite;
}

// The results of the reductions over channels, and what follows them.
template <class T>
void ChannelsLastRunner<T>::end_block(Range block, const Context& context) const {
  for (const SinkPlan& plan : sinks_) {
    if (!is_statistic(plan) || !plan.across) continue;
    const T* rows = elements(context, plan.rows_offset);
    for (std::size_t i = 0; i < plan.sink->slots.size(); ++i) {
      const int slot = plan.sink->slots[i];
      if (schedule_->slots[at(slot)].kind == SlotKind::kTile) continue;
      store_positions(context.views[at(slot)], extents_, context.n, 0, block.begin, block.size(),
                      TileOperand<T>{rows + i * at(block_), false});
    }
  }
  if (epilogue_)
    epilogue_->run(
        context.views, context.n, block, [&](int slot) { return own_component(slot, context); },
        elements(context, epilogue_offset_));
}

template <class T>
const T* ChannelsLastRunner<T>::own_component(int slot, const Context& context) const {
  for (const SinkPlan& plan : sinks_) {
    if (!is_statistic(plan) || !plan.across) continue;
    for (std::size_t i = 0; i < plan.sink->slots.size(); ++i)
      if (plan.sink->slots[i] == slot) return elements(context, plan.rows_offset) + i * at(block_);
  }
  return nullptr;
}

// The other members are instantiated where they are defined.
#define FUSEBLOCK_INSTANTIATE(T)                                                                             \
  template void ChannelsLastRunner<T>::begin_statistics(Context&) const;                                     \
  template void ChannelsLastRunner<T>::take(const SinkPlan&, const T*, Range, Range, Context&) const;        \
  template void ChannelsLastRunner<T>::take_single(const SinkPlan&, const T*, Range, const Context&) const;  \
  template void ChannelsLastRunner<T>::take_columns(const SinkPlan&, const T*, std::int64_t, const Context&) \
      const;                                                                                                 \
  template void ChannelsLastRunner<T>::take_wide(const SinkPlan&, const T*, std::int64_t, const Context&)    \
      const;                                                                                                 \
  template void ChannelsLastRunner<T>::flush(Context&) const;                                                \
  template void ChannelsLastRunner<T>::flush_moments(const SinkPlan&, const Context&) const;                 \
  template void ChannelsLastRunner<T>::end_block(Range, const Context&) const;                               \
  template bool ChannelsLastRunner<T>::end_statistics(Context&) const;                                       \
  template const T* ChannelsLastRunner<T>::own_component(int, const Context&) const;
FUSEBLOCK_INSTANTIATE(float)
FUSEBLOCK_INSTANTIATE(double)
#undef FUSEBLOCK_INSTANTIATE

}  // namespace fuseblock::cpu
