# `cmake --install`: headers, library, command, and the package that find_package(fuseblock) finds.

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/fuseblock")

install(TARGETS fuseblock EXPORT fuseblockTargets)
# Where it has been built: `make demo` builds the command alone.
install(TARGETS fuseblock_c OPTIONAL)
if(TARGET fuseblock_cli)
  install(TARGETS fuseblock_cli)
endif()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/fuseblock" "${PROJECT_BINARY_DIR}/include/fuseblock"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h")
install(EXPORT fuseblockTargets NAMESPACE fuseblock:: DESTINATION "${package_dir}")

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/fuseblockConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/fuseblockConfig.cmake" INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/fuseblockConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/fuseblockConfig.cmake" "${PROJECT_BINARY_DIR}/fuseblockConfigVersion.cmake"
  DESTINATION "${package_dir}")

# What a Python package holds beside its Python files, all in one folder (pyproject.toml): the shared libraries and those
# that they load, so that a machine without Highway and oneTBB can use it.
if(TARGET fuseblock_torch)
  install(TARGETS fuseblock_c fuseblock_torch LIBRARY DESTINATION . COMPONENT python EXCLUDE_FROM_ALL)
  foreach(library IN ITEMS hwy::hwy TBB::tbb)
    get_target_property(type ${library} TYPE)
    if(type STREQUAL "SHARED_LIBRARY")
      install(FILES "$<TARGET_FILE:${library}>" DESTINATION . RENAME "$<TARGET_SONAME_FILE_NAME:${library}>"
        COMPONENT python EXCLUDE_FROM_ALL)
    endif()
  endforeach()
endif()
