// Slots as memory: where the elements of a value are while a plan runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fuseblock/plan.h"
#include "plan/schedule.h"

namespace fuseblock {

// The type of the arithmetic, and of stored values: f64 where an input is, else f32.
DType arithmetic_type(const std::vector<NamedType>& inputs);

// A value's elements, `strides` elements apart along n c d h w; 0 where it does not vary.
struct SlotView {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  Extents strides = {0, 0, 0, 0, 0};

  std::int64_t offset(std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t w) const {
    return n * strides[0] + c * strides[1] + d * strides[2] + h * strides[3] + w * strides[4];
  }
};

// Strides of a dense array; 0 along axes of extent 1.
Extents dense_strides(const Extents& extents, Layout layout = Layout::kContiguous);

// Where everything lies in the workspace. All offsets are multiples of 64.
class WorkspaceLayout {
 public:
  // Reserves bytes and returns their offset.
  std::size_t reserve(std::size_t bytes) {
    const std::size_t offset = bytes_;
    bytes_ += (bytes + 63) / 64 * 64;
    return offset;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

// A place in the workspace for each slot that lives there; `stored` is the arithmetic's type. Throws NotSupportedError
// where a value is too large.
std::vector<std::size_t> place_slots(const Schedule& schedule, DType stored, WorkspaceLayout& layout);

// The views of all slots for one run, in memory of the caller's.
void show_slots(const Schedule& schedule, const std::vector<std::size_t>& offsets, DType stored,
                const Arguments& arguments, std::span<std::byte> workspace, std::span<SlotView> views);
// The same in memory of their own.
std::vector<SlotView> slot_views(const Schedule& schedule, const std::vector<std::size_t>& offsets,
                                 DType stored, const Arguments& arguments, std::span<std::byte> workspace);

}  // namespace fuseblock
