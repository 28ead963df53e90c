# The package: `cmake --install` writes libraries, headers, program and what find_package(trireme) reads.
# Link one layer (trireme::mesh) or all of them (trireme::trireme).
include(CMakePackageConfigHelpers)

add_library(trireme_all INTERFACE)
add_library(trireme::trireme ALIAS trireme_all)
set_target_properties(trireme_all PROPERTIES EXPORT_NAME trireme)
get_property(layers GLOBAL PROPERTY TRIREME_LAYER_TARGETS)
target_link_libraries(trireme_all INTERFACE ${layers})
install(TARGETS trireme_all EXPORT trireme_targets)

# Whoever builds the program, as `make build` does, can install.
if(TARGET trireme_program)
  add_dependencies(trireme_program ${layers})
  if(TARGET mpi_peer)
    add_dependencies(trireme_program mpi_peer)
  endif()
endif()

set(TRIREME_PACKAGE_FOLDER "${CMAKE_INSTALL_LIBDIR}/cmake/trireme")
configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/trireme-config.cmake.in"
  "${PROJECT_BINARY_DIR}/trireme-config.cmake" INSTALL_DESTINATION "${TRIREME_PACKAGE_FOLDER}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/trireme-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/trireme-config.cmake"
  "${PROJECT_BINARY_DIR}/trireme-config-version.cmake" DESTINATION "${TRIREME_PACKAGE_FOLDER}")
install(EXPORT trireme_targets NAMESPACE trireme:: FILE trireme-targets.cmake
  DESTINATION "${TRIREME_PACKAGE_FOLDER}")
