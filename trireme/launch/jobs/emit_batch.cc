// Batch scripts of Slurm, PBS and LSF.
#include <array>
#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/launch/jobs/emit.h"
#include "trireme/launch/jobs/quoted.h"

namespace trireme::launch {

// A scheduler's file is text from the user inside a shell script, inside a template here. Every
// word goes through shell_words(), and the scheduler's own lines take only words that emit_job()
// has checked, because they do not understand quotes. The scripts differ as the schedulers do: srun
// starts all agents itself, so Slurm's script only passes signals on and waits. PBS and LSF end a
// job when its script ends, and signal the script together with the agents: qdel's TERM would end
// it before the agents have saved. So these scripts ignore the signal, start one agent per host in
// the background, and wait for a file with each agent's code. The codes matter, because the process
// that started an agent may die of the signal before the agent does. One code 0 makes the job's
// code 0: the agents that finished are right, whatever became of a lost host. emit_test.py runs the
// scripts with stand-ins for all of this.

namespace {

// "1:30:00", which Slurm and PBS read.
std::string hours_text(std::chrono::seconds time) {
  const int64_t seconds = time.count();
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%lld:%02d:%02d", static_cast<long long>(seconds / 3600),
                static_cast<int>(seconds / 60 % 60), static_cast<int>(seconds % 60));
  return text.data();
}

// A line of the scheduler's, unless the value is empty.
std::string directive(std::string_view prefix, const std::string& value,
                      // An empty option must leave no line behind, since a scheduler would refuse
                      // the bare prefix.
                      std::string_view suffix = "") {
  return value.empty() ? "" : concat(prefix, value, suffix, "\n");
}

// Agents on several hosts only meet with a token.
std::string token_lines(const JobOptions& options) {
  if (options.nnodes == 1) return "";
  return R"sh(
# The agents know each other by a token, in a file that every host sees.
export TRIREME_TOKEN_FILE=${TRIREME_TOKEN_FILE:-$HOME/.trireme-token}
if [[ ! -r $TRIREME_TOKEN_FILE ]]; then
  echo "$TRIREME_TOKEN_FILE is missing; make it: (umask 077; head -c 32 /dev/urandom | base64 > $TRIREME_TOKEN_FILE)" >&2
  exit 2
fi
)sh";
}

// Sets `notice` to the options that let agents see the end of the job coming.
std::string notice_lines(const JobOptions& options) {
  // An array, so that no options give no words; an empty string would be a word.
  if (options.time.count() == 0) return "\nnotice=()\n";
  // The limit is computed in the script: only there is known when the job began.
  const auto until_notice = (options.time - options.notice).count();
  return concat("\n# The agents save the run and end ", options.notice.count(),
                " s before the limit.\ndeadline=$(($(date +%s) + ", until_notice,
                "))\nnotice=(--notice-command \"test \\$(date +%s) -ge $deadline\")\n");
}

// Runs an agent on its host, as words after `sh -c`: leaves its code in the file $1. Signals to all
// processes of the job do not end this one before the agent.
// `trap :` and not ignoring: a child would inherit an ignored signal, and the agent must get it.
constexpr const char* kKeepCode =
    R"sh('trap : INT TERM; file=$1; shift; "$@"; code=$?; echo "$code" >"$file"; exit "$code"')sh";

// Makes the folder $codes for the agents' codes, and ignores what ends the agents.
std::string codes_lines(std::string_view job) {
  return concat("\n# Each agent leaves its code here.\ncodes=.trireme-codes-", job, R"sh(
rm -rf "$codes"
mkdir "$codes" || exit 2
trap 'rm -rf "$codes"' EXIT
# qdel and bkill signal this script and the agents, which save the run. When this script ends, they are killed.
ending=
trap 'ending=1' INT TERM
)sh");
}

