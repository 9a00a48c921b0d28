#include "cpu/channels_last_runner.h"

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "cpu/prologue_runner.h"
#include "cpu/vector/columns.h"
#include "cpu/vector/convert.h"
#include "plan/borrow.h"

namespace fuseblock::cpu {
namespace {

constexpr std::int64_t kTasks = 32;             // enough for a dozen workers to share evenly
constexpr std::int64_t kShortestSplit = 16384;  // elements: below this a task costs more than it spares
// Of an array of the chunk's: what was loaded, some numbers repeated along it and a result fit L1 (with 8192 a fifth
// slower). Half as much where what varies along positions takes more arrays.
constexpr std::int64_t kChunkBytes = 4096;
constexpr std::int64_t kBlockPositions = 256;
constexpr std::int64_t kUnitElements = 16384;  // of a value, where sweeps run together: several values fit L2
constexpr std::int64_t kPendingPositions = 64;  // so many are added in T before they go to doubles
constexpr std::int64_t kStatesOfTask = 2048;    // joined by one task
constexpr std::int64_t kFewestColumns = 64;     // fewer leave vectors idle
constexpr std::int64_t kColumnStep = 16;        // whole vectors on every target

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Whether elements of the sweep are looked for by their values, here or later.
bool looks_for_values(const Schedule& schedule, const Sweep& sweep) {
  const auto is_extremum = [&](const Sink& sink) {
    if (sink.kind != SinkKind::kStatistic) return false;
    const Statistic statistic = schedule.graph[sink.part].statistic;
    return statistic == Statistic::kMax || statistic == Statistic::kMin;
  };
  const auto compares = [](const Formula::Step& step) {
    return step.primitive == Primitive::kEqual && step.a != step.b;
  };
  return std::any_of(sweep.sinks.begin(), sweep.sinks.end(), is_extremum) ||
         std::any_of(sweep.steps.begin(), sweep.steps.end(), compares);
}

}  // namespace

template <class T>
ChannelsLastRunner<T>::ChannelsLastRunner(const Schedule& schedule, const Sweep& sweep, bool is_turned,
                                          Layout& layout)
    : schedule_(&schedule),
      sweep_(&sweep),
      batch_(sweep.domain[0]),
      channels_(sweep.domain[1]),
      extents_{sweep.domain[2], sweep.domain[3], sweep.domain[4]} {
  std::vector<Variation> variations;
  for (int slot : sweep.inputs)
    variations.push_back({schedule.slots[at(slot)].extents[1] != 1, slot_varies(schedule, slot)});
  std::vector<int> wanted;
  for (const Sink& sink : sweep.sinks) {
    SinkPlan plan;
    plan.sink = &sink;
    plan.taker = at(std::find(wanted.begin(), wanted.end(), sink.step) - wanted.begin());
    wanted.push_back(sink.step);
    plan.in_place = sink.kind == SinkKind::kStore && !lies_over_an_input(schedule, sweep, sink.slots[0]);
    if (sink.kind == SinkKind::kStatistic) {
      plan.statistic = schedule.graph[sink.part].statistic;
      plan.across = schedule.graph[sink.part].axes == AxisSet{Axis::kC};
      plan.single = is_turned && !plan.across && slot_varies(schedule, sink.slots[0]);
    }
    sinks_.push_back(plan);
  }
  split_ = split_program(sweep.steps, variations, wanted);
  if (!sweep.epilogue.sinks.empty()) epilogue_.emplace(schedule, sweep.epilogue, extents_);
  cut_domain();

  // Parts of one program: each of them is repeatable where the whole must be.
  const bool repeatable = looks_for_values(schedule, sweep);
  const auto program = [&](const ProgramPart& part, const std::vector<bool>& input_varies,
                           std::int64_t longest) {
    return RowProgram<T>(part.steps, input_varies, part.wanted, repeatable ? part.wanted : std::vector<int>{},
                         longest);
  };
  std::vector<bool> varies;
  for (int input : split_.by_channel.inputs) varies.push_back(variations[at(input)].channels);
  by_channel_ = program(split_.by_channel, varies, channels_);
  varies.clear();
  for (int input : split_.by_position.inputs) varies.push_back(variations[at(input)].positions);
  by_position_ = program(split_.by_position, varies, block_);
  varies.assign(split_.rest.inputs.size(), true);
  varies.insert(varies.end(), split_.channel_varies.begin(), split_.channel_varies.end());
  varies.insert(varies.end(), split_.by_position.wanted.size(), true);
  rest_ = program(split_.rest, varies, chunk_ * channels_);
  reserve(layout);
}

template <class T>
void ChannelsLastRunner<T>::cut_domain() {
  std::int64_t repeats = 1;
  if (channels_ < kFewestColumns) {
    repeats = kColumnStep / std::gcd(channels_, kColumnStep);
    while (repeats * channels_ < kFewestColumns) repeats *= 2;
  }
  columns_ = repeats * channels_;
  const std::int64_t elements =
      kChunkBytes / static_cast<std::int64_t>(sizeof(T)) / (split_.by_position.wanted.empty() ? 1 : 2);
  chunk_ = std::max(elements / columns_, std::int64_t{1}) * repeats;
  block_ = std::max(kBlockPositions / chunk_, std::int64_t{1}) * chunk_;
  pitch_ = at(chunk_pitch(chunk_ * channels_));
  const std::int64_t most = std::min(extents_.count() * channels_ / kShortestSplit, extents_.count());
  splits_ = std::clamp<std::int64_t>((kTasks + batch_ - 1) / batch_, 1, std::max(most, std::int64_t{1}));
}

template <class T>
void ChannelsLastRunner<T>::reserve(Layout& layout) {
  Layout scratch;
  auto reserve_elements = [&](std::size_t count) { return scratch.reserve(count * sizeof(T)); };
  const std::size_t arrays =
      split_.rest.inputs.size() + split_.by_channel.wanted.size() + split_.by_position.wanted.size();
  scratch.reserve(sizeof(Context));
  inputs_offset_ = scratch.reserve(arrays * sizeof(TileOperand<T>));
  positions_offset_ = scratch.reserve(split_.by_position.wanted.size() * sizeof(TileOperand<T>));
  targets_offset_ = scratch.reserve(sinks_.size() * sizeof(T*));
  channel_operands_offset_ = scratch.reserve(split_.by_channel.inputs.size() * sizeof(TileOperand<T>));
  position_operands_offset_ = scratch.reserve(split_.by_position.inputs.size() * sizeof(TileOperand<T>));
  buffers_offset_ = reserve_elements((arrays + 1) * pitch_);
  channel_inputs_offset_ = reserve_elements(split_.by_channel.inputs.size() * at(channels_));
  channel_program_offset_ = reserve_elements(by_channel_.scratch_elements());
  position_inputs_offset_ = reserve_elements(split_.by_position.inputs.size() * at(block_));
  position_program_offset_ = reserve_elements(by_position_.scratch_elements());
  program_offset_ = reserve_elements(rest_.scratch_elements());
  if (epilogue_) epilogue_offset_ = reserve_elements(epilogue_->scratch_elements());
  for (SinkPlan& plan : sinks_) {
    if (!is_statistic(plan) || plan.single) continue;
    plan.rows_offset = reserve_elements(2 * at(plan.across ? block_ : columns_));
    if (plan.across) continue;
    plan.shift_offset = reserve_elements(at(columns_));
    plan.totals_offset = scratch.reserve(3 * at(channels_) * sizeof(double));
    plan.partial_offset = layout.reserve(at(splits_ * batch_ * channels_) * sizeof(State));
  }
  scratch_bytes_ = scratch.bytes();
}

template <class T>
void ChannelsLastRunner<T>::run(std::span<const ChannelsLastRunner* const> sweeps, const Workers& workers,
                                SlotViews views, std::byte* workspace, std::byte* scratch,
                                std::size_t scratch_stride) {
  const ChannelsLastRunner& first = *sweeps[0];
  const std::int64_t positions = first.extents_.count();
  std::int64_t unit = positions;
  if (sweeps.size() > 1) {
    std::int64_t chunk = 1;
    for (const ChannelsLastRunner* sweep : sweeps) chunk = std::max(chunk, sweep->chunk_);
    unit = std::max(kUnitElements / first.channels_ / chunk, std::int64_t{1}) * chunk;
  }
  run_tasks(workers, first.batch_ * first.splits_, [&](std::int64_t number, int worker) {
    // Each sweep has its part of the worker's scratch.
    const auto for_each_sweep = [&](auto visit) {
      std::byte* part = scratch + at(worker) * scratch_stride;
      for (const ChannelsLastRunner* sweep : sweeps) {
        visit(*sweep, part);
        part += sweep->scratch_bytes_;
      }
    };
    for_each_sweep([&](const ChannelsLastRunner& sweep, std::byte* part) {
      Context& context = *elements_at<Context>(part);
      context = sweep.context(views, workspace, part, number);
      sweep.begin_task(context);
    });
    const Range range = balanced_part(positions, first.splits_, number % first.splits_);
    for (std::int64_t begin = range.begin; begin < range.end; begin += unit)
      for_each_sweep([&](const ChannelsLastRunner& sweep, std::byte* part) {
        sweep.run_positions({begin, std::min(begin + unit, range.end)}, *elements_at<Context>(part));
      });
    for_each_sweep([&](const ChannelsLastRunner& sweep, std::byte* part) {
      sweep.end_task(range, *elements_at<Context>(part));
    });
  });
  for (const ChannelsLastRunner* sweep : sweeps) sweep->join(workers, views, workspace);
}

template <class T>
typename ChannelsLastRunner<T>::Context ChannelsLastRunner<T>::context(SlotViews views, std::byte* workspace,
                                                                       std::byte* scratch,
                                                                       std::int64_t task) const {
  Context context;
  context.views = views;
  context.workspace = workspace;
  context.scratch = scratch;
  context.n = task / splits_;
  context.split = task % splits_;
  const std::size_t shared = split_.by_position.wanted.size();
  context.inputs = list_at<TileOperand<T>>(
      scratch + inputs_offset_, split_.rest.inputs.size() + split_.by_channel.wanted.size() + shared);
  context.positions = list_at<TileOperand<T>>(scratch + positions_offset_, shared);
  context.targets = list_at<T*>(scratch + targets_offset_, sinks_.size());
  return context;
}

template <class T>
void ChannelsLastRunner<T>::begin_task(Context& context) const {
  load_channels(context);
  begin_statistics(context);
}

template <class T>
void ChannelsLastRunner<T>::run_positions(Range positions, Context& context) const {
  for (std::int64_t begin = positions.begin; begin < positions.end; begin += block_) {
    const Range block = {begin, std::min(begin + block_, positions.end)};
    load_block(block, context);
    for (std::int64_t first = block.begin; first < block.end; first += chunk_)
      visit({first, std::min(first + chunk_, block.end)}, block, context);
    end_block(block, context);
  }
}

template <class T>
void ChannelsLastRunner<T>::end_task(Range positions, Context& context) const {
  flush(context);
  if (end_statistics(context)) return;
  context.wide = true;
  begin_statistics(context);
  run_positions(positions, context);
  flush(context);
  end_statistics(context);
}

// What depends on channels alone, repeated along the chunk.
template <class T>
void ChannelsLastRunner<T>::load_channels(Context& context) const {
  const std::span<TileOperand<T>> inputs =
      list_at<TileOperand<T>>(context.scratch + channel_operands_offset_, split_.by_channel.inputs.size());
  T* place = elements(context, channel_inputs_offset_);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const int input = split_.by_channel.inputs[i];
    const int slot = sweep_->inputs[at(input)];
    const SlotView& view = context.views[at(slot)];
    const bool varies = schedule_->slots[at(slot)].extents[1] != 1;
    load_elements(view.data + view.offset(context.n, 0, 0, 0, 0) * byte_size(view.dtype), view.dtype,
                  view.strides[1], place, at(varies ? channels_ : 1));
    inputs[i] = {place, !varies};
    place += channels_;
  }
  T* scratch = elements(context, channel_program_offset_);
  by_channel_.run(inputs, at(channels_), scratch);

