#!/usr/bin/env bash
# test.sh PRESET [ctest arguments]: runs every test this machine can run; says which it left out.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift || true
tree=build/$preset
ctest --test-dir "$tree" --output-on-failure --parallel 2 "$@"
