// Pools and their adjoints, on values that lie whole in memory: the walk over windows. The arithmetic is in
// `vector/windows.h`.
//
// A task is a sample, some channels and a box of results. Vectors go along w, or along the channels where
// these lie one behind the other in all tensors. How the work is divided changes no result: each is taken
// from its own window.
#pragma once

#include <array>
#include <vector>

#include "cpu/memory.h"
#include "cpu/parallel.h"
#include "cpu/pool_plane.h"
#include "cpu/pool_runs.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

class PoolRunner {
 public:
  // Operands and result of the step are slots that hold the values whole.
  PoolRunner(const Schedule& schedule, const ScheduleStep& step);

  // What a worker needs of its own: where the largest elements of windows are, for the adjoints of max_pool.
  std::size_t scratch_bytes() const;

  void run(const Workers& workers, SlotViews views, std::byte* scratch, std::size_t scratch_stride) const;

 private:
  using Runs = std::array<std::vector<PoolRun>, 3>;  // along d, h, w

  // What vectors go along. kScattered: along w, whose elements are apart.
  enum class Inner : std::uint8_t { kW, kChannels, kScattered };

  // How large the tasks are.
  struct Division {
    std::int64_t channels = 1;
    Spatial box = {1, 1, 1};
  };

  struct Task;

  bool needs_places() const { return code_ == OpCode::kMaxPoolPut || code_ == OpCode::kMaxPoolTake; }
  Inner inner_axis(SlotViews views) const;
  Division divide(Inner inner) const;
  // The outputs along an axis whose places a box of results needs, at most.
  std::int64_t most_places(std::size_t axis, std::int64_t results) const;
  void reserve_places(Task& task, std::byte* scratch) const;
  void find_places(const Task& task) const;
  void run_task(const Task& task) const;
  void run_region(const Task& task, const PoolRegion& region) const;
  template <class T>
  void run_sums(const Task& task, const PoolRegion& region) const;
  template <class T>
  void add_chosen(const Task& task, const PoolRegion& region) const;
  void take_chosen(const Task& task) const;

  OpCode code_;
  PoolGeometry geometry_;
  std::vector<int> operands_;
  int result_;
  std::int64_t batch_;
  std::int64_t channels_;
  Spatial extents_;  // of the result
  Runs runs_;        // of the results
  Runs place_runs_;  // of the outputs, where needs_places()
};

}  // namespace fuseblock::cpu
