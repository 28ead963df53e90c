#!/usr/bin/env bash
# demo.sh PROGRAM STEPS [TASK]: prepares the data when it is missing, trains on two ranks, shows the result.
# TASK: language (the default) or vision.
set -euo pipefail
cd "$(dirname "$0")/.."
trireme=${1:-build/release/bin/trireme} steps=${2:-300} task=${3:-language}
source tools/steps.sh
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
[[ -t 1 ]] || say() { printf '\n== %s\n' "$*"; }

# Real text that every machine with Python holds: the standard library's own source.
prepare_language() {
  [[ ! -f data/python.bin || ! -f data/python.idx ]] || return 0
  local corpus excludes=() folder
  corpus=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["stdlib"])')
  say "data: tokenizing the Python standard library in $corpus"
  mkdir -p data
  for folder in site-packages dist-packages test tests idlelib lib2to3 ensurepip __pycache__; do
    excludes+=(--exclude "$folder")
  done
  "$trireme" data prepare --input "$corpus" --glob '*.py' "${excludes[@]}" \
    --tokenizer bpe --vocab-size 4096 --output data/python
}
show_language() {
  say "generate: what it writes after 'def '"
  "$trireme" generate --checkpoint "$1" --prompt 'def '
}

# The icons of a theme that Debian has, in classes by their use.
prepare_vision() {
  [[ ! -f data/icons/about.json ]] || return 0
  say "data: icons of Debian's package oxygen-icon-theme"
  tools/setup.sh vision
  .venv/bin/python tools/vision_data.py icons data/icons
}
show_vision() {
  say "classify: what it sees in icons that it has not learned from"
  "$trireme" classify --checkpoint "$1" --page "$1/predictions.html"
}

case $task in
  language) config=examples/demo.toml run=runs/demo ;;
  vision) config=examples/vision.toml run=runs/vision ;;
  *) die "TASK is \"$task\"; expected language or vision" ;;
esac
"prepare_$task"

# A finished demo would have nothing left to do: it starts anew, an interrupted one goes on. What someone trained
# there is moved aside, never removed.
if [[ -f $run/finished && ! $run/metrics.jsonl -nt $run/finished ]]; then
  rm -rf "$run"
elif [[ -e $run && ( -f $run/finished || ! -f $run/steps || $(<"$run/steps") != "$steps" ) ]]; then
  for ((number = 1; ; ++number)); do [[ -e $run.$number ]] || break; done
  say "the run in $run is not the demo's, or of another length: moved to $run.$number"
  mv "$run" "$run.$number"
fi
mkdir -p "$run"
echo "$steps" >"$run/steps"

say "train: $steps steps on two ranks ($config); metrics in $run/metrics.jsonl"
"$trireme" train "$config" --ranks 2 "--train.steps=$steps"
touch "$run/finished"
"show_$task" "$run"
echo
