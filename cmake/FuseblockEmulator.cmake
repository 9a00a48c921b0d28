# The emulator of the CUDA driver and of its run-time compiler, tests/emulator: <build>/tests/emulator/libcuda.so.1, which
# the loader finds under the driver's name where LD_LIBRARY_PATH has its folder (see tools/emulated). Not under the
# sanitizers, which do not follow threads from stack to stack.

if(FUSEBLOCK_SANITIZE)
  return()
endif()

file(GLOB emulator_sources CONFIGURE_DEPENDS tests/emulator/*.cc)
list(FILTER emulator_sources EXCLUDE REGEX "_test[.]cc$")
add_library(fuseblock_emulated_cuda SHARED ${emulator_sources})
fuseblock_own_code(fuseblock_emulated_cuda)
target_include_directories(fuseblock_emulated_cuda PRIVATE src tests/emulator)
# longjmp goes from stack to stack, which a fortified one takes for a mistake.
target_compile_options(fuseblock_emulated_cuda PRIVATE -U_FORTIFY_SOURCE)
target_compile_definitions(fuseblock_emulated_cuda PRIVATE
  "FUSEBLOCK_EMULATOR_DIR=\"${PROJECT_SOURCE_DIR}/tests/emulator\""
  "FUSEBLOCK_EMULATOR_COMPILER=\"${CMAKE_CXX_COMPILER}\"")
target_link_libraries(fuseblock_emulated_cuda PRIVATE ${CMAKE_DL_LIBS})
set_target_properties(fuseblock_emulated_cuda PROPERTIES
  CXX_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/emulator")
add_custom_command(TARGET fuseblock_emulated_cuda POST_BUILD
  COMMAND ${CMAKE_COMMAND} -E create_symlink libfuseblock_emulated_cuda.so libcuda.so.1
  WORKING_DIRECTORY "${PROJECT_BINARY_DIR}/tests/emulator")

# Its own tests, and those of launches once more, on it.
add_executable(emulator_test tests/emulator/emulator_test.cc tests/emulator/captures_test.cc tests/cpp/jit_launch_test.cc)
fuseblock_own_code(emulator_test)
target_include_directories(emulator_test PRIVATE src tests/cpp)
target_link_libraries(emulator_test PRIVATE fuseblock GTest::gtest_main)
add_dependencies(emulator_test fuseblock_emulated_cuda)
set_target_properties(emulator_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/emulator")
set(emulator "${PROJECT_BINARY_DIR}/tests/emulator")
# Host calls of the CUDA engine.
add_test(NAME host_emulated_test COMMAND host_test --gtest_filter=HostOnAnEmulatedGpu.*)
add_test(NAME emulator_test COMMAND emulator_test)
set_tests_properties(emulator_test host_emulated_test PROPERTIES
  TIMEOUT ${FUSEBLOCK_TEST_TIMEOUT}
  ENVIRONMENT "LD_LIBRARY_PATH=${emulator}:$ENV{LD_LIBRARY_PATH};FUSEBLOCK_NVRTC=${emulator}/libcuda.so.1;FUSEBLOCK_CACHE_DIR=${emulator}/cache")
