// One axis of a pool, cut into runs of results whose windows lie alike.
//
// Seen from the output (`output_runs`) the window of a result holds input elements; seen from the input, as
// adjoints see it (`input_runs`), the results are input elements, and the "window" of one holds the outputs
// it counts for, first to last. There neighbours in a run are `stride` elements apart, since those between
// them have other taps.
#pragma once

#include <vector>

#include "block/geometry.h"

namespace fuseblock::cpu {

// Results begin, begin + step, ... and the elements of their windows: tap t of result i is the element
// source + i * source_step + t * tap_step, and the tap `number + t * number_step` of the pool's window.
struct PoolRun {
  std::int64_t begin = 0;
  std::int64_t step = 1;
  std::int64_t count = 1;
  std::int64_t source = 0;
  std::int64_t source_step = 1;
  std::int64_t taps = 0;
  std::int64_t tap_step = 1;
  std::int64_t number = 0;
  std::int64_t number_step = 1;
  // input_runs: by what an average divides along this axis at all outputs of the run; 0 where they differ.
  std::int64_t length = 1;

  // The results at or behind `from` and before `end`; count 0 where there is none.
  PoolRun within(std::int64_t from, std::int64_t end) const;
};

std::vector<PoolRun> output_runs(const PoolGeometry& geometry, std::size_t axis);
std::vector<PoolRun> input_runs(const PoolGeometry& geometry, std::size_t axis);

}  // namespace fuseblock::cpu
