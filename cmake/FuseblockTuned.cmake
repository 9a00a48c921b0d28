# The table of tuned divisions in the library: src/cuda/tuned.json as a string (cuda::tuned_file). A change of it configures
# again.

set(tuned_json "${PROJECT_SOURCE_DIR}/src/cuda/tuned.json")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${tuned_json}")
file(READ "${tuned_json}" content)
set(tuned_source "${PROJECT_BINARY_DIR}/src/cuda/tuned_file.cc")
# A string may have 65,536 characters: a piece a line.
string(REPLACE "\n" "\n)tuned\"\n    R\"tuned(" content "${content}")
file(WRITE "${tuned_source}.in" "// Written by cmake/FuseblockTuned.cmake.
#include \"cuda/tuned.h\"

namespace fuseblock::cuda {

std::string_view tuned_file() {
  static constexpr std::string_view kFile = R\"tuned(${content})tuned\";
  return kFile;
}

}  // namespace fuseblock::cuda
")
configure_file("${tuned_source}.in" "${tuned_source}" COPYONLY)
list(APPEND FUSEBLOCK_SOURCES "${tuned_source}")
