#!/usr/bin/env bash
# install.sh PREFIX: inside a new container, builds the program alone, without tests, and installs it. The image's
# definition installs a compiler and python3 first; tools/setup.sh gets all else from Debian and PyPI.
# The program finds libtorch where the build found it, in .venv.
set -euo pipefail
cd "$(dirname "$0")/../.."
prefix=${1:?PREFIX is needed}
tools/setup.sh
cmake --preset release -DPython3_EXECUTABLE="$(<build/python)" -DTRIREME_BUILD_TESTS=OFF -DTRIREME_BUILD_EXAMPLES=OFF \
  -DTRIREME_BUILD_BENCHMARKS=OFF -DTRIREME_BUILD_PYTHON=OFF
# A compiler takes up to a GiB and a half.
free_mib=$(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
jobs=$((free_mib / 1536 > 0 ? free_mib / 1536 : 1))
cmake --build build/release --parallel "$((jobs < $(nproc) ? jobs : $(nproc)))"
cmake --install build/release --prefix "$prefix"
"$prefix/bin/trireme" --version
