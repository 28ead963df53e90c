#!/usr/bin/env bash
# build.sh PRESET TARGET: configures when needed, compiles, says for how long.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release} target=${2:-all} start=$SECONDS
tree=build/$preset
# Paths below this folder do not count: another clone finds the same objects in the cache.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true
python=$(<build/python)

test_python=$(cat build/test-python 2>/dev/null || echo "$python")
# What the tree was configured with; another answer configures it again.
answers="$PWD $python $test_python"

configure() {
  cmake --fresh --preset "$preset" -DPython3_EXECUTABLE="$python" -DTRIREME_TEST_PYTHON="$test_python" \
    >"$tree/configure.log" 2>&1 && echo "$answers" >"$tree/configured"
}
mkdir -p "$tree"
if [[ ! -f $tree/build.ninja || $(cat "$tree/configured" 2>/dev/null) != "$answers" ]]; then
  echo "build: configuring $tree"
  configure || { tail -n 30 "$tree/configure.log" >&2; echo "build: configure failed; whole log in $tree/configure.log" >&2; exit 1; }
  sed -n 's/^-- \(trireme: .*\)/\1/p' "$tree/configure.log"
fi

# One job for each GiB and a half of free memory at most: libtorch's headers need one.
free_mib=$(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
jobs=$(nproc)
((jobs * 1536 <= free_mib)) || jobs=$((free_mib / 1536 > 0 ? free_mib / 1536 : 1))
if [[ -n $(ninja -C "$tree" -n "$target" 2>/dev/null | grep -v 'no work to do' | tail -n +2) ]]; then
  echo "build: $tree, $jobs jobs"
fi
cmake --build "$tree" --target "$target" --parallel "$jobs"
echo "build: $target done in $((SECONDS - start))s"
