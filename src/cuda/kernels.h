// A schedule cut into kernels: which steps one launch does, and which statistics it works out unit by unit.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule.h"

namespace fuseblock::cuda {

enum class KernelKind : std::uint8_t {
  kRows,  // sweeps unit by unit, and the finalise steps around them
  kColumns,  // sweeps with reductions over channels, tile by tile of positions, and the finalise steps behind them
  kFinalise,  // statistics out of statistics
  kPool,
  kHostCall,    // a convolution by the embedder's function
  kSlices,      // as kRows, over channels_last tensors: slices of channels (`slices`, `slices_cluster`)
  kConv,        // a sweep over a convolution, and the finalise steps behind it
  kConvWide,    // the same, with many channels
  kConvDirect,  // a convolution that is stored
};

struct KernelCut {
  KernelKind kind = KernelKind::kRows;
  int first = 0;  // steps of the schedule
  int last = 0;
  std::int64_t unit_channels =
      1;  // kRows, kSlices, kConv, kConvWide: a unit is so many channels of one sample
  // The same kinds: by part: worked out by each unit for itself. What the sweeps take themselves is always so.
  std::vector<bool> local = {};
  // Statistics of the finalise steps that need all units or tiles, in order: worked out when the last one is done.
  // kFinalise: those of this kernel.
  std::vector<int> remaining = {};
  // kFinalise: outputs of the step, slots.
  std::vector<int> outputs = {};
  // By part: a statistic of this kernel that is needed outside of the unit that makes it.
  std::vector<bool> shared = {};
  // By part: needed by a kernel that follows.
  std::vector<bool> later = {};
};

struct CutLimits {
  // Statistics that a unit may keep, in numbers: its channels times the statistics of all its steps.
  std::int64_t unit_numbers = 8192;
};

// The layout of a value between steps.
Layout layout_of(const Schedule& schedule, const Slot& slot);

// Whether a finalise step works out statistics that vary over positions. It is cut into one kernel for each of them, all
// blocks of a grid at work, and one for its outputs.
bool varies_over_positions(const Schedule& schedule, const ScheduleStep& finalise);

// Throws NotSupportedError where a step has no kernel yet: a gradient by a weight. The schedule is arranged (cuda/arrange.h).
std::vector<KernelCut> cut_into_kernels(const Schedule& schedule, const CutLimits& limits = {});

}  // namespace fuseblock::cuda
