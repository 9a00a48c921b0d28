// The input of a convolution while it is staged: loaded row by row, through a program where there is one.
#pragma once

#include <cstddef>
#include <vector>

#include "cpu/memory.h"
#include "cpu/row_program.h"
#include "cpu/rows.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

// Whether a slot's elements vary along positions.
bool slot_varies(const Schedule& schedule, int slot);

template <class T>
class PrologueRunner {
 public:
  PrologueRunner(const Schedule& schedule, const Prologue& prologue);

  std::size_t scratch_elements() const;
  // Writes the rows (c, d, h) to (c, d, h + count - 1) of sample n, `pitch` elements from one to the next.
  void load_rows(SlotViews views, std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h,
                 std::int64_t count, T* rows, std::int64_t pitch, T* scratch) const;

 private:
  void load_row(SlotViews views, std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h, T* row,
                T* scratch) const;
  // Neighbouring positions from `start` on.
  void load_run(SlotViews views, std::int64_t n, std::int64_t c, std::int64_t start, std::int64_t count,
                T* to, T* scratch) const;

  bool plain_ = false;  // one loaded value, and no arithmetic
  const Prologue* prologue_;
  std::int64_t channels_ = 1;
  PositionExtents extents_;
  std::vector<bool> varies_;
  RowProgram<T> program_;
};

extern template class PrologueRunner<float>;
extern template class PrologueRunner<double>;

}  // namespace fuseblock::cpu
