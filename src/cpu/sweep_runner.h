// Runs one sweep: its domain cut into tasks, tasks into tiles, tiles into chunks of rows.
//
// How the domain is cut depends on the sweep alone, never on the number of workers, and partial results are
// joined in the order of the tasks: the result has the same bits on any number of threads.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "cpu/conv/contraction.h"
#include "cpu/conv/source.h"
#include "cpu/epilogue_runner.h"
#include "cpu/finalise.h"
#include "cpu/memory.h"
#include "cpu/parallel.h"
#include "cpu/position_statistic.h"
#include "cpu/prologue_runner.h"
#include "cpu/row_program.h"
#include "cpu/rows.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

template <class T>
class SweepRunner {
 public:
  // Reserves what the sweep needs in the workspace beside its slots.
  // `is_turned`: the schedule and the views of `run` are (turned.h).
  SweepRunner(const Schedule& schedule, const Sweep& sweep, bool is_turned, Layout& layout);

  // Bytes of scratch that each worker needs.
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  void run(const Workers& workers, SlotViews views, std::byte* workspace, std::byte* scratch,
           std::size_t scratch_stride) const;
  // The sweep for some channels of one sample, on the calling thread. Only for sweeps that plan/keep.h finds.
  void run_unit(std::int64_t n, Range channels, SlotViews views, std::byte* workspace,
                std::byte* scratch) const;

 private:
  static constexpr std::int64_t kTasks = 32;  // enough for a dozen workers to share evenly

  // What a statistic sink does with the channels of a chunk.
  enum class Manner : std::uint8_t { kPerChannel, kAcrossChannels, kOverPositions, kPerElement };
  struct SinkPlan {
    const Sink* sink = nullptr;
    Statistic statistic{};
    Manner manner = Manner::kPerChannel;
    std::optional<PositionStatistic<T>> over_positions;  // kOverPositions
    bool in_place = false;                               // kStore: results may be made where they are stored
    std::size_t taker = 0;                               // the first sink that takes the same step
    // In the workspace. kPerChannel with several splits: states; kOverPositions, kContract: doubles.
    std::size_t partial_offset = 0;
    std::size_t scratch_offset = 0;  // in the worker's scratch
    std::unique_ptr<ConvContraction<T>> contraction;
    bool shares_staged = false;  // contraction: its x is what the source has staged already
    std::size_t staged_offset = 0;
    std::size_t extra_offset = 0;
  };
  struct Task {
    std::int64_t n = 0;
    std::int64_t split = 0;
    Range channels;
    Range positions;         // where positions are not cut at rows
    Range tiles;             // where they are
    std::int64_t begin = 0;  // the first position
  };
  // One run of the sweep on one worker.
  struct Context {
    SlotViews views;
    std::byte* workspace = nullptr;
    std::byte* scratch = nullptr;
    const T* weight = nullptr;  // of the source: packed, or dense where it is packed when it is used
    // Lists in the scratch.
    std::span<TileOperand<T>> inputs;
    std::span<TileOperand<T>> shared;  // inputs of what all channels share
    std::span<T*> targets;             // one for each sink
    std::int64_t bin = 0;
    bool joins = true;  // statistics of a part of the positions go to where `join` finds them
  };

  ConvGeometry geometry_of(int part) const;
  void make_programs(const std::vector<int>& wanted, const std::vector<int>& extrema);
  Manner manner_of(const Part& part, const Sink& sink) const;
  std::int64_t longest_chunk() const;
  void cut_domain();
  void cut_for_positions();
  void cut_rows();
  bool stores_samples() const;
  void reserve(Layout& layout);
  Task task(std::int64_t number) const;
  std::int64_t positions_of_split(std::int64_t split) const;
  std::int64_t tile_count() const { return depth_tiles_ * plane_tiles_; }
  Range rows_of_tile(std::int64_t number) const;
  Context context(SlotViews views, std::byte* workspace, std::byte* scratch) const;
  void run_task(const Task& task, const Context& context) const;
  std::size_t largest_staged(const ConvGrid& grid) const;
  const T* compute_tile(const Task& task, Range rows, const Context& context) const;
  void visit(const Task& task, Range positions, const T* source, std::int64_t pitch,
             const Context& context) const;
  template <class Visit>
  void for_each_chunk(const Range& positions, Visit visit) const;
  void share_positions(const Task& task, const Range& positions, const Context& context) const;
  void visit_row(const Task& task, std::int64_t c, const Range& positions, const Range& tile, const T* source,
                 const Context& context) const;
  void begin_across(Range positions, const Context& context) const;
  void end_across(const Task& task, Range positions, const Context& context) const;
  // The array of a component of a reduction over channels; null for any other slot.
  const T* own_component(int slot, const Context& context) const;
  void take(const SinkPlan& plan, const Task& task, std::int64_t c, const Range& positions,
            TileOperand<T> value, const Context& context) const;
  // Where the results of a statistic over some positions of a channel grow.
  PositionTotals position_totals(const SinkPlan& plan, std::int64_t split, std::int64_t n, std::int64_t c,
                                 bool partial, SlotViews views, std::byte* workspace) const;
  void join_positions(const SinkPlan& plan, const Workers& workers, SlotViews views,
                      std::byte* workspace) const;
  void contract(const Task& task, Range rows, const Context& context) const;
  void join(const Workers& workers, SlotViews views, std::byte* workspace) const;
  const T* pack(const Workers& workers, SlotViews views, std::byte* workspace) const;

