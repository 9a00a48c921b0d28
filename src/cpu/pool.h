// Pools and their adjoints, for each sample and channel by itself.
#pragma once

#include "block/geometry.h"
#include "cpu/memory.h"
#include "cpu/parallel.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

// A pool step; operands and result are slots that hold the values whole.
class PoolRunner {
 public:
  PoolRunner(const Schedule& schedule, const ScheduleStep& step);

  void run(const Workers& workers, SlotViews views) const;

 private:
  const ScheduleStep* step_;
  PoolGeometry geometry_;
  OpCode code_{};
  std::int64_t batch_ = 1;
  std::int64_t channels_ = 1;
};

}  // namespace fuseblock::cpu
