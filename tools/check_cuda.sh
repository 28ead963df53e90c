#!/usr/bin/env bash
# check_cuda.sh: checks that what depends on CUDA compiles, on a machine without it. It fetches CUDA's and NCCL's headers
# from PyPI into build/cuda_headers (24 MB) and reads the sources with them; nothing is linked.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
headers=build/cuda_headers
# Of another version of these scripts: fetched again.
complete=$headers/complete-$(cat tools/check_cuda.sh tools/cuda_headers.py | cksum | cut -d' ' -f1)
if [[ ! -e $complete ]]; then
  rm -rf "$headers"
  status=0
  "$python" tools/cuda_headers.py "$headers" || status=$?
  ((status != 3)) || { echo "check_cuda: left out, as PyPI cannot be reached"; exit 0; }
  ((status == 0)) || exit "$status"
  # libtorch generates these, in its CUDA builds only.
  mkdir -p "$headers"/{c10/cuda/impl,ATen/cuda}
  echo "#define C10_CUDA_BUILD_SHARED_LIBS" > "$headers/c10/cuda/impl/cuda_cmake_macros.h"
  touch "$headers/ATen/cuda/CUDAConfig.h"
  touch "$complete"
fi
torch=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent / "include")')
failed=0
for source in trireme/comm/c10d/nccl_group.cc trireme/model/gpu/gpu_kernels.cc; do
  g++ -std=c++20 -fsyntax-only -Wall -Wextra -Wno-unused-parameter -I. -isystem "$torch" \
    -isystem "$torch/torch/csrc/api/include" -isystem "$headers" -isystem "$headers/cccl" \
    -DTRIREME_HAVE_CUDA -DTRIREME_HAVE_NCCL -DUSE_DISTRIBUTED -DUSE_C10D_NCCL \
    "$source" && echo "check_cuda: $source compiles" || failed=1
done
exit $failed
