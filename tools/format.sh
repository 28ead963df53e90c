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
if ((!check)); then
  exec "$format" -i "${files[@]}"
fi
# Compares texts: --dry-run of version 14 objects to `inline` in the comment behind a namespace, and then keeps it.
if cmp -s <(cat "${files[@]}") <("$format" "${files[@]}"); then
  echo "format: ok"
  exit 0
fi
for file in "${files[@]}"; do
  cmp -s "$file" <("$format" "$file") || echo "format: $file" >&2
done
echo "format: run 'make format'" >&2
exit 1
