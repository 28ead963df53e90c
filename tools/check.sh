#!/usr/bin/env bash
# check.sh [--tidy]: every check of the sources; --tidy adds clang-tidy on what differs from HEAD.
# Runs all of them, then fails when one did.
set -uo pipefail
cd "$(dirname "$0")/.."
source tools/clang_version.sh
failed=()

for check in layers mirror length docs; do
  python3 "tools/check_$check.py" || failed+=("$check")
done

check_format() {
  local format
  format=$(find_clang clang-format) || return 1
  git ls-files -z -- '*.h' '*.cc' | xargs -0 -r "$format" --dry-run -Werror && echo "format: ok" && return 0
  echo "format: run 'make format'" >&2
  return 1
}
check_format || failed+=(format)

check_tidy() {
  local tidy changed tree=build/release
  tidy=$(find_clang clang-tidy) || return 1
  [[ -f $tree/compile_commands.json ]] || {
    echo "tidy: $tree/compile_commands.json is missing; run 'make build' first" >&2
    return 1
  }
  mapfile -t changed < <(git diff --name-only --diff-filter=d HEAD -- 'trireme/*.cc')
  ((${#changed[@]})) || { echo "tidy: no changed source"; return 0; }
  "$tidy" -p "$tree" --quiet --warnings-as-errors='*' "${changed[@]}"
}
if [[ ${1:-} == --tidy ]]; then
  check_tidy || failed+=(tidy)
fi

if ((${#failed[@]})); then
  echo "check: failed: ${failed[*]}" >&2
  exit 1
fi
echo "check: all passed"
