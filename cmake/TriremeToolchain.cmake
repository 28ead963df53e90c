# Compiler flags of every target; ccache and a fast linker where they are installed.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")

add_library(trireme_flags INTERFACE)
# -Wno-restrict, -Wno-stringop-overflow: GCC 12 warns of std::string + std::string (GCC bug 105651).
# No contraction into fused multiply-adds: the same source gives the same bits on every architecture.
# No errno from mathematical functions: their loops vectorise, and the values stay the same.
target_compile_options(trireme_flags INTERFACE -Wall -Wextra -Wno-unused-parameter -Wno-restrict -Wno-stringop-overflow
  -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # at::parallel_for uses one thread unless its caller is compiled with OpenMP.
  target_compile_options(trireme_flags INTERFACE -fopenmp)
  # For ccache, which reads preprocessed text; and a precompiled header that is not used is an error.
  target_compile_options(trireme_flags INTERFACE -fpch-preprocess -Werror=invalid-pch)
  # Programs too, so that they share the libraries' precompiled header.
  set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC)
endif()
if(TRIREME_SANITIZE)
  # Undefined behaviour ends the program, or no test would fail; a sanitizer's code looks uninitialized to GCC 12.
  target_compile_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer -Wno-maybe-uninitialized)
  target_link_options(trireme_flags INTERFACE -fsanitize=${TRIREME_SANITIZE})
endif()

find_program(TRIREME_CCACHE ccache)
if(TRIREME_CCACHE)
  # What ccache wants to know to cache sources that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_INODECACHE=1 "${TRIREME_CCACHE}")
  set(TRIREME_CCACHE_SUMMARY on)
else()
  set(TRIREME_CCACHE_SUMMARY "not found")
endif()

# Not mold: Debian 12's 1.10 made programs that do not start ("cannot apply additional memory protection
# after relocation"), depending on the length of the build's path.
set(TRIREME_LINKER "default")
find_program(TRIREME_LLD NAMES ld.lld)
if(TRIREME_LLD AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  target_link_options(trireme_flags INTERFACE -fuse-ld=lld)
  set(TRIREME_LINKER lld)
endif()

# The loops of base/simd.h: without traps they vectorise, and without threaded jumps a clamp stays a
# minimum (GCC made a second path of it, which divided into denormals: seven times slower).
# The values stay the same.
set(TRIREME_SIMD_OPTIONS -fno-trapping-math)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND TRIREME_SIMD_OPTIONS -fno-thread-jumps)
endif()
