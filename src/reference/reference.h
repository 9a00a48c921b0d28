// The oracle: runs any block in double precision, one operation after the other, on one thread.
//
// Every value of the block is a dense array of doubles in the workspace. Inputs are widened when they are
// loaded and outputs rounded when they are stored; nothing is rounded in between, whatever dtype an inner
// value is declared to have.
#pragma once

#include <cstddef>
#include <span>

#include "fuseblock/plan.h"
#include "fuseblock/typed_block.h"

namespace fuseblock::reference {

// Bytes of workspace a run needs: an array of doubles for every value of the block. Throws NotSupportedError
// where they exceed what an address can reach.
std::size_t workspace_bytes(const TypedBlock& block);

// Runs the block. The arguments have the dtypes and extents of the block's types; their strides are
// arbitrary. The workspace has at least workspace_bytes() bytes, is aligned to 64, and may hold anything.
void run(const TypedBlock& block, const Arguments& arguments, std::span<std::byte> workspace);

}  // namespace fuseblock::reference
