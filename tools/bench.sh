#!/usr/bin/env bash
# bench.sh [arguments of run.py]: trireme beside its peers on this machine; the note goes to benchmarks/results/.
set -euo pipefail
cd "$(dirname "$0")/.."
# A peer that cannot be installed is a line in the tables, not the end of the benchmark.
tools/setup_bench.sh || echo "bench: goes on without DeepSpeed" >&2
exec "$(<build/python)" benchmarks/train_vs_pytorch/run.py "$@"
