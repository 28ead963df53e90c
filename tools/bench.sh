#!/usr/bin/env bash
# bench.sh [arguments of run.py]: trireme beside PyTorch on this machine; the note goes to benchmarks/results/.
set -euo pipefail
cd "$(dirname "$0")/.."
exec "$(<build/python)" benchmarks/train_vs_pytorch/run.py "$@"
