#!/usr/bin/env bash
# docs.sh: the API reference of the public headers in build/docs/html, made by doxygen.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/steps.sh
command -v doxygen >/dev/null || die "doxygen is needed and not found: apt-get install doxygen"
mkdir -p build/docs
headers=$(python3 - <<'PY'
import sys
from pathlib import Path
sys.path.insert(0, "tools")
from check_layers import headers_of
print(" ".join(sorted(headers_of(Path("."), "PUBLIC"))))
PY
)
cat >build/docs/Doxyfile <<CONFIG
PROJECT_NAME = Trireme
PROJECT_BRIEF = "Distributed training in C++ on libtorch"
INPUT = $headers docs/reference/headers.md
USE_MDFILE_AS_MAINPAGE = docs/reference/headers.md
OUTPUT_DIRECTORY = build/docs
FILTER_PATTERNS = *.h=tools/doxygen_filter.py
GENERATE_LATEX = NO
HAVE_DOT = NO
SHOW_NAMESPACES = NO
EXTRACT_ALL = YES
JAVADOC_AUTOBRIEF = YES
HIDE_UNDOC_RELATIONS = YES
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = "TRIREME_KEY(type,name,initial,resume,...)=type name = initial;" TRIREME_KEYS_BEGIN(x)= TRIREME_KEYS_END()=
STRIP_FROM_INC_PATH = .
FULL_PATH_NAMES = YES
STRIP_FROM_PATH = .
QUIET = YES
WARNINGS = NO
CONFIG
doxygen build/docs/Doxyfile
echo "docs: $(wc -w <<<"$headers") public headers in build/docs/html/index.html"
