# cmake -D build=… -D project=… -D work=… -P install_test.cmake: see CMakeLists.txt.
function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    file(REMOVE_RECURSE "${work}")
    message(FATAL_ERROR "${what} failed (${result}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE "${work}")
# The prefix has a space, and the package is moved after installing: nothing may hold its first path.
run("install" "${CMAKE_COMMAND}" --install "${build}" --prefix "${work}/first")
file(RENAME "${work}/first" "${work}/the prefix")
run("configure" "${CMAKE_COMMAND}" -S "${project}" -B "${work}/build" -G "${generator}"
  "-DCMAKE_CXX_COMPILER=${compiler}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${launcher}"
  "-DCMAKE_PREFIX_PATH=${work}/the prefix" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON)
run("build" "${CMAKE_COMMAND}" --build "${work}/build")
run("run" "${work}/build/foreign")
if(NOT output MATCHES "rank 1 holds rows 2 to 3")
  message(FATAL_ERROR "the foreign program printed: ${output}")
endif()
# Our warnings and floating-point flags are ours, not the user's.
file(READ "${work}/build/compile_commands.json" commands)
if(commands MATCHES "-Wextra|ffp-contract")
  message(FATAL_ERROR "trireme_flags leak into the foreign project: ${commands}")
endif()
if(EXISTS "${work}/the prefix/bin/trireme")
  run("installed trireme --version" "${work}/the prefix/bin/trireme" --version)
endif()
file(REMOVE_RECURSE "${work}")
