// Which extents a tensor may have.
#pragma once

#include <string>

#include "fuseblock/type.h"

namespace fuseblock {

// Whether the bytes of a tensor can be counted, also along the other axes of an empty one.
bool countable(const TensorType& type);
// Throws UserError, with the tensor's name, where an extent is negative or the bytes cannot be counted.
void check_extents(const std::string& name, const TensorType& type);

}  // namespace fuseblock
