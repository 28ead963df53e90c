#!/usr/bin/env bash
# demo.sh PROGRAM STEPS: prepares the data when it is missing, trains on two ranks, prints a sample.
set -euo pipefail
cd "$(dirname "$0")/.."
trireme=${1:-build/release/bin/trireme} steps=${2:-300}
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
[[ -t 1 ]] || say() { printf '\n== %s\n' "$*"; }

# Real text that every machine with Python holds: the standard library's own source.
if [[ ! -f data/python.bin || ! -f data/python.idx ]]; then
  corpus=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["stdlib"])')
  say "data: tokenizing the Python standard library in $corpus"
  mkdir -p data
  excludes=()
  for folder in site-packages dist-packages test tests idlelib lib2to3 ensurepip __pycache__; do
    excludes+=(--exclude "$folder")
  done
  "$trireme" data prepare --input "$corpus" --glob '*.py' "${excludes[@]}" \
    --tokenizer bpe --vocab-size 4096 --output data/python
fi

# A finished run would have nothing left to do: the demo starts anew, an interrupted one goes on.
if [[ -f runs/demo/finished || ! -f runs/demo/steps || $(<runs/demo/steps) != "$steps" ]]; then
  rm -rf runs/demo
fi
mkdir -p runs/demo
echo "$steps" >runs/demo/steps

say "train: $steps steps on two ranks (examples/demo.toml); metrics in runs/demo/metrics.jsonl"
"$trireme" train examples/demo.toml --ranks 2 "--train.steps=$steps"
touch runs/demo/finished

say "generate: what it writes after 'def '"
"$trireme" generate --checkpoint runs/demo --prompt 'def '
echo
