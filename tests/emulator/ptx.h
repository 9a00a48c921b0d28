// Inline PTX as C++.
#pragma once

#include <string>
#include <vector>

namespace fuseblock_emulated {

// The C++ statements for the instructions of an asm statement. `operands` are the C++ expressions that stand for %0, %1, ...
// Throws std::runtime_error where an instruction is not known; the message names it.
std::string cpp_of_ptx(const std::string& instructions, const std::vector<std::string>& operands);

}  // namespace fuseblock_emulated
