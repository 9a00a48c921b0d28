#include "cpu/engine.h"

#include <algorithm>
#include <array>

#include "cpu/channels_last.h"
#include "cpu/channels_last_runner.h"
#include "cpu/description.h"
#include "cpu/finalise.h"
#include "cpu/host_call.h"
#include "cpu/memory.h"
#include "cpu/parallel.h"
#include "cpu/pool.h"
#include "cpu/position_sinks.h"
#include "cpu/sweep_runner.h"
#include "cpu/turned.h"
#include "cpu/unit_values.h"
#include "plan/borrow.h"
#include "plan/keep.h"
#include "plan/saved.h"

namespace fuseblock::cpu {
namespace {

// Small units go several to a task.
constexpr std::int64_t kMostUnitTasks = 256;
// The views of so many slots lie on the stack, those of more in the workspace.
constexpr std::size_t kFewSlots = 8;

template <class T>
constexpr DType kStoredType = sizeof(T) == 4 ? DType::kF32 : DType::kF64;

template <class T>
class CpuExecutable : public Executable {
 public:
  CpuExecutable(Schedule schedule, const PlanOptions& options)
      : schedule_(std::move(schedule)),
        running_(schedule_),
        turned_(schedule_),
        finalise_(schedule_),
        own_workers_(options.workers),
        workers_(options.workers ? *options.workers : workers(options.threads)) {
    take_over_positions(schedule_);
    borrow_outputs(schedule_, kStoredType<T>);
    schedule_.kept = find_kept(schedule_, sizeof(T));
    // Without positions a unit would be a few elements.
    std::erase_if(schedule_.kept, [&](const Kept& kept) {
      return !over_positions(schedule_.steps[static_cast<std::size_t>(kept.first)].sweep.domain);
    });
    reduce_samples(schedule_);
    const ChannelsLastChoice channels_last = find_channels_last(schedule_);
    for (std::size_t i = 0; i < schedule_.slots.size(); ++i)
      if (channels_last.slots[i]) schedule_.slots[i].layout = fuseblock::Layout::kChannelsLast;
    running_ = schedule_;
    unit_values_ = share_unit_values(running_, sizeof(T));
    schedule_.kept = running_.kept;
    Layout layout;
    offsets_ = place_slots(running_, kStoredType<T>, layout);
    turned_ = turned(running_);
    const std::size_t steps = schedule_.steps.size();
    runners_.resize(steps);
    together_.resize(steps);
    host_calls_.resize(steps);
    turns_.resize(steps);
    pools_.resize(steps);
    for (std::size_t i = 0; i < steps; ++i) {
      const ScheduleStep& step = running_.steps[i];
      if (step.kind == StepKind::kHostCall)
        host_calls_[i] = std::make_unique<HostCall>(running_, step, options.host, kStoredType<T>, layout);
      if (step.kind == StepKind::kPool) {
        pools_[i] = std::make_unique<PoolRunner>(running_, step);
        scratch_stride_ = std::max(scratch_stride_, pools_[i]->scratch_bytes());
      }
      if (step.kind != StepKind::kSweep) continue;
      turns_[i] = can_turn(running_, step.sweep);
      const Schedule& seen = turns_[i] ? turned_ : running_;
      if (channels_last.steps[i]) {
        channels_last_runners_.push_back(
            std::make_unique<ChannelsLastRunner<T>>(seen, seen.steps[i].sweep, turns_[i], layout));
        together_[static_cast<std::size_t>(channels_last.together[i])].push_back(
            channels_last_runners_.back().get());
      } else {
        runners_[i] = std::make_unique<SweepRunner<T>>(seen, seen.steps[i].sweep, turns_[i], layout);
        scratch_stride_ = std::max(scratch_stride_, runners_[i]->scratch_bytes());
      }
    }
    for (const auto& sweeps : together_) {
      std::size_t bytes = 0;
      for (const ChannelsLastRunner<T>* sweep : sweeps) bytes += sweep->scratch_bytes();
      scratch_stride_ = std::max(scratch_stride_, bytes);
    }
    place_behind_sweeps();
    if (running_.slots.size() > kFewSlots)
      views_offset_ = layout.reserve(2 * running_.slots.size() * sizeof(SlotView));
    scratch_offset_ = layout.reserve(scratch_stride_ * static_cast<std::size_t>(workers_.count()));
    workspace_bytes_ = layout.bytes();
  }

