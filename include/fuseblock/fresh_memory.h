// Memory that was just allocated and that nothing has touched yet.
#pragma once

#include <cstddef>

namespace fuseblock {

// Asks the system for large pages in place of small ones: the first touch of some megabytes costs less then than the
// arithmetic on them, where it is the better part of a run otherwise. Of `bytes` bytes from `data` on only whole large
// pages are asked for, so that nothing around them changes and no more memory is taken. Does nothing below 4 MiB,
// outside Linux, where the system refuses, and with FUSEBLOCK_HUGE_PAGES=0 in the environment, which is read once.
//
// fuseblock calls it for all memory on the CPU that it allocates itself: tensors, workspaces, results of PyTorch's
// operations. Those who hand in memory of their own may.
void advise_fresh_memory(void* data, std::size_t bytes) noexcept;

}  // namespace fuseblock
