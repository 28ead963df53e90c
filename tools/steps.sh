# Sourced by the set-up scripts: errors and steps under the script's own name.
program=$(basename "$0" .sh)

die() { echo "$program: $*" >&2; exit 2; }
step() { # step "what" command...: runs it quietly, says what and for how long
  local what=$1 start=$SECONDS log
  shift
  log=$(mktemp)
  printf '%s: %s ...' "$program" "$what"
  if "$@" >"$log" 2>&1; then
    printf ' %ds\n' $((SECONDS - start))
  else
    printf ' failed\n'
    tail -n 20 "$log" >&2
    rm -f "$log"
    die "$what failed; the last lines are above"
  fi
  rm -f "$log"
}
