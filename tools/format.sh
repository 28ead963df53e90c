#!/usr/bin/env bash
# format.sh [--check] [FILE...]: formats the C++ sources in place with the pinned clang-format, all of the
# repository when none is named. --check changes none, names those that differ, and fails when one does.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/clang_version.sh
format=$(find_clang clang-format)
check=0
if [[ ${1:-} == --check ]]; then
  check=1
  shift
fi
files=("$@")
((${#files[@]})) || mapfile -d '' files < <(git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cc')

# Compares texts: at `inline` in the comment behind a namespace, version 14 --dry-run objects and -i writes what is there,
# which makes the build do everything again.
differing=()
if ! cmp -s <(cat "${files[@]}") <("$format" "${files[@]}"); then
  for file in "${files[@]}"; do
    cmp -s "$file" <("$format" "$file") || differing+=("$file")
  done
fi
((${#differing[@]})) || { ((!check)) || echo "format: ok"; exit 0; }
if ((check)); then
  printf "format: %s\n" "${differing[@]}" "run 'make format'" >&2
  exit 1
fi
"$format" -i "${differing[@]}"
