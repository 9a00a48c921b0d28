// What the kernel files set before Highway's headers: the targets they are compiled for, and how small constant
// loops over registers are unrolled. SSSE3 machines run the baseline. Vectors are kept in arrays, so targets
// without a fixed vector size are out.
#pragma once

// NOLINTNEXTLINE(readability-identifier-naming): Highway's name
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

// clang unrolls such loops unasked; g++ keeps the array in memory unless told.
#if defined(__GNUC__) && !defined(__clang__)
#define FUSEBLOCK_UNROLL _Pragma("GCC unroll 32")
#else
#define FUSEBLOCK_UNROLL
#endif
