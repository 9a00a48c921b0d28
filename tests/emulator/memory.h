// Memory of the emulated GPU: the program's own, with guards before and behind each piece.
#pragma once

#include <cstddef>
#include <string>

namespace fuseblock_emulated {

// Poisoned: NaN in every type. Null where there is no memory left.
void* allocate(std::size_t bytes);

// False where it is no piece that allocate gave.
bool release(void* pointer);

// What was written outside of the pieces that there are, in words; empty where nothing was.
std::string broken_guards();

// Why the bytes are not to be copied or set: they reach out of the piece that they begin in. Memory that is not of
// allocate is anybody's.
std::string outside(const void* pointer, std::size_t bytes);

}  // namespace fuseblock_emulated
