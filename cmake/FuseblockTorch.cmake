# The PyTorch operations: <build>/libfuseblock_torch.so, all of fuseblock in one shared library that PyTorch loads with
# torch.ops.load_library. It uses the stable ABI of LibTorch alone, so one library serves every PyTorch from 2.10 on and
# every Python.
#
#   FUSEBLOCK_TORCH      AUTO (built where a PyTorch is found), ON (an error where there is none), OFF
#   FUSEBLOCK_TORCH_DIR  the folder `torch` of an installed PyTorch; unless given, that of the Python of the build (as pip
#                        runs it), then that of .venv
#
# find_package(Torch) is not used: where PyTorch was built for CUDA it asks for a CUDA toolkit, which nothing here needs.

set(FUSEBLOCK_TORCH AUTO CACHE STRING "Build the PyTorch operations: AUTO, ON or OFF")
set(FUSEBLOCK_TORCH_DIR "" CACHE PATH "The folder `torch` of an installed PyTorch")

# A sanitizer's run-time library must come first in a process, and Python's comes first.
if(NOT FUSEBLOCK_TORCH OR FUSEBLOCK_SANITIZE OR FUSEBLOCK_FUZZ)
  return()
endif()

set(torch_dir "${FUSEBLOCK_TORCH_DIR}")
if(NOT torch_dir AND Python_EXECUTABLE)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
      "from importlib.util import find_spec; s = find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(NOT torch_dir)
  file(GLOB torch_dir LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
  if(torch_dir)
    list(GET torch_dir 0 torch_dir)
  endif()
endif()
if(NOT EXISTS "${torch_dir}/include/torch/csrc/stable/ops.h" OR NOT EXISTS "${torch_dir}/lib/libtorch_cpu.so")
  if(FUSEBLOCK_TORCH STREQUAL "ON")
    message(FATAL_ERROR "FUSEBLOCK_TORCH is ON, but there is no PyTorch 2.10 or newer (looked in `${torch_dir}`). "
                        "Install one, or set FUSEBLOCK_TORCH_DIR.")
  endif()
  return()
endif()

file(GLOB FUSEBLOCK_TORCH_SOURCES CONFIGURE_DEPENDS bindings/torch/*.cc)
add_library(fuseblock_torch SHARED ${FUSEBLOCK_TORCH_SOURCES})
fuseblock_own_code(fuseblock_torch)
target_include_directories(fuseblock_torch SYSTEM PRIVATE "${torch_dir}/include")
# PyTorch 2.10, the oldest that the library loads in.
target_compile_definitions(fuseblock_torch PRIVATE TORCH_TARGET_VERSION=0x020a000000000000)
target_link_libraries(fuseblock_torch PRIVATE fuseblock "${torch_dir}/lib/libtorch_cpu.so")
target_link_options(fuseblock_torch PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(fuseblock_torch PROPERTIES
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON
  INSTALL_RPATH "$ORIGIN"
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}"
  # PyTorch's own libraries are in the process before this one.
  SKIP_BUILD_RPATH ON)