  std::size_t workspace_bytes() const override { return workspace_bytes_; }

  void run(const Arguments& arguments, std::span<std::byte> workspace) const override {
    const std::size_t slots = running_.slots.size();
    std::array<SlotView, 2 * kFewSlots> few;
    const std::span<SlotView> places = slots > kFewSlots
                                           ? list_at<SlotView>(workspace.data() + views_offset_, 2 * slots)
                                           : std::span(few).first(2 * slots);
    const std::span<SlotView> views = places.first(slots);
    const std::span<SlotView> turned_views = places.last(slots);
    show_slots(running_, offsets_, kStoredType<T>, arguments, workspace, views);
    std::transform(views.begin(), views.end(), turned_views.begin(),
                   [](const SlotView& view) { return turned(view); });
    const FinaliseScratch numbers = numbers_of_all(workspace.data());
    auto kept = schedule_.kept.begin();
    for (std::size_t i = 0; i < schedule_.steps.size(); ++i) {
      const ScheduleStep& step = schedule_.steps[i];
      if (kept != schedule_.kept.end() && kept->first == static_cast<int>(i)) {
        run_kept(*kept, views, workspace.data());
        i = static_cast<std::size_t>((kept++)->last);
        continue;
      }
      switch (step.kind) {
        case StepKind::kSweep: run_sweep(i, turns_[i] ? turned_views : views, workspace.data()); break;
        case StepKind::kFinalise: finalise_.run(step, workers_, views, numbers); break;
        case StepKind::kPool:
          pools_[i]->run(workers_, views, workspace.data() + scratch_offset_, scratch_stride_);
          break;
        case StepKind::kHostCall: host_calls_[i]->run(workers_, views, workspace.data()); break;
      }
    }
  }

  const Schedule* schedule() const override { return &schedule_; }

 private:
  // A sweep, or all that run together with it; nothing where it has run with an earlier one.
  void run_sweep(std::size_t step, SlotViews views, std::byte* workspace) const {
    std::byte* scratch = workspace + scratch_offset_;
    if (runners_[step])
      runners_[step]->run(workers_, views, workspace, scratch, scratch_stride_);
    else if (!together_[step].empty())
      ChannelsLastRunner<T>::run(together_[step], workers_, views, workspace, scratch, scratch_stride_);
  }

  // All steps of one unit after the other, then what needs all units.
  void run_kept(const Kept& kept, SlotViews views, std::byte* workspace) const {
    const Extents& domain = schedule_.steps[static_cast<std::size_t>(kept.first)].sweep.domain;
    const std::int64_t per_sample = domain[1] / kept.channels;
    const std::int64_t units = domain[0] * per_sample;
    const std::int64_t tasks = std::min(units, kMostUnitTasks);
    run_tasks(workers_, tasks, [&](std::int64_t task, int worker) {
      std::byte* scratch = workspace + scratch_offset_ + static_cast<std::size_t>(worker) * scratch_stride_;
      const Range mine = balanced_part(units, tasks, task);
      // The worker's own views, where it has values of its own.
      SlotViews seen = views;
      std::span<SlotView> own;
      if (!unit_values_.empty()) {
        own = list_at<SlotView>(scratch + own_views_offset_, views.size());
        std::copy(views.begin(), views.end(), own.begin());
        seen = own;
      }
      for (std::int64_t unit = mine.begin; unit < mine.end; ++unit) {
        const std::int64_t first = unit % per_sample * kept.channels;
        const FinaliseUnit place = {unit / per_sample, first, first + kept.channels};
        show_unit_values(first, scratch, own);
        for (int i = kept.first; i <= kept.last; ++i) {
          const ScheduleStep& step = schedule_.steps[static_cast<std::size_t>(i)];
          if (step.kind == StepKind::kSweep)
            runners_[static_cast<std::size_t>(i)]->run_unit(place.n, {first, first + kept.channels}, seen,
                                                            workspace, scratch);
          else
            finalise_.run_unit(step, views, {numbers_in(scratch), 0}, kept.local, place);
        }
      }
    });
    for (int i = kept.first; i <= kept.last; ++i) {
      const ScheduleStep& step = schedule_.steps[static_cast<std::size_t>(i)];
      if (step.kind == StepKind::kFinalise)
        finalise_.run(step, workers_, views, numbers_of_all(workspace), kept.local);
    }
  }