  const std::size_t loaded = split_.rest.inputs.size();
  const std::size_t given = split_.by_channel.wanted.size();
  for (std::size_t i = 0; i < given; ++i) {
    const TileOperand<T> value = by_channel_.result(i, inputs, scratch);
    T* buffer = elements(context, buffers_offset_) + (loaded + i) * pitch_;
    if (value.uniform) {
      *buffer = *value.data;
    } else {
      for (std::int64_t p = 0; p < chunk_; ++p) std::copy_n(value.data, channels_, buffer + p * channels_);
    }
    context.inputs[loaded + i] = {buffer, value.uniform};
  }
}

// What depends on positions alone.
template <class T>
void ChannelsLastRunner<T>::load_block(Range positions, Context& context) const {
  if (split_.by_position.wanted.empty()) return;
  const std::span<TileOperand<T>> inputs =
      list_at<TileOperand<T>>(context.scratch + position_operands_offset_, split_.by_position.inputs.size());
  T* place = elements(context, position_inputs_offset_);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const int input = split_.by_position.inputs[i];
    const int slot = sweep_->inputs[at(input)];
    const SlotView& view = context.views[at(slot)];
    if (slot_varies(*schedule_, slot)) {
      inputs[i] = {load_positions(view, extents_, context.n, 0, positions.begin, positions.size(), place),
                   false};
    } else {
      *place = load_uniform<T>(view, context.n, 0);
      inputs[i] = {place, true};
    }
    place += block_;
  }
  T* scratch = elements(context, position_program_offset_);
  by_position_.run(inputs, at(positions.size()), scratch);
  for (std::size_t i = 0; i < context.positions.size(); ++i)
    context.positions[i] = by_position_.result(i, inputs, scratch);
}

