# The C++ and C tests. Each tests/cpp/*_test.cc is a program and one ctest entry of that name; the other files of tests/cpp are
# a library that all of them link. Tests may include any header of src/ and of tests/cpp/.
#
# Each tests/c/*_test.c is a program in C99 that uses the C API and nothing else, and one ctest entry.
#
# FUSEBLOCK_SOURCE_DIR is the checkout, for files that tests read. Tests named jit_* and cuda_* compile kernels: they run with the
# NVRTC of .venv, where torch brings one, in FUSEBLOCK_NVRTC, unless it is set already.

find_package(GTest 1.12 QUIET)
if(NOT GTest_FOUND)
  message(FATAL_ERROR "The tests need GoogleTest 1.12 or newer (Debian: libgtest-dev). "
                      "Install it, or configure with -DFUSEBLOCK_BUILD_TESTS=OFF.")
endif()

file(GLOB test_sources CONFIGURE_DEPENDS tests/cpp/*_test.cc)
file(GLOB support_sources CONFIGURE_DEPENDS tests/cpp/*.cc)
list(REMOVE_ITEM support_sources ${test_sources})
file(GLOB tool_sources CONFIGURE_DEPENDS tests/tools/*.cc)

# What every test program is compiled with.
add_library(fuseblock_test_base INTERFACE)
target_include_directories(fuseblock_test_base INTERFACE tests/cpp src)
target_compile_definitions(fuseblock_test_base INTERFACE "FUSEBLOCK_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"")
target_link_libraries(fuseblock_test_base INTERFACE
  fuseblock nlohmann_json::nlohmann_json hwy::hwy GTest::gtest)

if(support_sources)
  add_library(fuseblock_test_support STATIC ${support_sources})
  fuseblock_own_code(fuseblock_test_support)
  target_link_libraries(fuseblock_test_support PUBLIC fuseblock_test_base)
else()
  add_library(fuseblock_test_support INTERFACE)
  target_link_libraries(fuseblock_test_support INTERFACE fuseblock_test_base)
endif()

file(GLOB nvrtc ".venv/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13")
if(DEFINED ENV{FUSEBLOCK_NVRTC})
  set(nvrtc)
endif()

foreach(source IN LISTS test_sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} "${source}")
  fuseblock_own_code(${name})
  target_link_libraries(${name} PRIVATE fuseblock_test_support GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/cpp")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${FUSEBLOCK_TEST_TIMEOUT})
  if(nvrtc AND name MATCHES "^(jit|cuda)_")
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "FUSEBLOCK_NVRTC=${nvrtc}")
  endif()
endforeach()

# The longest begin first, so that no core waits at the end for one that another began late.
foreach(name IN ITEMS cuda_compile_test random_blocks_test fuzz_test vector_functions_test limits_test host_test)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endforeach()
if(TEST cuda_compile_test)
  # Hundreds of compilations in its long form.
  set_tests_properties(cuda_compile_test PROPERTIES TIMEOUT 3000)
endif()

enable_language(C)
file(GLOB c_test_sources CONFIGURE_DEPENDS tests/c/*_test.c)
foreach(source IN LISTS c_test_sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} "${source}")
  target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic $<$<BOOL:${FUSEBLOCK_WERROR}>:-Werror>)
  target_link_libraries(${name} PRIVATE fuseblock_c)
  set_target_properties(${name} PROPERTIES
    C_STANDARD 99
    C_STANDARD_REQUIRED ON
    C_EXTENSIONS OFF
    LINKER_LANGUAGE C
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/c")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${FUSEBLOCK_TEST_TIMEOUT})
endforeach()

# All that ctest runs, and nothing else.
set(test_programs ${test_sources} ${c_test_sources})
list(TRANSFORM test_programs REPLACE "^.*/([^/]*)[.]cc?$" "\\1")
add_custom_target(fuseblock_tests DEPENDS ${test_programs})

foreach(source IN LISTS tool_sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} "${source}")
  fuseblock_own_code(${name})
  target_link_libraries(${name} PRIVATE fuseblock_test_support)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/tools")
endforeach()
