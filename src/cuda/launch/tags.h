// Tags of words that blocks hand to each other in memory that nobody has cleared (device/tagged.cuh).
#pragma once

#include <cstdint>

namespace fuseblock::cuda {

// The first of `count` tags that follow each other. No launch gets one of them again, and none is zero. Each copy of the library
// in a process counts from a random number of 62 bits, so that two of them have none in common but for a chance of that size.
std::uint64_t take_tags(std::int64_t count);

// Whether that memory is to be cleared all the same, as for launches that are captured: FUSEBLOCK_CLEARED, which
// compute-sanitizer's initcheck wants.
bool clears_tagged();

}  // namespace fuseblock::cuda
