#include "cpu/sweep_runner.h"

#include <algorithm>
#include <limits>

#include "cpu/dense.h"
#include "cpu/program_split.h"
#include "cpu/turned.h"
#include "cpu/vector/convert.h"
#include "cpu/vector/reduce.h"
#include "plan/borrow.h"

namespace fuseblock::cpu {
namespace {

// Elements of packed weights: fewer take less time than it takes to hand a task out.
constexpr std::int64_t kFewestPacked = 16384;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Extents slot_extents(const Schedule& schedule, int slot) { return schedule.slots[at(slot)].extents; }

ConvDirection direction_of(const Node& node) {
  return node.operation->code == OpCode::kConvolutionGradInput ? ConvDirection::kGradInput
                                                               : ConvDirection::kForward;
}

// Whether elements are looked for by their values: what is computed must not depend on how a program is cut then.
bool looks_for_inputs(std::span<const Formula::Step> steps) {
  const auto is_input = [&](std::int32_t i) { return steps[at(i)].primitive == Primitive::kInput; };
  return std::any_of(steps.begin(), steps.end(), [&](const Formula::Step& step) {
    return step.primitive == Primitive::kEqual && (is_input(step.a) || is_input(step.b));
  });
}

}  // namespace

template <class T>
SweepRunner<T>::SweepRunner(const Schedule& schedule, const Sweep& sweep, bool is_turned, Layout& layout)
    : schedule_(&schedule),
      sweep_(&sweep),
      is_turned_(is_turned),
      batch_(sweep.domain[0]),
      channels_(sweep.domain[1]),
      extents_{sweep.domain[2], sweep.domain[3], sweep.domain[4]} {
  std::vector<int> wanted;
  std::vector<int> extrema;  // elements that are looked for by their values later
  for (const Sink& sink : sweep.sinks) {
    SinkPlan plan;
    plan.sink = &sink;
    plan.taker = at(std::find(wanted.begin(), wanted.end(), sink.step) - wanted.begin());
    wanted.push_back(sink.step);
    plan.in_place = sink.kind == SinkKind::kStore && !lies_over_an_input(schedule, sweep, sink.slots[0]);
    if (sink.kind == SinkKind::kStatistic) {
      const Part& part = schedule.graph[sink.part];
      plan.statistic = part.statistic;
      if (part.statistic == Statistic::kMax || part.statistic == Statistic::kMin)
        extrema.push_back(sink.step);
      plan.manner = manner_of(part, sink);
      if (plan.manner == Manner::kOverPositions)
        plan.over_positions.emplace(part.statistic, part.axes, extents_);
      across_ = across_ || plan.manner == Manner::kAcrossChannels;
    } else if (sink.kind == SinkKind::kContract) {
      contracts_ = true;
      plan.contraction = std::make_unique<ConvContraction<T>>(geometry_of(sink.part));
    }
    sinks_.push_back(std::move(plan));
  }
  make_programs(wanted, extrema);
  if (!sweep.epilogue.sinks.empty()) epilogue_.emplace(schedule, sweep.epilogue, extents_);
  for (const Prologue& prologue : sweep.staged) prologues_.emplace_back(schedule, prologue);
  if (sweep.source >= 0) {
    const int node = schedule.graph[sweep.source].node;
    const ConvGeometry geometry = geometry_of(sweep.source);
    const ConvDirection direction = direction_of(schedule.block.block().nodes()[at(node)]);
    conv_.emplace(geometry, direction);
    for (SinkPlan& plan : sinks_)
      if (plan.contraction)
        plan.shares_staged = plan.sink->operand == 0 && direction == ConvDirection::kForward &&
                             geometry_of(plan.sink->part) == geometry;
  }
  cut_domain();
  reserve(layout);
}

template <class T>
ConvGeometry SweepRunner<T>::geometry_of(int part) const {
  const ConvGeometry geometry = conv_geometry(schedule_->block, schedule_->graph[part].node);
  return is_turned_ ? turned(geometry) : geometry;
}

template <class T>
typename SweepRunner<T>::Manner SweepRunner<T>::manner_of(const Part& part, const Sink& sink) const {
  if (part.axes == AxisSet{Axis::kC}) return Manner::kAcrossChannels;
  if (is_turned_) return slot_varies(*schedule_, sink.slots[0]) ? Manner::kPerElement : Manner::kPerChannel;
  if (!leaves_positions(part, sweep_->domain)) return Manner::kPerChannel;
  return part.axes.empty() ? Manner::kPerElement : Manner::kOverPositions;
}

// What all channels of a position share is worked out once for all of them, where it is more than a load.
template <class T>
void SweepRunner<T>::make_programs(const std::vector<int>& wanted, const std::vector<int>& extrema) {
  std::vector<bool> varies;
  std::vector<Variation> variations;
  for (int slot : sweep_->inputs) {
    varies.push_back(slot < 0 || slot_varies(*schedule_, slot));
    variations.push_back({slot < 0 || !varies.back() || slot_extents(*schedule_, slot)[1] != 1, true});
  }
  ProgramSplit split;
  if (channels_ > 1 && extrema.empty() && !looks_for_inputs(sweep_->steps))
    split = split_program(sweep_->steps, variations, wanted);
  const bool shares =
      split.by_channel.wanted.empty() &&
      std::any_of(split.by_position.steps.begin(), split.by_position.steps.end(),
                  [](const Formula::Step& step) {
                    return step.primitive != Primitive::kInput && step.primitive != Primitive::kConstant;
                  });
  if (!shares) {
    for (std::size_t i = 0; i < varies.size(); ++i) row_inputs_.push_back(static_cast<int>(i));
    varies_ = varies;
    program_ = RowProgram<T>(sweep_->steps, varies_, wanted, extrema);
    return;
  }
  position_inputs_ = split.by_position.inputs;
  shared_ = split.by_position.wanted.size();
  by_position_ = RowProgram<T>(split.by_position.steps, std::vector<bool>(position_inputs_.size(), true),
                               split.by_position.wanted);
  row_inputs_ = split.rest.inputs;
  for (int input : row_inputs_) varies_.push_back(varies[at(input)]);
  std::vector<bool> rest_varies = varies_;
  rest_varies.insert(rest_varies.end(), shared_, true);
  program_ = RowProgram<T>(split.rest.steps, rest_varies, split.rest.wanted);
}

template <class T>
void SweepRunner<T>::reserve(Layout& layout) {
  const auto channel_count = at(channels_);
  for (SinkPlan& plan : sinks_) {
    if (plan.sink->kind == SinkKind::kStatistic && plan.manner == Manner::kPerChannel && splits_ > 1)
      plan.partial_offset = layout.reserve(at(splits_ * batch_ * channels_) * sizeof(State));
    if (plan.over_positions && plan.over_positions->crosses() && splits_ > 1)
      plan.partial_offset = layout.reserve(at(splits_ * batch_ * channels_ * plan.over_positions->results()) *
                                           plan.sink->slots.size() * sizeof(double));
    if (plan.contraction)
      plan.partial_offset = layout.reserve(at(bins_) * plan.contraction->weight_elements() * sizeof(double));
  }
  if (conv_) {
    const Extents weight = slot_extents(*schedule_, sweep_->weight);
    dense_offset_ = layout.reserve(at(weight[0] * weight[1] * weight[2] * weight[3] * weight[4]) * sizeof(T));
    if (!packs_when_used_) packed_offset_ = layout.reserve(conv_->packed_weight_elements() * sizeof(T));
    bias_offset_ = layout.reserve(at(conv_->grid().result_channels()) * sizeof(T));
  }
  Layout scratch;
  auto reserve_elements = [&](std::size_t count) { return scratch.reserve(count * sizeof(T)); };
  inputs_offset_ = scratch.reserve((row_inputs_.size() + shared_) * sizeof(TileOperand<T>));
  shared_offset_ = scratch.reserve(position_inputs_.size() * sizeof(TileOperand<T>));
  targets_offset_ = scratch.reserve(sinks_.size() * sizeof(T*));
  program_offset_ = reserve_elements(program_.scratch_elements());
  buffers_offset_ = reserve_elements((row_inputs_.size() + 1) * at(kChunkPitch));
  uniforms_offset_ = reserve_elements(row_inputs_.size() + 1);
  position_buffers_offset_ = reserve_elements(position_inputs_.size() * at(kChunkPitch));
  position_program_offset_ = reserve_elements(shared_ > 0 ? by_position_.scratch_elements() : 0);
  for (SinkPlan& plan : sinks_) {
    if (plan.contraction) {
      plan.scratch_offset = reserve_elements(channel_count * at(tile_rows_ * extents_.w));
      if (!plan.shares_staged)
        plan.staged_offset = reserve_elements(largest_staged(plan.contraction->grid()));
      std::size_t extra = 0;
      for (std::int64_t i = 0; i < tile_count(); ++i)
        extra = std::max(extra, plan.contraction->scratch_bytes(rows_of_tile(i)));
      plan.extra_offset = scratch.reserve(extra);
    } else if (plan.sink->kind == SinkKind::kStatistic && plan.manner == Manner::kPerChannel) {
      plan.scratch_offset = scratch.reserve(channel_count * sizeof(State));
    } else if (plan.sink->kind == SinkKind::kStatistic && plan.manner == Manner::kAcrossChannels) {
      plan.scratch_offset =
          reserve_elements(at(kChunkPitch) * 3 + (keeps_rows(plan) ? channel_count * at(chunk_) : 0));
    } else if (plan.over_positions) {
      plan.scratch_offset = reserve_elements(plan.over_positions->scratch_elements());
    }
  }
  if (conv_) {
    tile_offset_ = reserve_elements(channel_count * at(tile_rows_ * extents_.w));
    staged_offset_ = reserve_elements(largest_staged(conv_->grid()));
    conv_offset_ = scratch.reserve(conv_->scratch_bytes());
    if (packs_when_used_) block_offset_ = reserve_elements(conv_->packed_block_elements());
  }
  std::size_t prologue = 0;
  for (const PrologueRunner<T>& runner : prologues_) prologue = std::max(prologue, runner.scratch_elements());
  prologue_offset_ = reserve_elements(prologue);
  if (epilogue_) epilogue_offset_ = reserve_elements(epilogue_->scratch_elements());
  scratch_bytes_ = scratch.bytes();
}

template <class T>
std::size_t SweepRunner<T>::largest_staged(const ConvGrid& grid) const {
  std::size_t most = 0;
  for (std::int64_t i = 0; i < tile_count(); ++i)
    most = std::max(most, staged_elements(grid, rows_of_tile(i), {0, grid.source_channels()}));
  return most;
}

template <class T>
typename SweepRunner<T>::Context SweepRunner<T>::context(SlotViews views, std::byte* workspace,
                                                         std::byte* scratch) const {
  Context context;
  context.views = views;
  context.workspace = workspace;
  context.scratch = scratch;
  context.inputs = list_at<TileOperand<T>>(scratch + inputs_offset_, row_inputs_.size() + shared_);
  context.shared = list_at<TileOperand<T>>(scratch + shared_offset_, position_inputs_.size());
  context.targets = list_at<T*>(scratch + targets_offset_, sinks_.size());
  return context;
}

template <class T>
void SweepRunner<T>::run(const Workers& workers, SlotViews views, std::byte* workspace, std::byte* scratch,
                         std::size_t scratch_stride) const {
  const T* weight = conv_ ? pack(workers, views, workspace) : nullptr;
  const std::int64_t tasks = batch_ * channel_blocks_ * splits_;
  const std::int64_t units = contracts_ ? bins_ : tasks;
  run_tasks(workers, units, [&](std::int64_t unit, int worker) {
    Context context = this->context(views, workspace, scratch + at(worker) * scratch_stride);
    context.bin = unit;
    context.weight = weight;
    if (!contracts_) {
      run_task(task(unit), context);
      return;
    }
    for (const SinkPlan& plan : sinks_) {
      if (!plan.contraction) continue;
      double* partial = elements_at<double>(workspace + plan.partial_offset);
      std::fill_n(partial + at(unit) * plan.contraction->weight_elements(),
                  plan.contraction->weight_elements(), 0.0);
    }
    const Range mine = balanced_part(tasks, bins_, unit);
    for (std::int64_t number = mine.begin; number < mine.end; ++number) run_task(task(number), context);
  });
  join(workers, views, workspace);
}

template <class T>
void SweepRunner<T>::run_unit(std::int64_t n, Range channels, SlotViews views, std::byte* workspace,
                              std::byte* scratch) const {
  Context context = this->context(views, workspace, scratch);
  context.joins = false;
  run_task({n, 0, channels, {0, extents_.count()}, {0, tile_count()}}, context);
}

// The bias of the source, and its weight: packed, a few blocks of its channels a task; dense, where each task packs what it
// uses.
template <class T>
const T* SweepRunner<T>::pack(const Workers& workers, SlotViews views, std::byte* workspace) const {
  T* bias = elements_at<T>(workspace + bias_offset_);
  if (sweep_->bias >= 0)
    for (std::int64_t k = 0; k < conv_->grid().result_channels(); ++k)
      bias[k] = load_uniform<T>(views[at(sweep_->bias)], 0, k);
  Extents extents = slot_extents(*schedule_, sweep_->weight);
  SlotView weight = views[at(sweep_->weight)];
  if (is_turned_) {  // its first axis is no n
    extents = turned(extents);
    weight = turned(weight);
  }
  const T* dense = dense_elements(workers, weight, extents, elements_at<T>(workspace + dense_offset_));
  if (packs_when_used_) return dense;
  T* packed = elements_at<T>(workspace + packed_offset_);
  const std::int64_t blocks = conv_->block_count();
  const auto elements = static_cast<std::int64_t>(conv_->packed_weight_elements());
  const std::int64_t tasks = std::min({blocks, kTasks, elements / kFewestPacked + 1});
  run_tasks(workers, tasks, [&](std::int64_t task, int) {
    conv_->pack_weights(dense, balanced_part(blocks, tasks, task), packed);
  });
  return packed;
}

template <class T>
void SweepRunner<T>::run_task(const Task& task, const Context& context) const {
  for (const SinkPlan& plan : sinks_)
    if (plan.sink->kind == SinkKind::kStatistic && plan.manner == Manner::kPerChannel)
      for (std::int64_t c = task.channels.begin; c < task.channels.end; ++c)
        states(context, plan)[c] = empty_state(plan.statistic);

  if (!by_rows_) {
    visit(task, task.positions, nullptr, 0, context);
  } else {
    for (std::int64_t i = task.tiles.begin; i < task.tiles.end; ++i) {
      const Range part = rows_of_tile(i);
      const T* tile = conv_ ? compute_tile(task, part, context) : nullptr;
      visit(task, {part.begin * extents_.w, part.end * extents_.w}, tile, part.size() * extents_.w, context);
      if (contracts_) contract(task, part, context);
    }
  }

  for (const SinkPlan& plan : sinks_) {
    if (plan.sink->kind != SinkKind::kStatistic || plan.manner != Manner::kPerChannel) continue;
    for (std::int64_t c = task.channels.begin; c < task.channels.end; ++c) {
      const State& state = states(context, plan)[c];
      if (splits_ > 1 && context.joins) {
        State* partial = elements_at<State>(context.workspace + plan.partial_offset);
        partial[(task.split * batch_ + task.n) * channels_ + c] = state;
        continue;
      }
      for (std::size_t i = 0; i < plan.sink->slots.size(); ++i) {
        const SlotView& view = context.views[at(plan.sink->slots[i])];
        elements_at<double>(view.data)[view.offset(task.n, c, 0, 0, 0)] = i == 0 ? state.first : state.second;
      }
    }
  }
}

// Stages the rows' input and convolves it into the tile, [channel][position].
template <class T>
const T* SweepRunner<T>::compute_tile(const Task& task, Range rows, const Context& context) const {
  T* staged = elements(context, staged_offset_);
  T* tile = elements(context, tile_offset_);
  const Range sources = {0, conv_->grid().source_channels()};
  conv_->stage(
      rows, sources,
      [&](std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t count, T* to, std::int64_t pitch) {
        prologues_[0].load_rows(context.views, task.n, c, d, h, count, to, pitch,
                                elements(context, prologue_offset_));
      },
      staged);
  const T* bias = sweep_->bias >= 0 ? elements_at<T>(context.workspace + bias_offset_) : nullptr;
  std::byte* scratch = context.scratch + conv_offset_;
  const std::int64_t pitch = rows.size() * extents_.w;
  if (packs_when_used_)
    conv_->compute_packing(staged, rows, sources, context.weight, bias, task.channels, tile, pitch, scratch,
                           elements(context, block_offset_));
  else
    conv_->compute(staged, rows, sources, context.weight, bias, task.channels, tile, pitch, scratch);
  return tile;
}

template <class T>
void SweepRunner<T>::visit(const Task& task, Range positions, const T* source, std::int64_t pitch,
                           const Context& context) const {
  auto row_of = [&](std::int64_t c, std::int64_t position) {
    return source == nullptr ? nullptr
                             : source + (c - task.channels.begin) * pitch + (position - positions.begin);
  };
  if (across_ || whole_channels_ || shared_ > 0) {
    for_each_chunk(positions, [&](const Range& chunk) {
      if (across_) begin_across(chunk, context);
      if (shared_ > 0) share_positions(task, chunk, context);
      for (std::int64_t c = task.channels.begin; c < task.channels.end; ++c)
        visit_row(task, c, chunk, positions, row_of(c, chunk.begin), context);
      if (across_) end_across(task, chunk, context);
    });
    return;
  }
  for (std::int64_t c = task.channels.begin; c < task.channels.end; ++c)
    for_each_chunk(positions, [&](const Range& chunk) {
      visit_row(task, c, chunk, positions, row_of(c, chunk.begin), context);
    });
}

// Calls visit(range) for chunks of positions.
template <class T>
template <class Visit>
void SweepRunner<T>::for_each_chunk(const Range& positions, Visit visit) const {
  const auto cut = [&](const Range& whole, std::int64_t longest) {
    for (std::int64_t begin = whole.begin; begin < whole.end; begin += longest)
      visit(Range{begin, std::min(begin + longest, whole.end)});
  };
  if (row_length_ == 0) {
    cut(positions, chunk_);
  } else if (row_length_ <= chunk_) {
    cut(positions, chunk_ / row_length_ * row_length_);
  } else if (!by_columns_) {
    for (std::int64_t row = positions.begin; row < positions.end; row += row_length_)
      cut({row, std::min(row + row_length_, positions.end)}, chunk_);
  } else {
    for (std::int64_t column = 0; column < row_length_; column += chunk_)
      for (std::int64_t row = positions.begin; row < positions.end; row += row_length_)
        visit(Range{row + column, row + std::min(column + chunk_, row_length_)});
  }
}

// The results that all channels of a chunk share become the last inputs of the program.
template <class T>
void SweepRunner<T>::share_positions(const Task& task, const Range& positions, const Context& context) const {
  T* buffers = elements(context, position_buffers_offset_);
  const std::span<TileOperand<T>> inputs = context.inputs;
  const std::span<TileOperand<T>> own = context.shared;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const int slot = sweep_->inputs[at(position_inputs_[i])];
    own[i] = {load_positions(context.views[at(slot)], extents_, task.n, 0, positions.begin, positions.size(),
                             buffers + i * at(kChunkPitch)),
              false};
  }
  T* scratch = elements(context, position_program_offset_);
  by_position_.run(own, at(positions.size()), scratch);
  for (std::size_t i = 0; i < shared_; ++i)
    inputs[row_inputs_.size() + i] = by_position_.result(i, own, scratch);
}

