# trireme_add_layer(comm PUBLIC a.h PRIVATE b.h SOURCES a.cc DEPS base [LINK third_party]): one folder's target.
# PUBLIC headers are those of docs/reference/headers.md (tools/check_layers.py): users include them, and they stay. Headers
# that they include are installed too, see trireme_install_headers().
# OPENMP: the layer calls at::parallel_for. PRECOMPILED aten or nn: its sources see tensors or modules (TriremePrecompile.cmake).
# Makes the library trireme_<name> (alias trireme::<name>); DEPS are the layers it may include.
function(trireme_add_layer name)
  cmake_parse_arguments(ARG "OPENMP" "PRECOMPILED" "ROOMS;PUBLIC;PRIVATE;SOURCES;DEPS;LINK;PRIVATE_LINK" ${ARGN})
  add_library(trireme_${name} STATIC ${ARG_SOURCES} ${ARG_PUBLIC} ${ARG_PRIVATE})
  add_library(trireme::${name} ALIAS trireme_${name})
  set_target_properties(trireme_${name} PROPERTIES EXPORT_NAME ${name} OUTPUT_NAME trireme_${name})
  target_compile_features(trireme_${name} PUBLIC cxx_std_20)
  target_include_directories(trireme_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_include_directories(trireme_${name} SYSTEM PRIVATE
    ${TRIREME_XXHASH_INCLUDE} ${TRIREME_PROTOZERO_INCLUDE})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(trireme_${name} PUBLIC trireme::${dep})
  endforeach()
  target_link_libraries(trireme_${name} PUBLIC torch ${ARG_LINK}
    PRIVATE $<BUILD_INTERFACE:trireme_flags> ${ARG_PRIVATE_LINK})
  if(ARG_OPENMP AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_link_libraries(trireme_${name} PRIVATE gomp)
  endif()
  if(ARG_PRECOMPILED)
    trireme_use_precompiled_header(trireme_${name} ${ARG_PRECOMPILED})
  endif()
  trireme_join_sources(trireme_${name})
  list(TRANSFORM ARG_PUBLIC PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set_property(GLOBAL APPEND PROPERTY TRIREME_PUBLIC_HEADERS ${ARG_PUBLIC})
  install(TARGETS trireme_${name} EXPORT trireme_targets)
  set_property(GLOBAL APPEND PROPERTY TRIREME_LAYER_TARGETS trireme::${name})
endfunction()

# After all layers: installs the public headers, and what they include, directly or not. What that is, cmake --install finds
# out, so that no build depends on it.
function(trireme_install_headers)
  get_property(headers GLOBAL PROPERTY TRIREME_PUBLIC_HEADERS)
  install(CODE "set(headers \"${headers}\")
set(source \"${PROJECT_SOURCE_DIR}\")
set(destination \"${CMAKE_INSTALL_INCLUDEDIR}\")")
  install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake")
endfunction()

# trireme_add_test(comm SOURCES a_test.cc DEPS comm): one program for a layer's tests, one ctest entry per test.
# PRECOMPILED aten or nn: its sources see tensors or modules (TriremePrecompile.cmake).
# LONG filter: these tests run in `make test-all` only (label long).
function(trireme_add_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;PRECOMPILED;LONG" "SOURCES;DEPS;LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name}_test ${ARG_SOURCES})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${name}_test PRIVATE trireme::${dep})
  endforeach()
  target_link_libraries(${name}_test PRIVATE trireme_flags trireme_harness GTest::gtest_main ${ARG_LINK})
  if(ARG_PRECOMPILED)
    trireme_precompiled_test(${name}_test ${ARG_PRECOMPILED})
  endif()
  trireme_join_sources(${name}_test)
  set(short "*")
  if(ARG_LONG)
    set(short "-${ARG_LONG}")
    trireme_discover_tests(${name}_test long "${ARG_LONG}" ${ARG_TIMEOUT} ${name} long ${ARG_LABELS})
  endif()
  trireme_discover_tests(${name}_test short "${short}" ${ARG_TIMEOUT} ${name} ${ARG_LABELS})
endfunction()

# trireme_discover_tests(target part filter timeout labels...): a ctest entry for each test of the program that the
# filter lets through; see ListTests.cmake. A build for another machine cannot ask the program for them.
function(trireme_discover_tests target part filter timeout)
  if(CMAKE_CROSSCOMPILING)
    return()
  endif()
  set(listing "${CMAKE_CURRENT_BINARY_DIR}/${target}_${part}.cmake")
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM
    COMMAND "${CMAKE_COMMAND}" -D "program=$<TARGET_FILE:${target}>" -D "filter=${filter}" -D "listing=${listing}"
      -D "runner=${PROJECT_SOURCE_DIR}/cmake/test_suite.sh" -D "labels=${ARGN}" -D timeout=${timeout}
      -P "${PROJECT_SOURCE_DIR}/cmake/ListTests.cmake")
  file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/${target}_${part}_include.cmake"
    "if(EXISTS \"${listing}\")\n  include(\"${listing}\")\nelse()\n"
    "  add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${CMAKE_CURRENT_BINARY_DIR}/${target}_${part}_include.cmake")
endfunction()

# trireme_add_mpi_test(NAME TARGET RANKS LABEL layer [ARGUMENTS ...]): `ranks` ranks of an mpirun run the program.
function(trireme_add_mpi_test name target ranks)
  cmake_parse_arguments(ARG "" "LABEL" "ARGUMENTS" ${ARGN})
  add_test(NAME ${name}
    COMMAND "${MPIEXEC_EXECUTABLE}" -n ${ranks} --oversubscribe "$<TARGET_FILE:${target}>" --gtest_brief=1
      ${ARG_ARGUMENTS})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS "${ARG_LABEL};mpi"
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endfunction()
