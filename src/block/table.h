// The two halves of the catalogue, in the order of the documentation.
#pragma once

#include <vector>

#include "fuseblock/operations.h"

namespace fuseblock {

// Formulas are still text here; the catalogue reads them.
std::vector<Operation> pointwise_table();
std::vector<Operation> structural_table();
// What a formula written in a block becomes; it has no name to be called by.
const Operation& formula_operation();

}  // namespace fuseblock
