// Slots as memory: where the elements of a value are while a plan runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fuseblock/plan.h"
#include "plan/schedule.h"

namespace fuseblock::cpu {

// A value's elements, `strides` elements apart along n c d h w; 0 where it does not vary.
struct SlotView {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  Extents strides = {0, 0, 0, 0, 0};

  std::int64_t offset(std::int64_t n, std::int64_t c, std::int64_t d, std::int64_t h, std::int64_t w) const {
    return n * strides[0] + c * strides[1] + d * strides[2] + h * strides[3] + w * strides[4];
  }
};

// Bytes of the workspace as elements; places in it are aligned to 64.
template <class Element>
Element* elements_at(std::byte* memory) {
  return reinterpret_cast<Element*>(memory);
}
template <class Element>
const Element* elements_at(const std::byte* memory) {
  return reinterpret_cast<const Element*>(memory);
}

// Strides of a dense array; 0 along axes of extent 1.
Extents dense_strides(const Extents& extents, fuseblock::Layout layout = fuseblock::Layout::kContiguous);

// Where everything lies in the workspace. All offsets are multiples of 64.
class Layout {
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

// The views of all slots for one run.
std::vector<SlotView> slot_views(const Schedule& schedule, const std::vector<std::size_t>& offsets,
                                 DType stored, const Arguments& arguments, std::span<std::byte> workspace);

}  // namespace fuseblock::cpu
