// The blocks that every engine must run, by name: the four reference blocks and their tails (the same block
// on the output of a convolution that is computed elsewhere). The command line takes them as `@name`.
#pragma once

#include <span>
#include <string_view>

namespace fuseblock {

struct ReferenceBlock {
  std::string_view name;
  std::string_view notation;
  // The input its users have.
  std::string_view input;
  // A small one for the reference engine and for tests.
  std::string_view small_input;
};

std::span<const ReferenceBlock> reference_blocks();
// Without the `@`. Null if there is none of that name.
const ReferenceBlock* find_reference_block(std::string_view name);

}  // namespace fuseblock
