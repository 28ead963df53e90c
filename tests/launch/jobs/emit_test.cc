#include "trireme/launch/jobs/emit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

JobOptions options_of(JobSystem system) {
  return {.system = system,
          .config = "run.toml",
          .overrides = {"--train.steps=10"},
          .name = "galley",
          .min_nnodes = 2,
          .nnodes = 2,
          .nproc_per_node = 4,
          .image = "registry/trireme:1"};
}

TEST(Emit, EverySystemStartsTheSameTraining) {
  for (const auto& [name, system] : kJobSystems) {
    const std::string text = emit_job(options_of(system));
    EXPECT_THAT(text, HasSubstr("# Trains run.toml on 2 hosts, 4 workers on each."));
    std::string words = text;
    for (const char c : {'"', ',', '\\', '\n'}) std::erase(words, c);
    EXPECT_THAT(words, HasSubstr("-- trireme train run.toml --train.steps=10")) << name;
    EXPECT_THAT(words, HasSubstr("trireme run --nproc-per-node 4")) << name;
  }
}

TEST(Emit, SlurmsAgentsReadTheirHostsFromTheStep) {
  JobOptions options = options_of(JobSystem::kSlurm);
  options.image = "";
  std::string text = emit_job(options);
  EXPECT_THAT(text,
              HasSubstr("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --exclusive"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --signal=B:USR1@120\n#SBATCH --requeue\n"));
  EXPECT_THAT(text, Not(HasSubstr("--time=")));
  EXPECT_THAT(text, Not(HasSubstr("apptainer")));
  EXPECT_THAT(text, Not(HasSubstr("--nnodes")));
  options = options_of(JobSystem::kSlurm);
  options.min_nnodes = 1;
  // Slurm would give the fewest hosts that hold the tasks.
  EXPECT_THAT(emit_job(options), Not(HasSubstr("#SBATCH --ntasks")));
  options.time = 26h + 1min + 1s;
  options.notice = 300s;
  options.cpus_per_node = 16;
  options.gpus_per_node = 2;
  options.partition = "gpu";
  options.account = "rowers";
  text = emit_job(options);
  for (const char* line :
       {"#SBATCH --nodes=1-2\n", "#SBATCH --time=26:01:01\n", "#SBATCH --signal=B:USR1@300\n",
        "#SBATCH --cpus-per-task=16\n", "#SBATCH --gpus-per-node=2\n", "#SBATCH --partition=gpu\n",
        "#SBATCH --account=rowers\n", "#SBATCH --no-kill\n", "--nnodes \"1:$SLURM_JOB_NUM_NODES\"",
        "apptainer exec --nv registry/trireme:1 trireme run"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Emit, PbsAndLsfKnowTheirLimitThemselves) {
  for (const JobSystem system : {JobSystem::kPbs, JobSystem::kLsf}) {
    JobOptions options = options_of(system);
    EXPECT_THAT(emit_job(options), HasSubstr("notice=()"));
    options.time = 1h;
    EXPECT_THAT(emit_job(options), HasSubstr("deadline=$(($(date +%s) + 3480))"));
  }
}

TEST(Emit, OneHostNeedsNoToken) {
  for (const JobSystem system : {JobSystem::kSlurm, JobSystem::kPbs, JobSystem::kLsf}) {
    JobOptions options = options_of(system);
    EXPECT_THAT(emit_job(options), HasSubstr("TRIREME_TOKEN_FILE:-$HOME/.trireme-token"));
    options.min_nnodes = options.nnodes = 1;
    EXPECT_THAT(emit_job(options), Not(HasSubstr("TRIREME_TOKEN_FILE:-")));
  }
}

TEST(Emit, AConfigIsNeverAnOption) {
  JobOptions options = options_of(JobSystem::kSlurm);
  options.config = "-x.toml";
  EXPECT_THAT(emit_job(options), HasSubstr("train ./-x.toml"));
}

TEST(Emit, NamesThatASystemCannotHoldAreRefused) {
  for (const auto& [system_name, system] : kJobSystems) {
    for (const std::string name : {"", "a b", "a\n", "-a", "$(id)", "a\"b", "a#b", "é"}) {
      JobOptions options = options_of(system);
      options.name = name;
      EXPECT_ERROR(ConfigError, emit_job(options), "--name is \"");
    }
    JobOptions options = options_of(system);
    options.config = "a\n#SBATCH --uid=0";
    EXPECT_ERROR(ConfigError, emit_job(options), "the config's path is \"a?#SBATCH");
    options = options_of(system);
    options.partition = "a b";
    EXPECT_ERROR(ConfigError, emit_job(options), "--partition is \"a b\"");
    options = options_of(system);
    options.overrides = {"\033[2J"};
    EXPECT_ERROR(ConfigError, emit_job(options), "an argument is \"");
    options = options_of(system);
    options.config = "";
    EXPECT_ERROR(ConfigError, emit_job(options), "the config's path is empty");
  }
  for (const std::string& name :
       std::vector<std::string>{"Galley", "1galley", "galley-", "a.b", std::string(51, 'a')}) {
    JobOptions options = options_of(JobSystem::kKubernetes);
    options.name = name;
    EXPECT_ERROR(ConfigError, emit_job(options), "expected at most 50 small letters");
  }
}

TEST(Emit, ContainersNeedAnImageAndOnlyKubernetesTakesAClaim) {
  for (const JobSystem system :
       {JobSystem::kKubernetes, JobSystem::kKubeflow, JobSystem::kCompose}) {
    JobOptions options = options_of(system);
    options.image = "";
    EXPECT_ERROR(ConfigError, emit_job(options), "--image is not given");
  }
  JobOptions options = options_of(JobSystem::kKubernetes);
  options.claim = "runs";
  EXPECT_THAT(emit_job(options), HasSubstr("claimName: \"runs\""));
  options.system = JobSystem::kSlurm;
  EXPECT_ERROR(ConfigError, emit_job(options), "--claim is \"runs\"; expected it with kubernetes");
}

TEST(Emit, NumbersOutOfRangeAreRefused) {
  const auto refuses = [](const std::string& part, const auto& change) {
    JobOptions options = options_of(JobSystem::kSlurm);
    change(options);
    EXPECT_ERROR(ConfigError, emit_job(options), part);
  };
  refuses("--nnodes is 0", [](JobOptions& o) { o.nnodes = 0; });
  refuses("--nnodes is 100001", [](JobOptions& o) { o.nnodes = 100'001; });
  refuses("the minimum of --nnodes is 3; expected 1 to 2", [](JobOptions& o) { o.min_nnodes = 3; });
  refuses("--nproc-per-node is 0", [](JobOptions& o) { o.nproc_per_node = 0; });
  refuses("--gpus-per-node is -1", [](JobOptions& o) { o.gpus_per_node = -1; });
  refuses("--cpus-per-node is -1", [](JobOptions& o) { o.cpus_per_node = -1; });
  refuses("--time is -1", [](JobOptions& o) { o.time = -1s; });
  refuses("--time is 60 seconds; expected more than --notice = 120",
          [](JobOptions& o) { o.time = 60s; });
  refuses("--notice is 0", [](JobOptions& o) { o.notice = 0s; });
}

}  // namespace
}  // namespace trireme::launch