template <class T>
void SweepRunner<T>::visit_row(const Task& task, std::int64_t c, const Range& positions, const Range& tile,
                               const T* source, const Context& context) const {
  const std::span<TileOperand<T>> inputs = context.inputs;
  T* buffers = elements(context, buffers_offset_);
  T* uniforms = elements(context, uniforms_offset_);
  for (std::size_t i = 0; i < row_inputs_.size(); ++i) {
    const int slot = sweep_->inputs[at(row_inputs_[i])];
    if (slot < 0) {
      inputs[i] = {source, false};
    } else if (varies_[i]) {
      const SlotView& view = context.views[at(slot)];
      const std::uint16_t* bf16 =
          reads_bf16(i) ? bf16_positions(view, extents_, task.n, c, positions.begin) : nullptr;
      const T* own = bf16 != nullptr ? nullptr
                                     : load_positions(view, extents_, task.n, c, positions.begin,
                                                      positions.size(), buffers + i * at(kChunkPitch));
      inputs[i] = {own, false, bf16};
    } else {
      uniforms[i] = load_uniform<T>(context.views[at(slot)], task.n, c);
      inputs[i] = {uniforms + i, true};
    }
  }
  T* scratch = elements(context, program_offset_);
  // What is stored as it is computed needs no array in between; `targets` has room for every sink.
  const std::span<T*> targets = context.targets;
  for (std::size_t i = 0; i < sinks_.size(); ++i) {
    const Sink& sink = *sinks_[i].sink;
    targets[i] = nullptr;
    if (!program_.is_written(i)) continue;
    if (sinks_[i].in_place)
      targets[i] =
          positions_in_place<T>(context.views[at(sink.slots[0])], extents_, task.n, c, positions.begin);
    else if (keeps_rows(sinks_[i]))
      targets[i] = kept_row(sinks_[i], task, c, context);
    else if (sink.kind == SinkKind::kContract)
      targets[i] = contracted_row(sinks_[i], c, positions, tile, context);
  }
  program_.run(inputs, at(positions.size()), scratch, targets);
  for (std::size_t i = 0; i < sinks_.size(); ++i) {
    const SinkPlan& plan = sinks_[i];
    if (targets[i] != nullptr && plan.in_place) continue;
    const T* made = targets[plan.taker];
    const TileOperand<T> value =
        made != nullptr ? TileOperand<T>{made, false} : program_.result(i, inputs, scratch);
    if (plan.sink->kind == SinkKind::kStore) {
      store_positions(context.views[at(plan.sink->slots[0])], extents_, task.n, c, positions.begin,
                      positions.size(), value);
    } else if (plan.sink->kind == SinkKind::kContract) {
      T* row = contracted_row(plan, c, positions, tile, context);
      if (value.uniform)
        std::fill_n(row, positions.size(), *value.data);
      else if (value.data != row)
        std::copy_n(value.data, positions.size(), row);
    } else {
      take(plan, task, c, positions, value, context);
    }
  }
}

