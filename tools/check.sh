#!/usr/bin/env bash
# check.sh [--tidy [REVISION|all]]: every check of the sources; --tidy adds clang-tidy on what differs from
# REVISION (HEAD when none is given), or on every source of the library.
# Runs all of them, then fails when one did.
set -uo pipefail
cd "$(dirname "$0")/.."
source tools/clang_version.sh
failed=()

for check in layers mirror length docs; do
  python3 "tools/check_$check.py" || failed+=("$check")
done

tools/format.sh --check || failed+=(format)

# clang-tidy reads no precompiled header of GCC's: a tree that is configured without them and never built.
configure_tidy() {
  mkdir -p build/tidy
  cmake -G Ninja -S . -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DTRIREME_UNITY=1 -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
    -DTRIREME_BUILD_TESTS=OFF -DPython3_EXECUTABLE="$(<build/python)" >build/tidy/configure.log 2>&1 ||
    { tail -n 20 build/tidy/configure.log >&2; return 1; }
}

check_tidy() { # check_tidy all | REVISION: every source of the library, or those that differ from the revision
  local tidy sources
  tidy=$(find_clang clang-tidy) || return 1
  [[ -f build/python ]] || { echo "tidy: build/python is missing; run 'make setup' first" >&2; return 1; }
  if [[ $1 == all ]]; then
    mapfile -t sources < <(git ls-files -- 'trireme/*.cc')
  else
    mapfile -t sources < <(git diff --name-only --diff-filter=d "$1" -- 'trireme/*.cc')
  fi
  ((${#sources[@]})) || { echo "tidy: no source differs from $1"; return 0; }
  configure_tidy || return 1
  printf '%s\0' "${sources[@]}" |
    xargs -0 -n 1 -P "$(nproc)" "$tidy" -p build/tidy --quiet --warnings-as-errors='*' &&
    echo "tidy: ${#sources[@]} sources ok"
}
if [[ ${1:-} == --tidy ]]; then
  check_tidy "${2:-HEAD}" || failed+=(tidy)
fi

if ((${#failed[@]})); then
  echo "check: failed: ${failed[*]}" >&2
  exit 1
fi
echo "check: all passed"
