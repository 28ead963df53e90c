#!/usr/bin/env bash
# check.sh [--tidy [REVISION|all] [MOST]]: every check of the sources; --tidy adds clang-tidy on the sources that
# differ from REVISION (HEAD when none is given), or on all of the library; on the MOST with the largest changes.
# Runs all of them, then fails when one did.
set -uo pipefail
cd "$(dirname "$0")/.."
source tools/clang_version.sh
failed=()

for check in layers mirror length locale python docs commits; do
  python3 "tools/check_$check.py" || failed+=("$check")
done

tools/format.sh --check || failed+=(format)

# clang-tidy reads no precompiled header of GCC's: a tree that is configured without them and never built.
# It reads what the compiler does: neighbours of a folder together, which takes a third of the time.
configure_tidy() {
  mkdir -p build/tidy
  cmake -G Ninja -S . -B build/tidy -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
    -DTRIREME_BUILD_TESTS=OFF -DPython3_EXECUTABLE="$(<build/python)" >build/tidy/configure.log 2>&1 ||
    { tail -n 20 build/tidy/configure.log >&2; return 1; }
  sed -i 's/ -fno-thread-jumps//g' build/tidy/compile_commands.json # which only GCC knows
}

check_tidy() { # check_tidy all|REVISION [MOST]
  local tidy sources units most=${2:-0}
  tidy=$(find_clang clang-tidy) || return 1
  [[ -f build/python ]] || { echo "tidy: build/python is missing; run 'make setup' first" >&2; return 1; }
  if [[ $1 == all ]]; then
    mapfile -t sources < <(git ls-files -- 'trireme/*.cc')
  else
    mapfile -t sources < <(git diff --numstat --diff-filter=d --no-renames "$1" -- 'trireme/*.cc' | sort -rn | cut -f3)
  fi
  ((${#sources[@]})) || { echo "tidy: no source differs from $1"; return 0; }
  if ((most && ${#sources[@]} > most)); then
    echo "tidy: $most of ${#sources[@]} sources, those with the largest changes"
    sources=("${sources[@]:0:most}")
  fi
  configure_tidy || return 1
  mapfile -t units < <(printf '%s\n' "${sources[@]}" | python3 tools/units_of.py build/tidy)
  printf '%s\0' "${units[@]}" |
    xargs -0 -n 1 -P "$(nproc)" "$tidy" -p build/tidy --quiet --warnings-as-errors='*' 2> >(grep -v ' warnings generated' >&2) &&
    echo "tidy: ${#sources[@]} sources ok, in ${#units[@]} units"
}
if [[ ${1:-} == --tidy ]]; then
  check_tidy "${2:-HEAD}" "${3:-0}" || failed+=(tidy)
fi

if ((${#failed[@]})); then
  echo "check: failed: ${failed[*]}" >&2
  exit 1
fi
echo "check: all passed"
