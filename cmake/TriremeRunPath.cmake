# Where programs look for libraries, in the build tree and installed: libtorch's folder and Open MPI's. Not CMake's own
# choice, which pads the RUNPATH of a built program to the length of the installed one's with empty entries, and takes
# folders that torch's package names and that do not exist. The loader takes an empty entry for the current folder, so that
# a library lying there would run.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(TRIREME_TORCH_RUN_PATH "${TORCH_INSTALL_PREFIX}/lib")
set(TRIREME_MPI_RUN_PATH "")
if(TRIREME_MPI_SUMMARY STREQUAL "on")
  foreach(library IN LISTS MPI_CXX_LIBRARIES)
    cmake_path(GET library PARENT_PATH folder)
    list(APPEND TRIREME_MPI_RUN_PATH "${folder}")
  endforeach()
  list(REMOVE_DUPLICATES TRIREME_MPI_RUN_PATH)
  list(REMOVE_ITEM TRIREME_MPI_RUN_PATH ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES})
endif()
set(CMAKE_INSTALL_RPATH "${TRIREME_TORCH_RUN_PATH}" ${TRIREME_MPI_RUN_PATH})
