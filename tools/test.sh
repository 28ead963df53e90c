#!/usr/bin/env bash
# test.sh PRESET [ctest arguments]: runs every test this machine can run; says which it left out.
set -euo pipefail
cd "$(dirname "$0")/.."
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=true  # tests that build hit what the build has made
preset=${1:-release}
shift || true
tree=build/$preset

# Tests that make network namespaces need root and iproute2.
can_make_netns() { [[ $EUID == 0 ]] && ip netns add "trireme-$$-probe" 2>/dev/null && ip netns delete "trireme-$$-probe"; }
left_out=()
if ! can_make_netns; then
  left_out=(--label-exclude netns)
  echo "test: left out, as they need root and 'ip netns' (label netns):"
  ctest --test-dir "$tree" --show-only --label-regex netns | sed -n 's/^ *Test *#[0-9]*:/test:  /p'
fi
ctest --test-dir "$tree" --output-on-failure --parallel 2 "${left_out[@]}" "$@"
