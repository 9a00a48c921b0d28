# fuseblock_own_code(TARGET): C++20 without extensions and the warnings that our own code compiles without, under g++ 12
# and clang 19 alike. Errors with FUSEBLOCK_WERROR.

add_library(fuseblock_warnings INTERFACE)
target_compile_options(fuseblock_warnings INTERFACE
  -Wall
  -Wextra
  -Wpedantic
  -Wcast-align
  -Wcast-qual
  -Wconversion
  -Wno-sign-conversion  # indices are signed, std::vector's are not: a cast at each [] would hide the casts that matter
  -Wextra-semi
  -Wformat=2
  -Wimplicit-fallthrough
  -Wmissing-declarations
  -Wnon-virtual-dtor
  -Wold-style-cast
  -Woverloaded-virtual
  -Wshadow
  -Wundef
  -Wunused
  -Wvla
  # g++ 12 sees overlapping copies in `"text" + std::string` once it has inlined them; they are not there.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  # libstdc++ 12 uses a deprecated function of its own in std::stable_sort and std::stable_partition, and clang tells us.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
  $<$<BOOL:${FUSEBLOCK_WERROR}>:-Werror>)

function(fuseblock_own_code target)
  # BUILD_INTERFACE: the warnings are ours, not the users'.
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:fuseblock_warnings>)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20
    CXX_STANDARD_REQUIRED ON
    CXX_EXTENSIONS OFF)
endfunction()
