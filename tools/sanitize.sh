#!/usr/bin/env bash
# sanitize.sh [asan|tsan]...: builds the tests where memory and threads are handled by hand with a
# sanitizer and runs them: asan base, comm, checkpoint and dataset; tsan comm and parallel/data.
# `make test PRESET=asan` does it for everything.
set -euo pipefail
cd "$(dirname "$0")/.."
(($#)) || set -- asan tsan
for preset in "$@"; do
  case $preset in
    asan) layers=(base comm checkpoint dataset) ;;
    tsan) layers=(comm parallel_data) ;;
    *) echo "sanitize: \"$preset\"; expected asan or tsan" >&2; exit 2 ;;
  esac
  for layer in "${layers[@]}"; do
    tools/build.sh "$preset" "${layer}_test"
  done
  echo "sanitize: $preset: ${layers[*]}"
  # Other programs are not built: ctest lists each as one test that does not run, and those of mpirun by name.
  tools/test.sh "$preset" --label-regex "^($(IFS='|'; echo "${layers[*]}"))\$" --exclude-regex "_NOT_BUILT\$|^Mpi\.|\.mpi\$"
done
