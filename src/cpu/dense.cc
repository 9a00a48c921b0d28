#include "cpu/dense.h"

#include <algorithm>
#include <type_traits>

#include "cpu/conv/grid.h"
#include "cpu/rows.h"
#include "cpu/vector/convert.h"

namespace fuseblock::cpu {
namespace {

constexpr std::int64_t kTasks = 32;
constexpr std::int64_t kTaskElements = 16384;  // fewer take less time than it takes to hand a task out

bool is_dense(const SlotView& view, const Extents& extents) {
  const Extents dense = dense_strides(extents);
  for (std::size_t i = 0; i < extents.size(); ++i)
    if (extents[i] != 1 && view.strides[i] != dense[i]) return false;
  return true;
}

}  // namespace

template <class T>
const T* dense_elements(const Workers& workers, const SlotView& view, const Extents& extents, T* buffer) {
  constexpr DType kOwnType = std::is_same_v<T, float> ? DType::kF32 : DType::kF64;
  const bool dense = is_dense(view, extents);
  if (dense && view.dtype == kOwnType) return elements_at<T>(view.data);
  const PositionExtents positions = {extents[2], extents[3], extents[4]};
  const std::int64_t row = positions.count();
  const std::int64_t rows = extents[0] * extents[1];
  const std::int64_t tasks = std::clamp<std::int64_t>(rows * row / kTaskElements, 1, kTasks);
  run_tasks(workers, tasks, [&](std::int64_t task, int) {
    const Range mine = balanced_part(rows, tasks, task);
    if (dense) {
      load_elements(view.data + mine.begin * row * byte_size(view.dtype), view.dtype, 1,
                    buffer + mine.begin * row, static_cast<std::size_t>(mine.size() * row));
      return;
    }
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      T* const place = buffer + i * row;
      const T* const from = load_positions(view, positions, i / extents[1], i % extents[1], 0, row, place);
      if (from != place) std::copy_n(from, row, place);
    }
  });
  return buffer;
}

template const float* dense_elements(const Workers&, const SlotView&, const Extents&, float*);
template const double* dense_elements(const Workers&, const SlotView&, const Extents&, double*);

}  // namespace fuseblock::cpu
