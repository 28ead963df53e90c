#include "trireme/train/derived_run.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/train/language_config.h"
#include "trireme/base/file/file.h"
#include "trireme/tasks/tasks.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(DerivedRun, CopiesTheFilesOfTheTaskOnly) {
  const harness::TemporaryFolder folder;
  const fs::path run = folder / "run", checkpoint = run / "checkpoints" / "step-000001";
  for (const fs::path& made : {checkpoint, run / "tensorboard"}) fs::create_directories(made);
  for (const char* name : {"tokenizer.tokenizer.json", "config.toml", "metrics.jsonl"})
    std::ofstream(run / name) << name;
  std::ofstream(run / "empty");
  std::ofstream(run / "tensorboard" / "events") << "x";
  DerivedRun derived(checkpoint / "", folder / "new");
  fs::create_directory(derived.checkpoints());
  EXPECT_FALSE(fs::exists(folder / "new"));
  derived.commit("new config");
  EXPECT_EQ(read_file(folder / "new" / "tokenizer.tokenizer.json"), "tokenizer.tokenizer.json");
  EXPECT_EQ(read_file(folder / "new" / "config.toml"), "new config");
  EXPECT_TRUE(fs::exists(folder / "new" / "empty"));
  EXPECT_TRUE(fs::is_directory(folder / "new" / "checkpoints"));
  EXPECT_FALSE(fs::exists(folder / "new" / "metrics.jsonl"));
  EXPECT_FALSE(fs::exists(folder / "new" / "tensorboard"));
}

TEST(DerivedRun, CopiesNothingBesideACheckpointThatIsInNoRun) {
  const harness::TemporaryFolder folder;
  fs::create_directories(folder / "kept" / "step-000001");
  std::ofstream(folder / "secret") << "x";
  DerivedRun derived(folder / "kept" / "step-000001", folder / "new");
  derived.commit("");
  EXPECT_FALSE(fs::exists(folder / "new" / "secret"));
}

TEST(DerivedRun, LeavesNothingWithoutACommit) {
  const harness::TemporaryFolder folder;
  fs::create_directories(folder / "checkpoints" / "step-000001");
  { const DerivedRun derived(folder / "checkpoints" / "step-000001", folder / "new"); }
  EXPECT_FALSE(fs::exists(folder / "new"));
  std::ofstream(folder / "file") << "x";
  EXPECT_THAT(harness::message_of<ConfigError>(
                  [&] { DerivedRun(folder / "checkpoints" / "step-000001", folder / "file"); }),
              HasSubstr("is a file"));
}

TEST(DerivedRun, ConfigIsTheSavedOneButForItsFolderAndDataRanks) {
  RunConfig config = language_config();
  config.train.steps = 77;
  config.parallel.zero = 1;
  config.parallel.tensor = 2;
  resolve(config, 4);
  EXPECT_EQ(config.parallel.data, 2);
  RunConfig derived = derived_config(to_toml(config), "where", tasks::all_tasks(), "runs/new");
  resolve(derived, 8);
  EXPECT_EQ(derived.parallel.data, 4);
  EXPECT_EQ(derived.parallel.shard, 4);
  EXPECT_EQ(derived.output.folder, "runs/new");
  EXPECT_EQ(derived.train.steps, 77);
  EXPECT_THAT(harness::message_of<ConfigError>([&] {
                derived_config("task.name = \"sing\"", "where", tasks::all_tasks(), "new");
              }),
              HasSubstr("sing"));
}

}  // namespace
}  // namespace trireme::train