  // What a worker needs beside the scratch of sweeps.
  void place_behind_sweeps() {
    Layout scratch;
    scratch.reserve(scratch_stride_);
    for (const UnitValue& value : unit_values_) unit_offsets_.push_back(scratch.reserve(value.bytes));
    if (!unit_values_.empty()) own_views_offset_ = scratch.reserve(running_.slots.size() * sizeof(SlotView));
    numbers_offset_ = scratch.reserve(finalise_.scratch_elements() * sizeof(double));
    scratch_stride_ = scratch.bytes();
  }

  // The scratch of finalise steps in that of a worker.
  double* numbers_in(std::byte* scratch) const { return elements_at<double>(scratch + numbers_offset_); }
  FinaliseScratch numbers_of_all(std::byte* workspace) const {
    return {numbers_in(workspace + scratch_offset_), scratch_stride_ / sizeof(double)};
  }

  // Views of a unit's own values, by the channels of the whole.
  void show_unit_values(std::int64_t first_channel, std::byte* scratch, std::span<SlotView> views) const {
    for (std::size_t i = 0; i < unit_values_.size(); ++i) {
      const auto slot = static_cast<std::size_t>(unit_values_[i].slot);
      SlotView& view = views[slot];
      view.dtype = kStoredType<T>;
      view.strides = dense_strides(running_.slots[slot].extents);
      view.strides[0] = 0;
      view.data =
          scratch + unit_offsets_[i] - first_channel * view.strides[1] * static_cast<std::int64_t>(sizeof(T));
    }
  }

  Schedule schedule_;
  Schedule running_;  // with what only the sweeps of a unit share
  Schedule turned_;   // the same for sweeps without positions
  std::vector<UnitValue> unit_values_;
  std::vector<std::size_t> unit_offsets_;
  FinaliseRunner finalise_;
  std::shared_ptr<const Workers> own_workers_;  // keeps the caller's alive
  const Workers& workers_;
  std::vector<std::size_t> offsets_;
  std::vector<std::unique_ptr<ChannelsLastRunner<T>>> channels_last_runners_;
  std::vector<std::vector<const ChannelsLastRunner<T>*>>
      together_;  // by the first step of each, as the next two
  std::vector<std::unique_ptr<SweepRunner<T>>> runners_;
  std::vector<bool> turns_;  // by step: a sweep that runs turned
  std::vector<std::unique_ptr<HostCall>> host_calls_;
  std::vector<std::unique_ptr<PoolRunner>> pools_;
  std::size_t views_offset_ = 0;
  std::size_t own_views_offset_ = 0;  // in a worker's scratch, as the next
  std::size_t numbers_offset_ = 0;
  std::size_t scratch_offset_ = 0;
  std::size_t scratch_stride_ = 0;
  std::size_t workspace_bytes_ = 0;
};

std::unique_ptr<Executable> make_executable(Schedule schedule, const PlanOptions& options) {
  if (arithmetic_type(schedule.block.arguments()) == DType::kF64)
    return std::make_unique<CpuExecutable<double>>(std::move(schedule), options);
  return std::make_unique<CpuExecutable<float>>(std::move(schedule), options);
}

}  // namespace

std::unique_ptr<Executable> prepare(const TypedBlock& block, const PlanOptions& options) {
  return make_executable(make_schedule(block, description(), options), options);
}

TrainingExecutables prepare_training(const TypedBlock& forward, const TypedBlock& backward,
                                     const PlanOptions& options) {
  auto [written, read] = make_training_schedules(forward, backward, arithmetic_type(forward.arguments()),
                                                 description(), options);
  return {make_executable(std::move(written), options), make_executable(std::move(read), options)};
}

}  // namespace fuseblock::cpu
