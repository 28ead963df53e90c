#include "trireme/cli/train/run_tracking.h"

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"

namespace trireme::cli {
namespace {

TEST(RunTracking, AServerGetsWhatTheFolderSays) {
  const harness::TemporaryFolder folder;
  std::filesystem::create_directory(folder / "demo");
  const auto put = [&](const char* name, const char* text) {
    OutputFile(folder / "demo" / name).write(text);
  };
  put("config.toml", "[train]\nsteps = 20\n[optimizer]\nname = 'adamw'\n");
  put("run_id", "aa11\n/somewhere\n");
  put("run.json", R"({"version": "0.1.0", "revision": "abc", "host": "a", "started": 7.5})");
  const train::MlflowStart start = mlflow_start(folder / "demo/", {}, 4);
  EXPECT_EQ(start.experiment, "trireme");
  EXPECT_EQ(start.run_name, "demo");
  EXPECT_EQ(start.identity, "aa11");
  EXPECT_EQ(start.time_ms, 7500);
  EXPECT_EQ(start.parameters, (std::map<std::string, std::string>{{"train.steps", "20"},
                                                                  {"optimizer.name", "adamw"}}));
  EXPECT_EQ(start.tags.at("trireme.version"), "0.1.0");
  EXPECT_EQ(start.tags.at("trireme.revision"), "abc");
  EXPECT_EQ(start.tags.at("trireme.ranks"), "4");
}

TEST(RunTracking, ARunOfAnOlderVersionIsKnownByItsPlace) {
  const harness::TemporaryFolder folder;
  const train::MlflowStart start =
      mlflow_start(folder.path(), {.experiment = "e", .run_name = "r"}, 0);
  EXPECT_EQ(start.experiment, "e");
  EXPECT_EQ(start.run_name, "r");
  EXPECT_EQ(start.identity, std::filesystem::absolute(folder.path()).string());
  EXPECT_FALSE(start.tags.contains("trireme.ranks"));
  EXPECT_FALSE(start.tags.contains("trireme.version"));
}

TEST(RunTracking, WithoutAServerDoesNothing) {
  RunTracking tracking([](const std::string& line) { FAIL() << line; });
  tracking.start({}, {});
  tracking.add({.step = 1});
  tracking.finish("FINISHED");
}

TEST(RunTracking, TheStateIsInMlflowsWords) {
  EXPECT_EQ(mlflow_status(train::Outcome::kFinished), "FINISHED");
  EXPECT_EQ(mlflow_status(train::Outcome::kEnded), "FINISHED");
  EXPECT_EQ(mlflow_status(train::Outcome::kStopped), "KILLED");
}

}  // namespace
}  // namespace trireme::cli
