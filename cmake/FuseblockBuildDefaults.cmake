# What holds for the whole build folder when fuseblock is the project being built, and not a part of another one:
# the build type, ccache, the compile database, the sanitizers, the instruction sets.

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(FUSEBLOCK_CCACHE ccache)
mark_as_advanced(FUSEBLOCK_CCACHE)
if(FUSEBLOCK_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${FUSEBLOCK_CCACHE}")
endif()

if(FUSEBLOCK_SANITIZE)
  # The first report ends the program, so that a test cannot pass over it.
  set(sanitize "-fsanitize=${FUSEBLOCK_SANITIZE}" -fno-sanitize-recover=all)
  add_compile_options(${sanitize} -fno-omit-frame-pointer)
  add_link_options(${sanitize})
endif()

# SSE4 shares each of its lines with AVX2 or the baseline, and threads do not know instruction sets: builds that look for
# mistakes and not for speed compile less and see the same code. See src/cpu/vector/targets.h.
if(FUSEBLOCK_LEFT_OUT_TARGETS)
  add_compile_definitions("FUSEBLOCK_LEFT_OUT_TARGETS=(${FUSEBLOCK_LEFT_OUT_TARGETS})")
endif()
