// What follows reductions over channels inside the same tile: a program on their results at a run of positions.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "cpu/conv/grid.h"
#include "cpu/memory.h"
#include "cpu/row_program.h"
#include "cpu/rows.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

template <class T>
class EpilogueRunner {
 public:
  EpilogueRunner(const Schedule& schedule, const Epilogue& epilogue, const PositionExtents& extents);

  std::size_t scratch_elements() const;
  // Runs on at most kChunk positions of sample n. own(slot) is the array of a component of the tile's own
  // reductions, null for any other slot.
  void run(SlotViews views, std::int64_t n, Range positions, const std::function<const T*(int)>& own,
           T* scratch) const;

 private:
  const Epilogue* epilogue_;
  PositionExtents extents_;
  std::vector<bool> varies_;
  RowProgram<T> program_;
};

extern template class EpilogueRunner<float>;
extern template class EpilogueRunner<double>;

}  // namespace fuseblock::cpu
