#!/usr/bin/env bash
# format.sh: formats every C++ source of the repository in place, with the pinned clang-format.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/clang_version.sh
format=$(find_clang clang-format)
git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cc' | xargs -0 -r "$format" -i
