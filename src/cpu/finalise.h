// Finalise steps: statistics worked out between sweeps, in double precision, in a fixed order.
#pragma once

#include <vector>

#include "cpu/memory.h"
#include "cpu/parallel.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

// Some channels of one sample.
struct FinaliseUnit {
  std::int64_t n = 0;
  std::int64_t channels_begin = 0;
  std::int64_t channels_end = 0;
};

// Numbers of each worker, `stride` apart.
struct FinaliseScratch {
  double* first = nullptr;
  std::size_t stride = 0;

  double* of(int worker) const { return first + static_cast<std::size_t>(worker) * stride; }
};

class FinaliseRunner {
 public:
  explicit FinaliseRunner(const Schedule& schedule);

  // Numbers of scratch that each worker needs.
  std::size_t scratch_elements() const { return scratch_elements_; }
  // Works out the step's statistics, apart from the parts that are `done`, and writes those that are outputs.
  void run(const ScheduleStep& step, const Workers& workers, SlotViews views, FinaliseScratch scratch,
           const std::vector<bool>& done = {}) const;
  // Works out the `local` statistics of the step for one unit.
  void run_unit(const ScheduleStep& step, SlotViews views, FinaliseScratch scratch,
                const std::vector<bool>& local, const FinaliseUnit& unit) const;

 private:
  const Schedule* schedule_;
  std::vector<int> slot_of_;
  std::size_t scratch_elements_ = 0;
};

// One statistic of several elements or parts of a value. `count` is how many elements `first` and `second`
// stand for.
struct State {
  double first = 0;
  double second = 0;
  double count = 0;
};

// The state of nothing.
State empty_state(Statistic statistic);
// The state of one element.
State element_state(Statistic statistic, double value);
// Joins two states; the order of the calls is part of the result.
State merge(Statistic statistic, const State& a, const State& b);

}  // namespace fuseblock::cpu
