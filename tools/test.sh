#!/usr/bin/env bash
# test.sh PRESET [--all] [ctest arguments]: runs the tests this machine can run; says which it left out.
# Without --all the long ones (label long) are left out too.
set -euo pipefail
cd "$(dirname "$0")/.."
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true  # tests that build hit what the build has made
preset=${1:-release}
shift || true
all=""
[[ ${1:-} != --all ]] || { all=yes; shift; }
tree=build/$preset
# What glibc never frees, and what the thread sanitizer cannot see, as libtorch is not compiled with it.
[[ $preset != asan ]] || export LSAN_OPTIONS="suppressions='$PWD/tests/lsan.supp':print_suppressions=0 ${LSAN_OPTIONS:-}"
[[ $preset != tsan ]] || export TSAN_OPTIONS="suppressions='$PWD/tests/tsan.supp' ${TSAN_OPTIONS:-}"

# leave_out LABEL WHY: names the tests of a label that do not run.
left_out=""
leave_out() {
  left_out+="${left_out:+|}$1"
  local tests
  tests=$(ctest --test-dir "$tree" --show-only --label-regex "^$1\$" | sed -n 's/^ *Test *#[0-9]*:/test:  /p')
  [[ -z "$tests" ]] || printf 'test: left out, as %s (label %s):\n%s\n' "$2" "$1" "$tests"
}
can_make_netns() { [[ $EUID == 0 ]] && ip netns add "trireme-$$-probe" 2>/dev/null && ip netns delete "trireme-$$-probe"; }
can_make_netns || leave_out netns "they need root and 'ip netns'"
can_mount() { [[ $EUID == 0 ]] && unshare --mount true 2>/dev/null; }
can_mount || leave_out mount "they need root and the right to mount"
[[ $EUID == 0 ]] || leave_out slurm "slurmd needs root"
[[ -e /dev/nvidiactl ]] || leave_out gpu "they need a GPU"
[[ -n $all ]] || leave_out long "'make test-all' runs them"
ctest --test-dir "$tree" --output-on-failure --parallel 2 ${left_out:+--label-exclude "^($left_out)\$"} "$@"
