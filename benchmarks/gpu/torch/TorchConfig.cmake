# find_package(Torch) for PyTorch's CUDA wheel on a machine without CUDA: PyTorch's own TorchConfig.cmake looks for nvcc
# and the CUDA libraries. TRIREME_CUDA_WHEEL is the unpacked wheel, TRIREME_CUDA_HEADERS the folder that
# tools/cuda_headers.py fills.
if(NOT TARGET torch)
  set(root "${TRIREME_CUDA_WHEEL}/torch")
  file(STRINGS "${root}/version.py" line REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" Torch_VERSION "${line}")
  add_library(torch INTERFACE IMPORTED)
  target_include_directories(torch SYSTEM INTERFACE "${root}/include" "${root}/include/torch/csrc/api/include"
    "${TRIREME_CUDA_HEADERS}" "${TRIREME_CUDA_HEADERS}/cccl")
  target_compile_definitions(torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  # libtorch_cuda registers the operators of GPUs when it is loaded, so a program needs it even where it names nothing of it.
  target_link_libraries(torch INTERFACE "-Wl,--no-as-needed" "${root}/lib/libtorch_cpu.so" "${root}/lib/libtorch_cuda.so"
    "${root}/lib/libc10_cuda.so" "${root}/lib/libc10.so" "-Wl,--as-needed")
  # The CUDA libraries that these need are on the machine that runs the program.
  target_link_options(torch INTERFACE "-Wl,--allow-shlib-undefined")
  set(TORCH_LIBRARIES torch)
  set(TORCH_CUDA_LIBRARIES "${root}/lib/libtorch_cuda.so")
  set(TORCH_INSTALL_PREFIX "${root}")
endif()
set(Torch_FOUND TRUE)
