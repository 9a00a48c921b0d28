// How a sweep's domain is cut into tasks, tiles and chunks: by the sweep alone, never by the number of
// workers.
#include <algorithm>

#include "cpu/sweep_runner.h"

namespace fuseblock::cpu {
namespace {

constexpr std::int64_t kShortestSplit = 4096;  // positions: below this a task costs more than it spares
// Of a convolution's result: they stay in L2 beside its weights and what was staged.
constexpr std::int64_t kTileElements = 40960;
// Of a tile that is contracted and not convolved: fewer of them add to the sums of the gradient, which are in
// memory.
constexpr std::int64_t kContractedElements = 81920;
constexpr std::int64_t kAcrossElements = 32768;
// Of all arrays of a chunk: half of L1.
constexpr std::int64_t kChunkBytes = 16384;
constexpr std::int64_t kBins = 16;
// Elements of a result in each split: the results of all splits are fewer numbers than these then.
constexpr std::int64_t kFewestOfSplit = 32;

// Of samples that are positions: as many as a register block of the sum kernel has, for all the weights that are read for
// them; and result channels of a task, for which all source channels are staged.
constexpr std::int64_t kSamplesOfTile = 48;
constexpr std::int64_t kChannelsOfTask = 512;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

// As many elements as leave what the program reads and makes in L1. Inputs of fewer bytes take less of it and
// come best in long runs: what the processor fetches ahead ends with the run. (bf16 backward, 1024 beside
// 2048: 10 % slower.)
template <class T>
std::int64_t SweepRunner<T>::longest_chunk() const {
  auto arrays = static_cast<std::int64_t>(program_.array_count() + shared_);
  for (std::size_t i = 0; i < row_inputs_.size(); ++i) {
    if (!varies_[i]) continue;
    ++arrays;
    const int slot = sweep_->inputs[at(row_inputs_[i])];
    if (slot < 0 || schedule_->slots[at(slot)].kind != SlotKind::kArgument) continue;
    const TensorType& type = schedule_->inputs[at(schedule_->slots[at(slot)].number)].type;
    if (byte_size(type.dtype) < static_cast<std::int64_t>(sizeof(T))) return kChunk;
  }
  return arrays * kChunk * static_cast<std::int64_t>(sizeof(T)) <= kChunkBytes ? kChunk : kChunk / 2;
}

template <class T>
void SweepRunner<T>::cut_domain() {
  chunk_ = longest_chunk();
  by_rows_ = conv_.has_value() || contracts_;
  whole_channels_ = by_rows_ || across_;
  for (int slot : sweep_->inputs) {
    if (slot < 0 || schedule_->slots[at(slot)].kind != SlotKind::kArgument) continue;
    const TensorType& type = schedule_->inputs[at(schedule_->slots[at(slot)].number)].type;
    if (type.layout == fuseblock::Layout::kChannelsLast) whole_channels_ = true;
  }
  const std::int64_t rows = extents_.d * extents_.h;
  const std::int64_t positions = extents_.count();
  if (across_)
    chunk_ = std::clamp<std::int64_t>(kAcrossElements / std::max<std::int64_t>(channels_, 1), 16, chunk_);
  if (!whole_channels_)
    channel_blocks_ = std::clamp<std::int64_t>((2 * kTasks + batch_ - 1) / std::max<std::int64_t>(batch_, 1),
                                               1, std::max<std::int64_t>(channels_, 1));
  const std::int64_t tasks = std::max<std::int64_t>(batch_ * channel_blocks_, 1);
  splits_ = std::max<std::int64_t>((kTasks + tasks - 1) / tasks, 1);
  splits_ = std::min(
      splits_,
      by_rows_ ? std::max<std::int64_t>(rows, 1)
               : std::max<std::int64_t>(positions * (whole_channels_ ? channels_ : 1) / kShortestSplit, 1));
  cut_for_positions();
  if (stores_samples()) {
    splits_ = std::min(splits_, (rows + kSamplesOfTile - 1) / kSamplesOfTile);
    channel_blocks_ = std::clamp<std::int64_t>(channels_ / kChannelsOfTask, 1, kTasks / splits_);
  }
  if (by_rows_) {
    if (conv_ && conv_->grid().folds()) splits_ = 1;
    cut_rows();
    const std::int64_t parts = grain_ > extents_.w ? depth_tiles_ : tile_count();
    splits_ = std::min(splits_, std::max<std::int64_t>(parts, 1));
  }
  packs_when_used_ = conv_ && batch_ == 1 && tile_count() == 1;
  if (contracts_) bins_ = std::min(kBins, std::max<std::int64_t>(batch_ * splits_, 1));
}

// Whether a convolution's samples are its positions, or it has one of each, and all is stored: a task may have
// some channels.
template <class T>
bool SweepRunner<T>::stores_samples() const {
  return conv_ && (is_turned_ || batch_ * extents_.count() == 1) && sweep_->epilogue.sinks.empty() &&
         std::all_of(sinks_.begin(), sinks_.end(),
                     [](const SinkPlan& plan) { return plan.sink->kind == SinkKind::kStore; });
}

// Statistics over some positions: a result belongs to one split, or the splits are few beside the elements of
// a result.
template <class T>
void SweepRunner<T>::cut_for_positions() {
  bool columns = true;
  for (const SinkPlan& plan : sinks_) {
    if (!plan.over_positions) continue;
    const PositionStatistic<T>& statistic = *plan.over_positions;
    grain_ = std::max(grain_, statistic.grain());
    if (statistic.crosses())
      splits_ = std::min(splits_,
                         std::max<std::int64_t>(extents_.count() / statistic.results() / kFewestOfSplit, 1));
    columns = columns && statistic.columns() && (row_length_ == 0 || row_length_ == statistic.row_length());
    row_length_ = std::max(row_length_, statistic.row_length());
  }
  if (row_length_ == 0) return;
  splits_ = std::min(splits_, extents_.count() / grain_);
  by_columns_ = columns && !by_rows_ && row_length_ > chunk_;
}

// Tiles are parts of a plane or whole planes: a tile that has parts of two planes stages both of them, and
// their neighbours, from the first row to the last.
template <class T>
void SweepRunner<T>::cut_rows() {
  const std::int64_t rows = extents_.d * extents_.h;
  if (rows == 0) return;
  const std::int64_t width = std::max<std::int64_t>(extents_.w * channels_, 1);
  std::int64_t most = std::max<std::int64_t>(
      std::min((conv_ ? kTileElements : kContractedElements) / width, (rows + splits_ - 1) / splits_), 1);
  if (conv_ && conv_->grid().folds()) most = rows;
  if (stores_samples()) most = std::max(most, kSamplesOfTile);
  // Few planes too many are better than one more tile.
  const std::int64_t planes = (most + most / 8) / extents_.h;
  if (planes > 0) {
    plane_tiles_ = 1;
    depth_tiles_ = (extents_.d + planes - 1) / planes;
  } else {
    plane_tiles_ = (extents_.h + most - 1) / most;
    depth_tiles_ = extents_.d;
  }
  for (std::int64_t i = 0; i < tile_count(); ++i) tile_rows_ = std::max(tile_rows_, rows_of_tile(i).size());
}

template <class T>
Range SweepRunner<T>::rows_of_tile(std::int64_t number) const {
  const Range planes = balanced_part(extents_.d, depth_tiles_, number / plane_tiles_);
  const Range rows = balanced_part(extents_.h, plane_tiles_, number % plane_tiles_);
  return {planes.begin * extents_.h + rows.begin, (planes.end - 1) * extents_.h + rows.end};
}

template <class T>
typename SweepRunner<T>::Task SweepRunner<T>::task(std::int64_t number) const {
  Task task;
  task.split = number % splits_;
  const std::int64_t block = number / splits_ % channel_blocks_;
  task.n = number / splits_ / channel_blocks_;
  task.channels = balanced_part(channels_, channel_blocks_, block);
  if (by_rows_) {
    const std::int64_t together = grain_ > extents_.w ? plane_tiles_ : 1;
    const Range parts = balanced_part(tile_count() / together, splits_, task.split);
    task.tiles = {parts.begin * together, parts.end * together};
    if (task.tiles.size() > 0) task.begin = rows_of_tile(task.tiles.begin).begin * extents_.w;
  } else {
    const Range parts = balanced_part(extents_.count() / grain_, splits_, task.split);
    task.positions = {parts.begin * grain_, parts.end * grain_};
    task.begin = task.positions.begin;
  }
  return task;
}

template <class T>
std::int64_t SweepRunner<T>::positions_of_split(std::int64_t split) const {
  const Task whole = task(split);
  return by_rows_ ? rows_of_tile(whole.tiles.end - 1).end * extents_.w - whole.begin : whole.positions.size();
}

// The other members are instantiated where they are defined.
#define FUSEBLOCK_INSTANTIATE(T)                                                   \
  template std::int64_t SweepRunner<T>::longest_chunk() const;                     \
  template void SweepRunner<T>::cut_domain();                                      \
  template void SweepRunner<T>::cut_for_positions();                               \
  template bool SweepRunner<T>::stores_samples() const;                            \
  template void SweepRunner<T>::cut_rows();                                        \
  template Range SweepRunner<T>::rows_of_tile(std::int64_t) const;                 \
  template typename SweepRunner<T>::Task SweepRunner<T>::task(std::int64_t) const; \
  template std::int64_t SweepRunner<T>::positions_of_split(std::int64_t) const;
FUSEBLOCK_INSTANTIATE(float)
FUSEBLOCK_INSTANTIATE(double)
#undef FUSEBLOCK_INSTANTIATE

}  // namespace fuseblock::cpu
