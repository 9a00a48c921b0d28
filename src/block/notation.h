// Pieces of the notation's reader that the builder shares.
#pragma once

#include <utility>
#include <vector>

#include "block/lexer.h"
#include "fuseblock/block.h"

namespace fuseblock {

// Reads an infix formula over names, which resolve in the builder; returns it with the values of its inputs.
std::pair<Formula, std::vector<Value>> read_formula(Lexer& lexer, Builder& builder);

}  // namespace fuseblock