template <class T>
void ChannelsLastRunner<T>::visit(Range chunk, Range block, Context& context) const {
  load_chunk(chunk, block, context);
  const std::int64_t count = chunk.size();
  auto view_of = [&](const SinkPlan& plan) { return context.views[at(plan.sink->slots[0])]; };
  std::fill(context.targets.begin(), context.targets.end(), nullptr);
  for (std::size_t i = 0; i < sinks_.size(); ++i)
    if (sinks_[i].in_place && rest_.is_written(i))
      context.targets[i] =
          points_in_place<T>(view_of(sinks_[i]), extents_, channels_, context.n, chunk.begin);
  rest_.run(context.inputs, at(count * channels_), elements(context, program_offset_), context.targets);
  for (std::size_t i = 0; i < sinks_.size(); ++i)
    if (is_statistic(sinks_[i]))
      take(sinks_[i], taken(i, count * channels_, context), chunk, block, context);
    else if (context.targets[i] == nullptr)
      store_points(view_of(sinks_[i]), extents_, channels_, context.n, chunk.begin, count,
                   taken(i, count * channels_, context));
  context.pending += count;
  if (context.pending >= kPendingPositions) flush(context);
}

template <class T>
void ChannelsLastRunner<T>::load_chunk(Range chunk, Range block, Context& context) const {
  const std::int64_t count = chunk.size();
  T* buffers = elements(context, buffers_offset_);
  for (std::size_t i = 0; i < split_.rest.inputs.size(); ++i) {
    const SlotView& view = context.views[at(sweep_->inputs[at(split_.rest.inputs[i])])];
    const bool reads_bf16 = std::is_same_v<T, float> && !rest_.gives_input(i);
    const std::uint16_t* bf16 =
        reads_bf16 ? bf16_points(view, extents_, channels_, context.n, chunk.begin) : nullptr;
    const T* own = bf16 != nullptr ? nullptr
                                   : load_points(view, extents_, channels_, context.n, chunk.begin, count,
                                                 buffers + i * pitch_);
    context.inputs[i] = {own, false, bf16};
  }
  const std::size_t known = split_.rest.inputs.size() + split_.by_channel.wanted.size();
  for (std::size_t i = 0; i < context.positions.size(); ++i) {
    const T* values = context.positions[i].data + (chunk.begin - block.begin);
    T* buffer = buffers + (known + i) * pitch_;
    if (chunk_ > 1) repeat_along_rows(values, at(count), at(channels_), buffer);
    context.inputs[known + i] = {chunk_ > 1 ? buffer : values, chunk_ == 1};
  }
}

