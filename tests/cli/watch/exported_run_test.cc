#include "trireme/cli/watch/exported_run.h"

#include <gtest/gtest.h>

#include "tests/watch/serve/small_run.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

TEST(ExportedRun, HasNamesAndState) {
  watch::SmallRun small;
  const ExportedRun run = exported_run(small.folder.path(), "", "");
  EXPECT_EQ(run.start.experiment, "trireme");
  EXPECT_EQ(run.start.parameters.at("train.steps"), "3");
  EXPECT_EQ(run.status, "FINISHED");
  EXPECT_GT(run.ended_ms, 0);
}

TEST(ExportedRun, TakesNamesFromTheConfigOrTheCommand) {
  watch::SmallRun small;
  small.put("config.toml", "[tracking]\nexperiment = 'mine'\nrun_name = 'third'\n");
  EXPECT_EQ(exported_run(small.folder.path(), "", "").start.experiment, "mine");
  EXPECT_EQ(exported_run(small.folder.path(), "", "").start.run_name, "third");
  EXPECT_EQ(exported_run(small.folder.path(), "other", "name").start.experiment, "other");
  EXPECT_EQ(exported_run(small.folder.path(), "other", "name").start.run_name, "name");
}

TEST(ExportedRun, OfNoRunIsRefused) {
  const harness::TemporaryFolder folder;
  EXPECT_THROW(exported_run(folder.path(), "", ""), ConfigError);
  EXPECT_THROW(exported_run(folder / "none", "", ""), ConfigError);
}

}  // namespace
}  // namespace trireme::cli
