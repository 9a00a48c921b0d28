// Tags of words that blocks hand to each other in memory that nobody has cleared (device/tagged.cuh).
#pragma once

#include <cstdint>

namespace fuseblock::cuda {

// The first of `count` tags that follow each other. No launch of this process gets one of them again, whichever copy of the
// library makes it; none is zero.
std::uint64_t take_tags(std::int64_t count);

// Whether that memory is to be cleared all the same, as for launches that are captured: FUSEBLOCK_CLEARED, which
// compute-sanitizer's initcheck wants.
bool clears_tagged();

}  // namespace fuseblock::cuda
