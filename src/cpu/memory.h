// Memory as elements, and the slots of a schedule.
#pragma once

#include <cstddef>

#include "plan/slot_memory.h"

namespace fuseblock::cpu {

using Layout = WorkspaceLayout;

// Bytes of the workspace as elements; places in it are aligned to 64.
template <class Element>
Element* elements_at(std::byte* memory) {
  return reinterpret_cast<Element*>(memory);
}
template <class Element>
const Element* elements_at(const std::byte* memory) {
  return reinterpret_cast<const Element*>(memory);
}

}  // namespace fuseblock::cpu
