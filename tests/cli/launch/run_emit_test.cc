#include "trireme/cli/launch/run_emit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::cli {
namespace {

using harness::message_of;
using testing::HasSubstr;

EmitOptions options_of(const std::string& system) {
  EmitOptions options{.system = system};
  options.job.config = "run.toml";
  return options;
}

TEST(RunEmit, TakesItsOptionsFromTheCommandLine) {
  CLI::App app;
  EmitOptions options;
  add_emit_options(app, options);
  app.parse(
      "--emit slurm --name galley --time 1-02:03:04 --notice 60 --partition gpu --account a "
      "--cpus-per-node 8 --gpus-per-node 4 --program /opt/trireme");
  options.job.config = "run.toml";
  const std::string text = emit(options);
  for (const char* part :
       {"--job-name=galley\n", "--time=26:03:04\n", "--signal=B:USR1@60\n", "--partition=gpu\n",
        "--account=a\n", "--cpus-per-task=8\n", "--gpus-per-node=4\n", "/opt/trireme run"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(RunEmit, ItsOptionsNeedEmit) {
  CLI::App app;
  EmitOptions options;
  add_emit_options(app, options);
  EXPECT_THROW(app.parse("--partition gpu"), CLI::RequiresError);
  EXPECT_THROW(app.parse("--emit slurm --notice 0"), CLI::ValidationError);
}

TEST(RunEmit, NamesTheSystemsItKnows) {
  EXPECT_EQ(message_of<ConfigError>([] { emit(options_of("sge")); }),
            "--emit is \"sge\"; expected slurm, pbs, lsf, kubernetes, kubeflow or compose");
}

TEST(RunEmit, ReadsTimesAsSlurmWritesThem) {
  const auto limit = [](const std::string& time) {
    EmitOptions options = options_of("slurm");
    options.time = time;
    return emit(options);
  };
  EXPECT_THAT(limit("0:05:00"), HasSubstr("#SBATCH --time=0:05:00\n"));
  EXPECT_THAT(limit("100:00:00"), HasSubstr("#SBATCH --time=100:00:00\n"));
  EXPECT_THAT(limit("2-00:00:01"), HasSubstr("#SBATCH --time=48:00:01\n"));
  for (const std::string time : {"90", "5:00", "1:60:00", "1:00:60", "-1:00:00", "1:00:00x", "x",
                                 "1-24:00:00", "1-", "0:00:00", "99999999999999999999:00:00"}) {
    EXPECT_THAT(message_of<ConfigError>([&] { limit(time); }),
                HasSubstr("--time is \"" + time + "\"; expected H:MM:SS"));
  }
}

TEST(RunEmit, WritesNewFilesOnly) {
  const harness::TemporaryFolder folder;
  EmitOptions options = options_of("pbs");
  options.output = (folder / "job.sh").string();
  EXPECT_EQ(emit(options), "wrote " + options.output + "; its first lines say how to start it\n");
  EXPECT_THAT(read_file(options.output), HasSubstr("#PBS -N trireme\n"));
  EXPECT_THAT(message_of<ConfigError>([&] { emit(options); }),
              HasSubstr("job.sh, which exists; expected a new file"));
}

}  // namespace
}  // namespace trireme::cli
