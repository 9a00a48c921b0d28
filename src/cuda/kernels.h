// A schedule cut into kernels: which steps one launch does, and which statistics it works out unit by unit.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule.h"

namespace fuseblock::cuda {

enum class KernelKind : std::uint8_t {
  kRows,      // sweeps unit by unit, and the finalise steps around them
  kColumns,   // sweeps with reductions over channels, tile by tile of positions
  kFinalise,  // statistics out of statistics
  kPool,
};

struct KernelCut {
  KernelKind kind = KernelKind::kRows;
  int first = 0;  // steps of the schedule
  int last = 0;
  std::int64_t unit_channels = 1;  // kRows: a unit is so many channels of one sample
  // kRows: by part: worked out by each unit for itself. What the sweeps take themselves is always so.
  std::vector<bool> local = {};
  // Statistics of the finalise steps that need all units, in order: worked out when the last one is done.
  std::vector<int> remaining = {};
  // By part: a statistic of this kernel that is needed outside of the unit that makes it.
  std::vector<bool> shared = {};
};

struct CutLimits {
  // Statistics that a unit may keep, in numbers: its channels times the statistics of all its steps.
  std::int64_t unit_numbers = 8192;
};

// Throws NotSupportedError where a step has no kernel yet: a convolution, a reduction over some of the positions' axes.
std::vector<KernelCut> cut_into_kernels(const Schedule& schedule, const CutLimits& limits = {});

}  // namespace fuseblock::cuda