template <class T>
void SweepRunner<T>::contract(const Task& task, Range rows, const Context& context) const {
  for (const SinkPlan& plan : sinks_) {
    if (!plan.contraction) continue;
    T* staged = elements(context, plan.shares_staged ? staged_offset_ : plan.staged_offset);
    const Range sources = {0, plan.contraction->grid().source_channels()};
    if (!plan.shares_staged)
      plan.contraction->stage(
          rows, sources,
          [&](std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t count, T* to, std::int64_t pitch) {
            prologues_[at(plan.sink->operand)].load_rows(context.views, task.n, c, d, h, count, to, pitch,
                                                         elements(context, prologue_offset_));
          },
          staged);
    double* partial = elements_at<double>(context.workspace + plan.partial_offset) +
                      at(context.bin) * plan.contraction->weight_elements();
    plan.contraction->accumulate(staged, rows, sources, elements(context, plan.scratch_offset),
                                 rows.size() * extents_.w, {0, channels_}, partial,
                                 context.scratch + plan.extra_offset);
  }
}

// Partial results joined in the order of the tasks.
template <class T>
void SweepRunner<T>::join(const Workers& workers, SlotViews views, std::byte* workspace) const {
  for (const SinkPlan& plan : sinks_) {
    if (plan.contraction) {
      const ConvContraction<T>& contraction = *plan.contraction;
      const double* partial = elements_at<double>(workspace + plan.partial_offset);
      double* result = elements_at<double>(views[at(plan.sink->slots[0])].data);
      run_tasks(workers, kTasks, [&](std::int64_t part, int) {
        contraction.join(partial, bins_, balanced_part(contraction.column_count(), kTasks, part), result);
      });
    }
    if (plan.over_positions && plan.over_positions->crosses() && splits_ > 1)
      join_positions(plan, workers, views, workspace);
    if (plan.sink->kind != SinkKind::kStatistic || plan.manner != Manner::kPerChannel || splits_ == 1)
      continue;
    const State* partial = elements_at<State>(workspace + plan.partial_offset);
    for (std::int64_t n = 0; n < batch_; ++n)
      for (std::int64_t c = 0; c < channels_; ++c) {
        State state = empty_state(plan.statistic);
        for (std::int64_t split = 0; split < splits_; ++split)
          state = merge(plan.statistic, state, partial[(split * batch_ + n) * channels_ + c]);
        for (std::size_t i = 0; i < plan.sink->slots.size(); ++i) {
          const SlotView& view = views[at(plan.sink->slots[i])];
          elements_at<double>(view.data)[view.offset(n, c, 0, 0, 0)] = i == 0 ? state.first : state.second;
        }
      }
  }
}

template class SweepRunner<float>;
template class SweepRunner<double>;

}  // namespace fuseblock::cpu