template <class T>
const T* ChannelsLastRunner<T>::taken(std::size_t sink, std::int64_t count, const Context& context) const {
  if (const T* made = context.targets[sinks_[sink].taker]) return made;
  const TileOperand<T> value = rest_.result(sink, context.inputs, elements(context, program_offset_));
  if (!value.uniform) return value.data;
  T* buffer = elements(context, buffers_offset_) + context.inputs.size() * pitch_;
  std::fill_n(buffer, count, *value.data);
  return buffer;
}

// Partial results joined in the order of the tasks.
template <class T>
void ChannelsLastRunner<T>::join(const Workers& workers, SlotViews views, std::byte* workspace) const {
  for (const SinkPlan& plan : sinks_) {
    if (!is_of_columns(plan)) continue;
    const State* partial = elements_at<State>(workspace + plan.partial_offset);
    const std::int64_t states = batch_ * channels_;
    const std::int64_t parts = std::min(kTasks, std::max(states * splits_ / kStatesOfTask, std::int64_t{1}));
    run_tasks(workers, parts, [&](std::int64_t part, int) {
      const Range mine = balanced_part(states, parts, part);
      for (std::int64_t i = mine.begin; i < mine.end; ++i) {
        State state = empty_state(plan.statistic);
        for (std::int64_t split = 0; split < splits_; ++split)
          state = merge(plan.statistic, state, partial[split * states + i]);
        for (std::size_t k = 0; k < plan.sink->slots.size(); ++k) {
          const SlotView& view = views[at(plan.sink->slots[k])];
          elements_at<double>(view.data)[view.offset(i / channels_, i % channels_, 0, 0, 0)] =
              k == 0 ? state.first : state.second;
        }
      }
    });
  }
}

template class ChannelsLastRunner<float>;
template class ChannelsLastRunner<double>;

}  // namespace fuseblock::cpu
