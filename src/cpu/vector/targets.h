// Which instruction sets the files of this folder are compiled for. Include it before any header of Highway.
//
// Highway compiles each .cc once for every target and picks the best the machine has at run time. SSSE3 is left
// out: processors that have it and not SSE4 run the baseline. SVE is left out: its vectors have no size at compile
// time, so that they fit into no array of partial sums; such machines run NEON.
#pragma once

// What a build folder leaves out in addition; see cmake/FuseblockBuildDefaults.cmake.
#if !defined(FUSEBLOCK_LEFT_OUT_TARGETS)
#define FUSEBLOCK_LEFT_OUT_TARGETS 0
#endif

// NOLINTNEXTLINE(readability-identifier-naming): Highway's name
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | FUSEBLOCK_LEFT_OUT_TARGETS)
