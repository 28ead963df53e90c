# cmake -D source=DIR -D version=V -D output=FILE -P write_build_info.cmake: the source of base/build_info.h. The file changes
# only when what it says does. A source tree without git, such as an unpacked archive or a folder within another
# repository, has no revision.
cmake_policy(VERSION 3.25)
find_program(git git)
set(revision "")
if(git)
  execute_process(COMMAND "${git}" -C "${source}" rev-parse --show-prefix OUTPUT_VARIABLE prefix
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE no_repository)
  if(NOT no_repository AND prefix STREQUAL "")
    execute_process(COMMAND "${git}" --no-optional-locks -C "${source}" describe --always --dirty --abbrev=12 "--exclude=*"
      OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(NOT revision MATCHES "^[0-9a-f]+(-dirty)?$")
  set(revision "")
endif()
set(text "#include \"trireme/base/build_info.h\"

namespace trireme {

std::string_view build_version() { return \"${version}\"; }
std::string_view build_revision() { return \"${revision}\"; }

}  // namespace trireme
")
set(before "")
if(EXISTS "${output}")
  file(READ "${output}" before)
endif()
if(NOT before STREQUAL text)
  file(WRITE "${output}" "${text}")
endif()
