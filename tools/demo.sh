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

# A finished demo would have nothing left to do: it starts anew, an interrupted one goes on. What someone trained
# there is moved aside, never removed.
run=runs/demo
if [[ -f $run/finished && ! $run/metrics.jsonl -nt $run/finished ]]; then
  rm -rf "$run"
elif [[ -e $run && ( -f $run/finished || ! -f $run/steps || $(<"$run/steps") != "$steps" ) ]]; then
  for ((number = 1; ; ++number)); do [[ -e $run.$number ]] || break; done
  say "the run in $run is not the demo's, or of another length: moved to $run.$number"
  mv "$run" "$run.$number"
fi
mkdir -p "$run"
echo "$steps" >"$run/steps"

say "train: $steps steps on two ranks (examples/demo.toml); metrics in $run/metrics.jsonl"
"$trireme" train examples/demo.toml --ranks 2 "--train.steps=$steps"
touch "$run/finished"

say "generate: what it writes after 'def '"
"$trireme" generate --checkpoint "$run" --prompt 'def '
echo
