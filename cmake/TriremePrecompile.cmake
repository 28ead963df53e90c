# Precompiled headers. Each is compiled once per build tree and shared by every target that asks for it:
#   trireme_precompiled_header(aten HEADERS <ATen/ATen.h>)    declares one; OPTIONS: of all that use it
#   trireme_use_precompiled_header(target aten)               uses it
# A source stays self-contained: `cmake -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON` builds without any.
#
# GCC takes a precompiled header only under the flags that made it. So all targets share one set
# (trireme_flags): -fopenmp and -fPIC everywhere, programs included. A mismatch is an error.
function(trireme_precompiled_header name)
  cmake_parse_arguments(ARG "" "" "HEADERS;LINK;OPTIONS" ${ARGN})
  set(source "${PROJECT_BINARY_DIR}/precompiled/${name}.cc")
  if(NOT EXISTS "${source}")
    file(WRITE "${source}" "// The unit that CMake attaches the precompiled header to.\n")
  endif()
  add_library(trireme_precompiled_${name} OBJECT "${source}")
  target_link_libraries(trireme_precompiled_${name} PRIVATE torch trireme_flags ${ARG_LINK})
  target_compile_options(trireme_precompiled_${name} PRIVATE ${ARG_OPTIONS})
  target_precompile_headers(trireme_precompiled_${name} PRIVATE ${ARG_HEADERS})
endfunction()

function(trireme_use_precompiled_header target name)
  target_precompile_headers(${target} REUSE_FROM trireme_precompiled_${name})
endfunction()

trireme_precompiled_header(aten HEADERS <ATen/ATen.h>)
# Takes 2 s more to load per source than aten, and saves 10 in a source that sees modules.
trireme_precompiled_header(nn HEADERS <ATen/ATen.h> <torch/nn/module.h>)
if(TRIREME_BUILD_TESTS)
  find_package(GTest REQUIRED)
  # -O1 compiles fast and is as fast as a test need be. Of the header too: GCC 13 refuses one made under -O3.
  set(TRIREME_TEST_OPTIONS "")
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(TRIREME_TEST_OPTIONS -O1)
  endif()
  trireme_precompiled_header(test_aten HEADERS <ATen/ATen.h> <gtest/gtest.h> LINK GTest::gtest
    OPTIONS ${TRIREME_TEST_OPTIONS})
  trireme_precompiled_header(test_nn HEADERS <ATen/ATen.h> <torch/nn/module.h> <gtest/gtest.h> LINK GTest::gtest
    OPTIONS ${TRIREME_TEST_OPTIONS})
endif()

# trireme_join_sources(target): neighbours in a folder are compiled together, TRIREME_UNITY of them at a time.
# Half of what one small source costs is what libtorch's headers instantiate again at its end, precompiled or not.
# So no two sources of a folder give the same name to different things. Sources with flags of their own stay alone;
# `cmake -DTRIREME_UNITY=1` compiles each alone (build/tidy does).
# Not CMake's own UNITY_BUILD: it includes by absolute paths, so that another clone would miss the compiler's cache.
set(TRIREME_UNITY 5 CACHE STRING "Sources of one folder that are compiled together; 1: each alone")
function(trireme_join_sources target)
  if(TRIREME_UNITY GREATER 1)
    # Once the whole CMakeLists.txt has said which sources have flags.
    cmake_language(EVAL CODE "cmake_language(DEFER CALL trireme_join_sources_now [[${target}]])")
  endif()
endfunction()

function(trireme_join_sources_now target)
  get_target_property(all_sources ${target} SOURCES)
  set(sources "${all_sources}")
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  set(units "")
  foreach(source IN LISTS sources)
    get_source_file_property(options "${source}" COMPILE_OPTIONS)
    get_source_file_property(definitions "${source}" COMPILE_DEFINITIONS)
    if(options OR definitions)
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    cmake_path(GET path PARENT_PATH room)
    string(MAKE_C_IDENTIFIER "${target}/${room}" room)
    math(EXPR count_${room} "0${count_${room}} + 1")
    math(EXPR group "(${count_${room}} - 1) / ${TRIREME_UNITY}")
    string(APPEND text_${room}_${group} "#include \"${path}\"\n")
    list(APPEND members_${room}_${group} "${source}")
    list(APPEND units ${room}_${group})
  endforeach()
  list(REMOVE_DUPLICATES units)
  foreach(unit IN LISTS units)
    list(LENGTH members_${unit} count)
    if(count EQUAL 1)
      continue()
    endif()
    set(joined "${CMAKE_CURRENT_BINARY_DIR}/joined/${unit}.cc")
    file(CONFIGURE OUTPUT "${joined}" CONTENT "${text_${unit}}" @ONLY)  # leaves a file that has not changed
    list(REMOVE_ITEM all_sources ${members_${unit}})
    list(APPEND all_sources "${joined}")
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${all_sources}")
endfunction()

# For a test program that sees tensors.
function(trireme_precompiled_test target name)
  trireme_use_precompiled_header(${target} test_${name})
  target_compile_options(${target} PRIVATE ${TRIREME_TEST_OPTIONS})
  # GoogleTest's macros, once precompiled, no longer count as a system header's; and GCC 12 warns of the bounds
  # of std::string + std::string (as in TriremeToolchain.cmake).
  target_compile_options(${target} PRIVATE -Wno-dangling-else -Wno-array-bounds)
endfunction()
