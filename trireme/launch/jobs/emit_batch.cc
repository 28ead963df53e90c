// Batch scripts of Slurm, PBS and LSF.
#include <array>
#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/launch/jobs/emit_writers.h"
#include "trireme/launch/jobs/quoted.h"

namespace trireme::launch::inline internal {
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
  if (options.time.count() == 0) return "\nnotice=()\n";
  const auto until_notice = (options.time - options.notice).count();
  return concat("\n# The agents save the run and end ", options.notice.count(),
                " s before the limit.\ndeadline=$(($(date +%s) + ", until_notice,
                "))\nnotice=(--notice-command \"test \\$(date +%s) -ge $deadline\")\n");
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
  text += "#SBATCH --ntasks-per-node=1\n";
  text += options.cpus_per_node > 0
              ? concat("#SBATCH --cpus-per-task=", options.cpus_per_node, "\n")
              : "#SBATCH --exclusive\n";
  if (options.gpus_per_node > 0) {
    text += concat("#SBATCH --gpus-per-node=", options.gpus_per_node, "\n");
  }
  if (options.time.count() > 0) text += "#SBATCH --time=" + hours_text(options.time) + "\n";
  text += directive("#SBATCH --partition=", options.partition);
  text += directive("#SBATCH --account=", options.account);
  text += concat("#SBATCH --signal=B:USR1@", options.notice.count(), "\n");
  text += "#SBATCH --requeue\n#SBATCH --open-mode=append\n";
  if (is_elastic) text += "#SBATCH --no-kill\n";
  text += "set -uo pipefail\n" + token_lines(options);
  text += "\nsrun --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 --cpu-bind=none";
  if (is_elastic) text += " --no-kill";
  // srun does not take it from sbatch since Slurm 22.05.
  if (options.cpus_per_node > 0) text += concat(" --cpus-per-task=", options.cpus_per_node);
  text += " \\\n  " + shell_words(agent_words(options));
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
agents=()
for rank in "${!hosts[@]}"; do
  # PBS starts an agent with none of this script's variables and in the home folder.
  pbsdsh -n "$rank" -- /usr/bin/env "PATH=$PATH" "HOME=$HOME" "LD_LIBRARY_PATH=${LD_LIBRARY_PATH-}" \
    "TRIREME_TOKEN_FILE=${TRIREME_TOKEN_FILE-}" \
    sh -c 'cd "$0" && exec "$@"' "$PBS_O_WORKDIR" \
    )sh",
                 shell_words(agent_words(options)), R"sh( \
    --nnodes )sh",
                 nnodes_text(options),
                 R"sh( --node-rank "$rank" --rdzv-endpoint "${hosts[0]}:$port" "${notice[@]}" \
    )sh",
                 shell_words(trained_words(options)), R"sh( &
  agents+=($!)
done
# The first code that is not 0.
code=0
for agent in "${agents[@]}"; do
  wait "$agent" || { ended=$?; ((code)) || code=$ended; }
done
)sh");
  return text + kSayAgain;
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
# The agent's command is in a file, because blaunch joins words with blanks.
agent=.trireme-agent-$LSB_JOBID-${LSB_JOBINDEX:-0}.sh
trap 'rm -f "$agent"' EXIT
cat >"$agent" <<END_OF_AGENT
notice=(${notice[@]@Q})
END_OF_AGENT
cat >>"$agent" <<'END_OF_AGENT'
exec )sh",
                 shell_words(agent_words(options)),
                 options.min_nnodes < options.nnodes ? " --nnodes " + nnodes_text(options) : "",
                 R"sh( "${notice[@]}" \
  )sh",
                 shell_words(trained_words(options)), R"sh(
END_OF_AGENT
code=0
blaunch -z "${hosts[*]}" bash "$agent" || code=$?
)sh");
  return text + kSayAgain;
}

}  // namespace trireme::launch::inline internal
