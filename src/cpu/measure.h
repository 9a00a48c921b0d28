// Measures this machine's CPU: rates of multiply-adds, of programs and of special functions, bandwidths of memory and
// caches, the first touch of memory, the start of a sweep. Each figure is the best of many runs.
#pragma once

#include "cpu/machine.h"
#include "fuseblock/device.h"

namespace fuseblock::cpu {

// Fills in the name, the summary, the model, the number of cores and what measuring does not change.
void name_cpu(DeviceDescription& description, const Machine& machine);

DeviceDescription measure(const Machine& machine);

}  // namespace fuseblock::cpu
