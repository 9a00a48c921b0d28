# The device code in the library: each file of src/cuda/device as a string, found by its name (cuda::device_file). A
# change of one of them configures again.

file(GLOB device_files CONFIGURE_DEPENDS src/cuda/device/*.cuh src/cuda/device/*.cu)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${device_files})
set(entries "")
foreach(path IN LISTS device_files)
  get_filename_component(name "${path}" NAME)
  file(READ "${path}" content)
  string(APPEND entries "      {\"${name}\", R\"device(${content})device\"},\n")
endforeach()
set(device_source "${PROJECT_BINARY_DIR}/src/cuda/device_files.cc")
file(WRITE "${device_source}.in" "// Written by cmake/FuseblockDeviceFiles.cmake.
#include <map>

#include \"cuda/emit/kernel_writer.h\"
#include \"fuseblock/error.h\"

namespace fuseblock::cuda {

const std::map<std::string, std::string>& device_files() {
  static const std::map<std::string, std::string> kFiles = {
${entries}  };
  return kFiles;
}

const std::string& device_file(const std::string& name) {
  const auto found = device_files().find(name);
  if (found == device_files().end()) throw InternalError(\"there is no device file \" + name);
  return found->second;
}

}  // namespace fuseblock::cuda
")
configure_file("${device_source}.in" "${device_source}" COPYONLY)
list(APPEND FUSEBLOCK_SOURCES "${device_source}")
