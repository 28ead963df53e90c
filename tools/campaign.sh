#!/usr/bin/env bash
# campaign.sh [--minutes M] [--preset P] [CASE ...]: the fault tests, again and again with new seeds, M minutes in all
# (20), shared evenly among the cases. Prints what was tried and how often; logs and failures are in
# build/P/campaign/. Build first: make test, or tools/build.sh P all.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=20 preset=release cases=()

# What to run for each case; a test prints "campaign: COUNT WHAT" for what it has tried.
declare -A command=(
  [kills]="python cli/kill_resume_test.py KillResume.test_a_killed_rank KillResume.test_a_killed_rank_that_shares_everything_out KillResume.test_a_killed_launcher"
  [signals]="python cli/stop_test.py"
  [saves]="bin/checkpoint_test --gtest_filter=InterruptedSave.*"
  [power]="python cli/power_loss_test.py PowerLoss.test_whatever_the_instant"
  [damage]="python cli/damaged_files_test.py"
  [disks]="python cli/full_disk_test.py"
  [saves-and-disks]="python cli/killed_saves_test.py --kills 30"
  [structures]="bin/hostile_readers_test --seconds 60"
  [peers]="bin/comm_test --gtest_filter=PeerMemory.*:MessageRings.*"
  [users]="bin/shared_host_test --gtest_filter=OtherUser.*"
  [pauses]="python cli/pauses_test.py Campaign"
  [pipes]="python cli/pipes_test.py"
  [limits]="python cli/limits_test.py"
  [slow-starts]="python cli/slow_starts_test.py"
  [jobs]="bin/rendezvous_test --gtest_filter=TwoJobs.*:StoreServer.*"
)
readonly order=(
  kills signals saves power damage disks saves-and-disks structures peers users pauses pipes limits slow-starts jobs
)

usage() {
  sed -n '2,4s/^# //p' "$0"
  echo "cases: ${order[*]}"
  exit "$1"
}
while (($#)); do
  case $1 in
    --minutes) minutes=${2:?--minutes needs a number}; shift 2 ;;
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    --help | -h) usage 0 ;;
    *) [[ -n ${command[$1]:-} ]] || { echo "campaign: unknown case \"$1\"" >&2; usage 2; }; cases+=("$1"); shift ;;
  esac
done
((${#cases[@]})) || cases=("${order[@]}")
tree=$PWD/build/$preset
logs=$tree/campaign
[[ -x $tree/bin/trireme ]] || { echo "campaign: $tree/bin/trireme is missing; build first: tools/build.sh $preset all" >&2; exit 2; }
rm -rf "$logs" && mkdir -p "$logs"

seconds=$((minutes * 60 / ${#cases[@]}))
failures=0

run_case() { # run_case NAME SEED: one round, its output added to the case's log
  local program=${command[$1]}
  if [[ $program == python* ]]; then
    program="$(<build/test-python) -B $PWD/tests/${program#python }"
  else
    program=$tree/$program
    [[ $1 != structures ]] || program+=" --seed $2"
  fi
  TRIREME_PROGRAM=$tree/bin/trireme TRIREME_SYNC_LOG=$tree/lib/libsync_log.so TRIREME_SLOW_HOST=$tree/lib/libslow_host.so TRIREME_TEST_SEED=$2 $program
}

for name in "${cases[@]}"; do
  end=$((SECONDS + seconds)) rounds=0 failed=0
  while ((rounds == 0 || SECONDS < end)); do
    seed=$((RANDOM * 32768 + RANDOM))
    echo "== round $rounds, seed $seed" >>"$logs/$name.log"
    run_case "$name" "$seed" >>"$logs/$name.log" 2>&1 || { failed=$((failed + 1)); echo "campaign: $name FAILED with seed $seed ($logs/$name.log)"; }
    rounds=$((rounds + 1))
  done
  # unittest may have begun the line.
  tried=$(grep -o 'campaign: [0-9]* .*' "$logs/$name.log" | awk '{count = $2; $1 = $2 = ""; sum[$0] += count} END {for (what in sum) printf "%s%d%s", (n++ ? ", " : ""), sum[what], substr(what, 2)}' || true)
  echo "campaign: $name: $rounds rounds, $failed failed; ${tried:-see the log}"
  failures=$((failures + failed))
done
echo "campaign: $failures failures, $(date -u +%F), $(nproc) cores"
((failures == 0))