// Sets `code`. The agents have been started by the processes ${agents[@]}, in the order of hosts.
std::string await_lines(const JobOptions& options) {
  return concat(R"sh(starters=()
for agent in "${agents[@]}"; do
  ended=0
  wait "$agent" || ended=$?
  while kill -0 "$agent" 2>/dev/null; do  # a signal interrupts `wait`
    ended=0
    wait "$agent" || ended=$?
  done
  starters+=("$ended")
done
# A signal may end what started an agent, before the agent.
for ((i = 0; i < )sh",
                options.notice.count(), R"sh(; ++i)); do
  [[ -n $ending ]] && (($(grep -ls . "$codes"/* | wc -l) < ${#agents[@]})) || break
  sleep 1
done
# An agent ends with 0 when the job is finished, whatever became of other hosts. Otherwise the first code counts.
code=
for rank in "${!agents[@]}"; do
  ended=$(cat "$codes/$rank" 2>/dev/null)
  ended=${ended:-${starters[rank]}}
  if ((ended == 0)); then code=0; fi
  code=${code:-$ended}
done
)sh");
}

// Says at the end how to go on, when the limit came first.
constexpr const char* kSayAgain =
    R"sh(if [[ -n ${deadline-} && $(date +%s) -ge ${deadline-0} && ($code == 0 || $code == 3) ]]; then
  echo "the job's limit came; submit the script again to go on from what was saved" >&2
fi
exit "$code"
)sh";

}  // namespace

std::string emit_slurm(const JobOptions& options) {
  const bool is_elastic = options.min_nnodes < options.nnodes;
  std::string text = "#!/usr/bin/env bash\n" + job_heading(options, "sbatch FILE");
  text += directive("#SBATCH --job-name=", options.name);
  text += is_elastic ? concat("#SBATCH --nodes=", options.min_nnodes, "-", options.nnodes, "\n")
                     : concat("#SBATCH --nodes=", options.nnodes, "\n");
  // With a number of tasks Slurm would give the fewest hosts. srun starts one task on each host.
  if (!is_elastic) text += "#SBATCH --ntasks-per-node=1\n";
  text += options.cpus_per_node > 0
              ? concat("#SBATCH --cpus-per-task=", options.cpus_per_node, "\n")
              : "#SBATCH --exclusive\n";
  if (options.gpus_per_node > 0) {
    text += concat("#SBATCH --gpus-per-node=", options.gpus_per_node, "\n");
  }
  if (options.time.count() > 0) text += "#SBATCH --time=" + hours_text(options.time) + "\n";
  text += directive("#SBATCH --partition=", options.partition);
  text += directive("#SBATCH --account=", options.account);
  // B: only the script gets it, and passes it on to the agents.
  text += concat("#SBATCH --signal=B:USR1@", options.notice.count(), "\n");
  // Append: the log of a requeued job must keep what came before.
  text += "#SBATCH --requeue\n#SBATCH --open-mode=append\n";
  if (is_elastic) text += "#SBATCH --no-kill\n";
  text += "set -uo pipefail\n" + token_lines(options);
  // Without these, the first agent that ends would end those of the other hosts.
  text += "\nsrun --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 --cpu-bind=none";
  if (is_elastic) text += " --no-kill";
  // srun does not take it from sbatch since Slurm 22.05.
  if (options.cpus_per_node > 0) text += concat(" --cpus-per-task=", options.cpus_per_node);
  text += " \\\n  " + shell_words(agent_words(options));
  // The job may have got fewer hosts than the most.
  if (is_elastic) text += concat(" --nnodes \"", options.min_nnodes, ":$SLURM_JOB_NUM_NODES\"");
  text += " \\\n  " + shell_words(trained_words(options)) + " &\n";
  return text + R"sh(agents=$!
# Slurm sends USR1 to this script before the limit. The agents save the run and end, and the job waits
# in the queue again. TERM, with which Slurm preempts and cancels, also reaches the agents.
noticed=
trap 'noticed=1; kill -USR1 "$agents"' USR1
trap : TERM
code=0
wait "$agents" || code=$?
while kill -0 "$agents" 2>/dev/null; do
  code=0
  wait "$agents" || code=$?
done
if [[ -n $noticed && ($code == 0 || $code == 3) ]]; then
  exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
)sh";
}

std::string emit_pbs(const JobOptions& options) {
  std::string text = "#!/usr/bin/env bash\n" + job_heading(options, "qsub FILE");
  text += directive("#PBS -N ", options.name);
  // Without a number of cores, whole hosts.
  const bool is_whole = options.cpus_per_node == 0;
  text +=
      concat("#PBS -l select=", options.nnodes,
             ":ncpus=", is_whole ? options.nproc_per_node : options.cpus_per_node, ":mpiprocs=1");
  if (options.gpus_per_node > 0) text += concat(":ngpus=", options.gpus_per_node);
  text += is_whole ? "\n#PBS -l place=scatter:exclhost\n" : "\n#PBS -l place=scatter\n";
  if (options.time.count() > 0) text += "#PBS -l walltime=" + hours_text(options.time) + "\n";
  text += directive("#PBS -q ", options.partition);
  text += directive("#PBS -A ", options.account);
  text += "#PBS -r y\n#PBS -j oe\n";
  text += "set -uo pipefail\ncd \"$PBS_O_WORKDIR\" || exit 2\n";
  text += token_lines(options) + notice_lines(options);
  text += concat(R"sh(
# A line of the file is a host. Only the first host has the file, so each agent is told what it says.
mapfile -t hosts <"$PBS_NODEFILE"
if ((${#hosts[@]} != )sh",
                 options.nnodes, R"sh()); then
  echo "$PBS_NODEFILE has ${#hosts[@]} lines; expected )sh",
                 options.nnodes, R"sh( hosts with one process each" >&2
  exit 2
fi
number=${PBS_JOBID%%[!0-9]*}
port=$((16384 + (10#$number + ${PBS_ARRAY_INDEX:-0}) % 16384))
)sh",
                 codes_lines("$number-${PBS_ARRAY_INDEX:-0}"), R"sh(agents=()
for rank in "${!hosts[@]}"; do
  # PBS starts an agent with none of this script's variables and in the home folder.
  pbsdsh -n "$rank" -- /usr/bin/env "PATH=$PATH" "HOME=$HOME" "LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}" \
    "TRIREME_TOKEN_FILE=${TRIREME_TOKEN_FILE-}" \
    sh -c 'cd "$0" && exec "$@"' "$PBS_O_WORKDIR" \
    sh -c )sh",
                 kKeepCode, R"sh( sh "$codes/$rank" \
    )sh",
                 shell_words(agent_words(options)), R"sh( \
    --nnodes )sh",
                 nnodes_text(options),
                 R"sh( --node-rank "$rank" --rdzv-endpoint "${hosts[0]}:$port" "${notice[@]}" \
    )sh",
                 shell_words(trained_words(options)), R"sh( &
  agents+=($!)
done
)sh");
  return text + await_lines(options) + kSayAgain;
}

std::string emit_lsf(const JobOptions& options) {
  const int slots = options.cpus_per_node > 0 ? options.cpus_per_node : options.nproc_per_node;
  std::string text = "#!/usr/bin/env bash\n" + job_heading(options, "bsub < FILE");
  text += directive("#BSUB -J ", options.name);
  text += concat("#BSUB -n ", int64_t{options.nnodes} * slots, "\n#BSUB -R \"span[ptile=", slots,
                 "]\"\n");
  if (options.gpus_per_node > 0) {
    text += concat("#BSUB -gpu \"num=", options.gpus_per_node, "/host\"\n");
  }
  // In minutes, rounded up.
  // LSF would cut a part of a minute.
  if (options.time.count() > 0) text += concat("#BSUB -W ", (options.time.count() + 59) / 60, "\n");
  text += directive("#BSUB -q ", options.partition);
  text += directive("#BSUB -P ", options.account);
  text += "#BSUB -r\n#BSUB -o ";
  text += options.name + ".%J.out\nset -uo pipefail\n";
  text += token_lines(options) + notice_lines(options);
  text += concat(R"sh(
# A line of the file is a slot.
mapfile -t hosts < <(awk '!seen[$1]++ { print $1 }' "$LSB_DJOB_HOSTFILE")
if ((${#hosts[@]} != )sh",
                 options.nnodes, R"sh()); then
  echo "$LSB_DJOB_HOSTFILE has ${#hosts[@]} hosts; expected )sh",
                 options.nnodes, R"sh(" >&2
  exit 2
fi
)sh",
                 codes_lines("$LSB_JOBID-${LSB_JOBINDEX:-0}"),
                 R"sh(# The agent's command is in a file, because blaunch joins words with blanks.
file=$codes.sh
trap 'rm -rf "$codes" "$file"' EXIT
cat >"$file" <<END_OF_AGENT
notice=(${notice[@]@Q})
END_OF_AGENT
cat >>"$file" <<'END_OF_AGENT'
exec sh -c )sh",
                 kKeepCode, R"sh( sh "${0%.sh}/$1" )sh", shell_words(agent_words(options)),
                 options.min_nnodes < options.nnodes ? " --nnodes " + nnodes_text(options) : "",
                 R"sh( "${notice[@]}" \
  )sh",
                 shell_words(trained_words(options)), R"sh(
END_OF_AGENT
agents=()
for host in "${!hosts[@]}"; do
  blaunch -z "${hosts[host]}" bash "$file" "$host" &
  agents+=($!)
done
)sh");
  return text + await_lines(options) + kSayAgain;
}

}  // namespace trireme::launch
