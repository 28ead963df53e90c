#!/usr/bin/env bash
# bundle.sh FOLDER: packs into FOLDER what benchmarks/gpu/run.py needs on a machine with a GPU and PyTorch's CUDA wheel,
# built on a machine that has neither. It downloads that wheel and CUDA's headers from PyPI into build/cuda_torch (1.2 GB).
# The program is built without the libraries that may be missing there. About 15 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:?usage: bundle.sh FOLDER} python=$PWD/.venv/bin/python
torch_version=2.11.0 python_version=3.12  # of the machine with the GPU
cache=${TRIREME_CUDA_CACHE:-$PWD/build/cuda_torch} tree=build/cuda

if [[ ! -e $cache/complete ]]; then
  mkdir -p "$cache"
  "$python" -m pip download -q --no-deps --only-binary=:all: --python-version "$python_version" \
    --platform manylinux_2_28_x86_64 -d "$cache" "torch==$torch_version"
  "$python" -m zipfile -e "$cache"/torch-*.whl "$cache/wheel"
  rm "$cache"/torch-*.whl
  "$python" tools/cuda_headers.py "$cache/headers"
  touch "$cache/complete"
fi

export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true
# A system name makes CMake take this for a build for another machine, so it does not run what it builds.
cmake -S . -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR="$(uname -m)" \
  -DPython3_EXECUTABLE="$python" -DTorch_DIR="$PWD/benchmarks/gpu/torch" -DTRIREME_CUDA_WHEEL="$cache/wheel" \
  -DTRIREME_CUDA_HEADERS="$cache/headers" -DTRIREME_BUILD_PYTHON=OFF -DTRIREME_BUILD_EXAMPLES=OFF \
  -DTRIREME_BUILD_BENCHMARKS=OFF -DTRIREME_WITH_{MPI,SENTENCEPIECE,TOKENIZER_JSON,IMAGES,HWLOC,ZSTD,URING,XXHASH}=OFF
cmake --build "$tree" --target trireme_program nccl_test cuda_ipc_test gpu_kernels_test ipc_speed --parallel "$(nproc)"

mkdir -p "$folder"/{bin,lib,benchmarks/gpu,benchmarks/train_vs_pytorch,tests/cli}
for program in trireme nccl_test cuda_ipc_test gpu_kernels_test ipc_speed; do strip -o "$folder/bin/$program" "$tree/bin/$program"; done
cp -L "$(g++ -print-file-name=libtomlplusplus.so.3)" "$folder/lib/"
cp benchmarks/gpu/*.py "$folder/benchmarks/gpu/"
cp benchmarks/train_vs_pytorch/llama.py "$folder/benchmarks/train_vs_pytorch/"
cp tests/cli/{gpu_test,program}.py "$folder/tests/cli/"
du -sh "$folder"
