#include "trireme/train/state/derived_run.h"

#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/train/language_config.h"
#include "trireme/base/file/file.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/state/resume.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DerivedRun, CopiesTheFilesOfTheTaskOnly) {
  const harness::TemporaryFolder folder;
  const fs::path run = folder / "run", checkpoint = run / "checkpoints" / "step-000001";
  for (const fs::path& made : {checkpoint, run / "tensorboard"}) fs::create_directories(made);
  for (const char* name : {"tokenizer.tokenizer.json", "config.toml", "metrics.jsonl",
                           kCheckpointNote, "secret.pem", "empty"})
    std::ofstream(run / name) << name;
  std::ofstream(run / "tensorboard" / "events") << "x";
  std::ofstream(folder / "outside") << "secret";
  fs::create_symlink(folder / "outside", run / "link");
  DerivedRun derived(checkpoint / "", folder / "new");
  fs::create_directory(derived.checkpoints());
  EXPECT_FALSE(fs::exists(folder / "new"));
  derived.commit("new config", {"tokenizer.tokenizer.json", "missing"});
  EXPECT_EQ(harness::names_in(folder / "new"),
            (std::vector<std::string>{"checkpoints", "config.toml", kCheckpointNote,
                                      "tokenizer.tokenizer.json"}));
  EXPECT_EQ(read_file(folder / "new" / "tokenizer.tokenizer.json"), "tokenizer.tokenizer.json");
  EXPECT_EQ(read_file(folder / "new" / "config.toml"), "new config");
}

TEST(DerivedRun, FilesKeepTheirPermissions) {
  const harness::TemporaryFolder folder;
  const fs::path run = folder / "run", checkpoint = run / "checkpoints" / "step-000001";
  fs::create_directories(checkpoint);
  std::ofstream(run / "mine") << "x";
  fs::permissions(run / "mine", fs::perms::owner_read | fs::perms::owner_write);
  DerivedRun derived(checkpoint, folder / "new");
  derived.commit("", {"mine"});
  EXPECT_EQ(fs::status(folder / "new" / "mine").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

TEST(DerivedRun, CopiesNothingThroughALink) {
  const harness::TemporaryFolder folder;
  const fs::path run = folder / "run", checkpoint = run / "checkpoints" / "step-000001";
  fs::create_directories(checkpoint);
  std::ofstream(folder / "outside") << "secret";
  fs::create_symlink(folder / "outside", run / "tokenizer.tokenizer.json");
  DerivedRun derived(checkpoint, folder / "new");
  EXPECT_THAT(
      harness::message_of<ConfigError>([&] { derived.commit("", {"tokenizer.tokenizer.json"}); }),
      AllOf(HasSubstr("tokenizer.tokenizer.json is a link"), HasSubstr("put a copy of it")));
}

TEST(DerivedRun, CopiesNothingBesideACheckpointThatIsInNoRun) {
  const harness::TemporaryFolder folder;
  fs::create_directories(folder / "kept" / "step-000001");
  std::ofstream(folder / "secret") << "x";
  DerivedRun derived(folder / "kept" / "step-000001", folder / "new");
  derived.commit("", {"secret"});
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

// The message with which lock_run() refuses to put a checkpoint of `saved` into a run of `config`.
std::string refusal(const RunConfig& config, const RunConfig& saved) {
  const harness::TemporaryFolder folder;
  std::ofstream(folder / "config.toml") << to_toml(config);
  return harness::message_of<ConfigError>(
      [&] { lock_run(folder.path(), to_toml(saved), "packed", tasks::all_tasks()); });
}

TEST(DerivedRun, LocksARunWhoseKeysThatMustStayAreTheSame) {
  const RunConfig config = language_config();
  RunConfig other = config;
  other.train.steps = 77;
  other.parallel.tensor = 2;
  data_of(other).path = "elsewhere";  // resume compares its content
  EXPECT_EQ(refusal(config, other), "");
  model_of(other).width *= 2;
  EXPECT_THAT(refusal(config, other), HasSubstr("model.width"));
  other = config;
  other.train.seed = 7;
  EXPECT_THAT(refusal(config, other), HasSubstr("train.seed 42 -> 7"));
  EXPECT_THAT(refusal(default_config(tasks::all_tasks(), "vision"), config),
              HasSubstr("'vision'; unpack it into a new folder"));
}

TEST(DerivedRun, LocksNoFolderThatIsNoRunsOrInUse) {
  const harness::TemporaryFolder folder;
  const std::string toml = to_toml(language_config());
  const auto lock = [&] { return lock_run(folder.path(), toml, "packed", tasks::all_tasks()); };
  EXPECT_THAT(harness::message_of<ConfigError>(lock), HasSubstr("has no config.toml"));
  std::ofstream(folder / "config.toml") << toml;
  {
    const FolderLock held = lock();
    EXPECT_NE(harness::message_of<ConfigError>(lock), "");
  }
  lock();
}

}  // namespace
}  // namespace trireme::train
