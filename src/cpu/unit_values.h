// Values that several sweeps of a unit compute: the first one keeps them in cache for the others, where they cost more
// than reading them again does. Backward of group_norm | silu has the slope of silu in two sweeps.
#pragma once

#include <cstddef>
#include <vector>

#include "plan/schedule.h"

namespace fuseblock::cpu {

// A slot that exists unit by unit: [channel of the unit][position], dense, in the arithmetic's type, for each worker.
struct UnitValue {
  int slot = 0;
  std::size_t bytes = 0;  // of one unit
};

// Lets sweeps of schedule.kept store such values and load them, with a new slot for each.
std::vector<UnitValue> share_unit_values(Schedule& schedule, std::size_t element_bytes);

}  // namespace fuseblock::cpu
