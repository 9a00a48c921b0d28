// Runs one sweep over channels_last values in the order of memory: a chunk is some whole positions, all channels of
// each one behind the other.
//
// The program is taken apart (program_split.h): what depends on channels alone is worked out once a task and repeated
// along the chunk, what depends on positions alone once a block of chunks. Statistics for each channel are sums down
// the columns of the chunk (vector/columns.h), those over channels are sums of its rows.
//
// How the domain is cut depends on the sweep alone, and partial results are joined in the order of the tasks. Sweeps
// that channels_last.h finds, no others.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "cpu/conv/grid.h"
#include "cpu/epilogue_runner.h"
#include "cpu/finalise.h"
#include "cpu/memory.h"
#include "cpu/parallel.h"
#include "cpu/program_split.h"
#include "cpu/row_program.h"
#include "cpu/rows.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

template <class T>
class ChannelsLastRunner {
 public:
  // Reserves what the sweep needs in the workspace beside its slots.
  // `is_turned`: the schedule and the views of `run` are (turned.h).
  ChannelsLastRunner(const Schedule& schedule, const Sweep& sweep, bool is_turned, Layout& layout);

  // Bytes of scratch that each worker needs.
  std::size_t scratch_bytes() const { return scratch_bytes_; }
  // Runs sweeps over one domain, all of them on a few positions after the other: what they load stays in cache in
  // between. Each worker's scratch holds that of all sweeps.
  static void run(std::span<const ChannelsLastRunner* const> sweeps, const Workers& workers, SlotViews views,
                  std::byte* workspace, std::byte* scratch, std::size_t scratch_stride);

 private:
  struct SinkPlan {
    const Sink* sink = nullptr;
    Statistic statistic{};
    bool across = false;             // a statistic over channels; else for each channel
    bool single = false;             // a statistic of one element: of each channel and position
    bool in_place = false;           // kStore: results may be made where they are stored
    std::size_t taker = 0;           // the first sink that takes the same step
    std::size_t partial_offset = 0;  // workspace, for each channel: states
    std::size_t rows_offset = 0;    // worker's scratch: across: two arrays of positions; else: two of columns
    std::size_t shift_offset = 0;   // of moments for each channel: an array of columns
    std::size_t totals_offset = 0;  // for each channel: arrays of doubles
  };
  // One task on one worker; it lies at the begin of the worker's scratch.
  struct Context {
    SlotViews views;
    std::byte* workspace = nullptr;
    std::byte* scratch = nullptr;
    std::int64_t n = 0;
    std::int64_t split = 0;
    // Lists in the scratch.
    std::span<TileOperand<T>> inputs;     // of the rest of the program
    std::span<TileOperand<T>> positions;  // results of by_position in a block
    std::span<T*> targets;                // one for each sink
    std::int64_t samples = 0;             // positions in the totals
    std::int64_t pending = 0;             // positions in the columns and not yet in the totals
    // Moments in double precision throughout: where squares overflow T.
    bool wide = false;
  };

  void cut_domain();
  void reserve(Layout& layout);
  Context context(SlotViews views, std::byte* workspace, std::byte* scratch, std::int64_t task) const;
  void begin_task(Context& context) const;
  void run_positions(Range positions, Context& context) const;
  void end_task(Range positions, Context& context) const;
  void load_channels(Context& context) const;
  void load_block(Range positions, Context& context) const;
  void visit(Range chunk, Range block, Context& context) const;
  void load_chunk(Range chunk, Range block, Context& context) const;
  // What a sink takes of a chunk of `count` elements.
  const T* taken(std::size_t sink, std::int64_t count, const Context& context) const;
  void begin_statistics(Context& context) const;
  void take(const SinkPlan& plan, const T* x, Range chunk, Range block, Context& context) const;
  void take_single(const SinkPlan& plan, const T* x, Range chunk, const Context& context) const;
  void take_columns(const SinkPlan& plan, const T* x, std::int64_t count, const Context& context) const;
  void take_wide(const SinkPlan& plan, const T* x, std::int64_t count, const Context& context) const;
  void flush(Context& context) const;
  void flush_moments(const SinkPlan& plan, const Context& context) const;
  void end_block(Range block, const Context& context) const;
  // Whether all moments are numbers.
  bool end_statistics(Context& context) const;
  const T* own_component(int slot, const Context& context) const;
  void join(const Workers& workers, SlotViews views, std::byte* workspace) const;

  T* elements(const Context& context, std::size_t offset) const {
    return elements_at<T>(context.scratch + offset);
  }
  double* totals(const Context& context, const SinkPlan& plan) const {
    return elements_at<double>(context.scratch + plan.totals_offset);
  }
  bool is_statistic(const SinkPlan& plan) const { return plan.sink->kind == SinkKind::kStatistic; }
  // Of each channel over positions: in columns, totals and states.
  bool is_of_columns(const SinkPlan& plan) const {
    return is_statistic(plan) && !plan.across && !plan.single;
  }

  const Schedule* schedule_;
  const Sweep* sweep_;
  std::int64_t batch_ = 1;
  std::int64_t channels_ = 1;
  PositionExtents extents_;
  ProgramSplit split_;
  RowProgram<T> by_channel_;
  RowProgram<T> by_position_;
  RowProgram<T> rest_;
  std::vector<SinkPlan> sinks_;
  std::optional<EpilogueRunner<T>> epilogue_;

  std::int64_t columns_ = 1;  // sums run down so many columns: channels, a few times over where they are few
  std::int64_t chunk_ = 1;    // positions
  std::int64_t block_ = 1;    // positions: chunks that share what varies along positions alone
  std::int64_t splits_ = 1;   // tasks of a sample
  std::size_t pitch_ = 0;     // elements from one chunk-sized array to the next

  std::size_t buffers_offset_ =
      0;  // worker's scratch: loaded inputs, then repeated ones, then one for results
  std::size_t inputs_offset_ = 0;  // lists
  std::size_t positions_offset_ = 0;
  std::size_t targets_offset_ = 0;
  std::size_t channel_operands_offset_ = 0;
  std::size_t position_operands_offset_ = 0;
  std::size_t channel_inputs_offset_ = 0;
  std::size_t channel_program_offset_ = 0;
  std::size_t position_inputs_offset_ = 0;
  std::size_t position_program_offset_ = 0;
  std::size_t program_offset_ = 0;
  std::size_t epilogue_offset_ = 0;
  std::size_t scratch_bytes_ = 0;
};

extern template class ChannelsLastRunner<float>;
extern template class ChannelsLastRunner<double>;

}  // namespace fuseblock::cpu
