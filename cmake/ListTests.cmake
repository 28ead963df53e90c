# cmake -D program=… -D filter=… -D listing=… -D runner=… -D "labels=…" -D timeout=… -P ListTests.cmake
# Writes what ctest includes: an entry for each of a GoogleTest program's tests, and one for each suite that runs them.
#
# A process that loads libtorch spends a third of a second registering operators, and there are thousands of tests. So a
# suite runs once, as the fixture of its tests, and each of these looks up its own result.
execute_process(COMMAND "${program}" --gtest_list_tests "--gtest_filter=${filter}"
  OUTPUT_VARIABLE output RESULT_VARIABLE result TIMEOUT 60)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${program} cannot list its tests (${result}): ${output}")
endif()
cmake_path(GET program FILENAME name)
cmake_path(REMOVE_EXTENSION listing OUTPUT_VARIABLE results)
file(MAKE_DIRECTORY "${results}")
# A suite may have long tests among others. ctest runs only one of two fixtures with one name.
set(part "")
if(labels MATCHES "long")
  set(part ", long")
endif()
set(text "")

macro(finish_suite)
  if(tests)
    list(LENGTH tests count)
    list(JOIN tests ":" names)
    set(fixture "${name}${part}: ${suite}")
    string(MAKE_C_IDENTIFIER "${suite}" out)
    set(out "${results}/${out}.txt")
    math(EXPR patience "5 * ${timeout}")
    string(APPEND text "add_test([==[${fixture}]==] \"${runner}\" run \"${out}\" \"${program}\" \"${names}\")\n"
      "set_tests_properties([==[${fixture}]==] PROPERTIES FIXTURES_SETUP [==[${fixture}]==] TIMEOUT ${patience}"
      " COST ${count} LABELS \"${labels}\")\n")
    foreach(test IN LISTS tests)
      string(APPEND text "add_test([==[${test}]==] \"${runner}\" result \"${out}\" \"${test}\")\n"
        "set_tests_properties([==[${test}]==] PROPERTIES FIXTURES_REQUIRED [==[${fixture}]==]"
        " SKIP_RETURN_CODE 77 LABELS \"${labels}\")\n")
    endforeach()
  endif()
  set(tests "")
endmacro()

string(REPLACE "\n" ";" lines "${output}")
foreach(line IN LISTS lines)
  string(REGEX REPLACE " +#.*$" "" line "${line}")  # the value or the type of its parameter
  if(line MATCHES "^([^ ]+)\\.$")
    set(next "${CMAKE_MATCH_1}")
    finish_suite()
    set(suite "${next}")
  elseif(line MATCHES "^  ([^ ]+)$")
    list(APPEND tests "${suite}.${CMAKE_MATCH_1}")
  endif()
endforeach()
finish_suite()
file(WRITE "${listing}" "${text}")
