# Finds libtorch inside python's torch wheel unless Torch_DIR says where it is.
# trireme_torch_headers: include folders alone, as system headers. torch: headers and libraries.
if(NOT Torch_DIR)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" -c
            "import importlib.util as u, os; print(os.path.dirname(u.find_spec('torch').origin))"
    OUTPUT_VARIABLE TRIREME_TORCH_PREFIX OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE missing)
  if(missing)
    message(FATAL_ERROR "no torch in ${Python3_EXECUTABLE}: run `make setup`, or set Torch_DIR")
  endif()
  set(Torch_DIR "${TRIREME_TORCH_PREFIX}/share/cmake/Torch" CACHE PATH "folder of TorchConfig.cmake" FORCE)
endif()
find_package(Torch REQUIRED)
if(Torch_VERSION VERSION_LESS 2.11 OR Torch_VERSION VERSION_GREATER_EQUAL 2.15)
  message(FATAL_ERROR "torch ${Torch_VERSION} found in ${Torch_DIR}; trireme builds with 2.11 to 2.14")
endif()
# libtorch's own folders carry spaces and warnings of theirs: as system headers they stay quiet.
set(TRIREME_TORCH_DEFINITIONS USE_DISTRIBUTED USE_C10D_GLOO)