  T* elements(const Context& context, std::size_t offset) const {
    return elements_at<T>(context.scratch + offset);
  }
  // Whether a sink needs all channels of a chunk once more: sums of exponentials, when their maximum is known.
  static bool keeps_rows(const SinkPlan& plan) {
    return plan.sink->kind == SinkKind::kStatistic && plan.manner == Manner::kAcrossChannels &&
           plan.statistic == Statistic::kExpSum;
  }
  T* kept_row(const SinkPlan& plan, const Task& task, std::int64_t c, const Context& context) const {
    return elements(context, plan.scratch_offset) + 2 * kChunkPitch + (c - task.channels.begin) * chunk_;
  }
  // Whether the program may take an input as it is, bf16: sinks take float.
  bool reads_bf16(std::size_t row_input) const {
    return std::is_same_v<T, float> && !program_.gives_input(row_input);
  }
  // A channel of the tile that a contraction takes.
  T* contracted_row(const SinkPlan& plan, std::int64_t c, const Range& positions, const Range& tile,
                    const Context& context) const {
    return elements(context, plan.scratch_offset) + c * tile.size() + (positions.begin - tile.begin);
  }
  State* states(const Context& context, const SinkPlan& plan) const {
    return elements_at<State>(context.scratch + plan.scratch_offset);
  }

  const Schedule* schedule_;
  const Sweep* sweep_;
  bool is_turned_;
  std::int64_t batch_ = 1;
  std::int64_t channels_ = 1;
  PositionExtents extents_;
  std::vector<int> row_inputs_;  // inputs of the sweep that the program takes for each channel
  std::vector<bool> varies_;     // each of them, along positions
  RowProgram<T> program_;        // its inputs are those, then what all channels share
  std::vector<int> position_inputs_;
  RowProgram<T> by_position_;
  std::size_t shared_ = 0;  // results of by_position_
  std::optional<EpilogueRunner<T>> epilogue_;
  std::vector<SinkPlan> sinks_;
  std::optional<ConvSource<T>> conv_;
  std::vector<PrologueRunner<T>> prologues_;

  bool by_rows_ = false;         // positions are cut at whole rows
  bool whole_channels_ = false;  // a task has all channels
  bool across_ = false;          // some sink reduces over channels
  bool contracts_ = false;
  bool packs_when_used_ = false;  // each weight is used once, and packed by the task that does
  std::int64_t chunk_ = kChunk;
  std::int64_t depth_tiles_ = 0;  // tiles are parts of a plane, or one or more planes
  std::int64_t plane_tiles_ = 1;
  std::int64_t tile_rows_ = 0;  // of the largest
  std::int64_t channel_blocks_ = 1;
  std::int64_t splits_ = 1;
  std::int64_t grain_ = 1;       // positions: splits are cut at multiples of it
  std::int64_t row_length_ = 0;  // of statistics over some positions: chunks are whole rows or parts of one
  bool by_columns_ = false;      // a part of all rows after the other
  std::int64_t bins_ = 0;  // for contractions: tasks that share one partial result; 0 where there are none

  std::size_t dense_offset_ = 0;  // workspace: weights of the source, packed weights, bias
  std::size_t packed_offset_ = 0;
  std::size_t bias_offset_ = 0;
  std::size_t inputs_offset_ = 0;  // worker's scratch
  std::size_t shared_offset_ = 0;
  std::size_t targets_offset_ = 0;
  std::size_t program_offset_ = 0;
  std::size_t buffers_offset_ = 0;
  std::size_t uniforms_offset_ = 0;
  std::size_t position_buffers_offset_ = 0;
  std::size_t position_program_offset_ = 0;
  std::size_t tile_offset_ = 0;
  std::size_t staged_offset_ = 0;
  std::size_t conv_offset_ = 0;
  std::size_t block_offset_ = 0;
  std::size_t prologue_offset_ = 0;
  std::size_t epilogue_offset_ = 0;
  std::size_t scratch_bytes_ = 0;
};

extern template class SweepRunner<float>;
extern template class SweepRunner<double>;

}  // namespace fuseblock::cpu
