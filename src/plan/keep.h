// Sweeps that can go unit by unit: a few channels of one sample at a time, so that what the first sweep has read is
// still in cache when the next one reads it again.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule.h"

namespace fuseblock {

// What a unit may be.
struct KeepLimits {
  double bytes = 4e6;             // of all that its sweeps read and write at positions
  std::int64_t fewest_units = 8;  // fewer leave cores idle
};

// Runs of neighbouring steps of a schedule that can be one kernel: sweeps that load, over one domain, with finalise
// steps in between of which the later sweeps need nothing but the statistics of their own unit. At least two sweeps
// each; in the order of the steps.
std::vector<Kept> find_kept(const Schedule& schedule, int element_bytes, const KeepLimits& limits = {});

}  // namespace fuseblock
