# The libFuzzer programs: each tests/fuzz/*_fuzzer.cc becomes <build>/tests/fuzz/<name>. The library is compiled with
# coverage counters; only the programs themselves get libFuzzer's main. ctest runs each for a short while, from
# tests/fuzz/corpus/<name> where there is one; run it by hand for longer.

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "FUSEBLOCK_FUZZ needs clang: libFuzzer is a part of it. Try `cmake --preset fuzz`.")
endif()

enable_testing()
target_compile_options(fuseblock PRIVATE -fsanitize=fuzzer-no-link)

file(GLOB fuzzer_sources CONFIGURE_DEPENDS tests/fuzz/*_fuzzer.cc)
foreach(source IN LISTS fuzzer_sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} "${source}" tests/cpp/fuzz_support.cc)
  fuseblock_own_code(${name})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer -Wno-missing-declarations)
  target_include_directories(${name} PRIVATE src tests/cpp)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE fuseblock nlohmann_json::nlohmann_json)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/fuzz")
  set(corpus "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
  if(NOT IS_DIRECTORY "${corpus}")
    set(corpus)
  endif()
  # libFuzzer writes what it finds into the first folder: one of the build's own.
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/tests/fuzz/found/${name}")
  add_test(NAME ${name} COMMAND ${name} -runs=20000 -max_total_time=60 -rss_limit_mb=2048
    "${PROJECT_BINARY_DIR}/tests/fuzz/found/${name}" ${corpus})
endforeach()
