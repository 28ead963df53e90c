# trireme_embed_files(result FOLDER folder HEADER header NAMESPACE space NAMES name...): a source that has the files in it,
# made when one of them changes. Its path is put into `result`. The header declares `Asset`, of a name and a content, and
# `std::span<const Asset> assets()`, which the source defines.
function(trireme_embed_files result)
  cmake_parse_arguments(ARG "" "FOLDER;HEADER;NAMESPACE" "NAMES" ${ARGN})
  set(output "${CMAKE_CURRENT_BINARY_DIR}/embedded/assets_data.cc")
  list(TRANSFORM ARG_NAMES PREPEND "${ARG_FOLDER}/" OUTPUT_VARIABLE files)
  list(JOIN ARG_NAMES "|" names)
  add_custom_command(OUTPUT "${output}" VERBATIM
    COMMAND "${CMAKE_COMMAND}" -D "folder=${ARG_FOLDER}" -D "names=${names}" -D "header=${ARG_HEADER}"
      -D "space=${ARG_NAMESPACE}" -D "output=${output}" -P "${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake"
    DEPENDS ${files} "${PROJECT_SOURCE_DIR}/cmake/embed_files.cmake"
    COMMENT "Embedding ${ARG_NAMES}")
  set(${result} "${output}" PARENT_SCOPE)
endfunction()
