// Memory as elements, and the slots of a schedule.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "plan/slot_memory.h"

namespace fuseblock::cpu {

using Layout = WorkspaceLayout;
// The views of all slots in one run.
using SlotViews = std::span<const SlotView>;

// Bytes of the workspace as elements; places in it are aligned to 64.
template <class Element>
Element* elements_at(std::byte* memory) {
  return reinterpret_cast<Element*>(memory);
}
template <class Element>
const Element* elements_at(const std::byte* memory) {
  return reinterpret_cast<const Element*>(memory);
}
// Elements as the bytes that other elements can be made of.
template <class Element>
std::byte* bytes_at(Element* elements) {
  return reinterpret_cast<std::byte*>(elements);
}
// A list of `count` elements there, each of them as it is made without a value.
template <class Element>
std::span<Element> list_at(std::byte* memory, std::size_t count) {
  const std::span<Element> list(elements_at<Element>(memory), count);
  std::fill(list.begin(), list.end(), Element());
  return list;
}

}  // namespace fuseblock::cpu
