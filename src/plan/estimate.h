// What each step of a schedule does and takes, by the cost model. docs/devices.md has the formulas.
#pragma once

#include <vector>

#include "plan/cost.h"
#include "plan/schedule.h"

namespace fuseblock {

struct StepEstimate {
  double operations = 0;  // all of them
  double convolution_operations = 0;
  double special = 0;     // exp, tanh and the like
  double read_bytes = 0;  // of arguments, stored values, statistics; each value once a step
  double written_bytes = 0;
  double seconds = 0;
};

// One for each step.
std::vector<StepEstimate> estimate_steps(const Schedule& schedule, const CostModel& cost);

// All steps together.
StepEstimate total(const std::vector<StepEstimate>& steps);

// Bytes of a slot in memory; 0 for what lives in a tile.
double slot_bytes(const Schedule& schedule, int slot, const CostModel& cost);

}  // namespace fuseblock
