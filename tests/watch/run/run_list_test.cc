#include "trireme/watch/run/run_list.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::watch {
namespace {

void make_run(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "metrics.jsonl", "{\"step\":1,\"loss\":2}\n");
}

TEST(RunList, FindsRunsInFolders) {
  const harness::TemporaryFolder folder;
  make_run(folder / "a");
  make_run(folder / "b" / "inner");
  make_run(folder / "c" / "inner");
  std::filesystem::create_directories(folder / "empty");
  RunList runs({folder.path(), folder / "a"});
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs.name(0), "a");
  EXPECT_EQ(runs.name(1), (folder / "b" / "inner").string());
  EXPECT_FALSE(runs.update(std::chrono::seconds(10)));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(runs.run(i).last_step(), 1) << i;
}

TEST(RunList, ARoundThatTakesSeveralCallsComesToItsEnd) {
  const harness::TemporaryFolder folder;
  for (int i = 0; i < 50; ++i) make_run(folder / std::to_string(i));
  RunList runs({folder.path()});
  // A call has hardly time for all runs.
  while (runs.update(std::chrono::milliseconds(1))) {
  }
  for (size_t i = 0; i < 50; ++i) EXPECT_EQ(runs.run(i).last_step(), 1) << i;
}

TEST(RunList, RefusesFoldersWithoutRuns) {
  const harness::TemporaryFolder folder;
  EXPECT_THROW(RunList({folder.path()}), ConfigError);
  EXPECT_THROW(RunList({folder / "none"}), ConfigError);
}

TEST(RunList, ARunThatVanishesKeepsItsIndex) {
  const harness::TemporaryFolder folder;
  make_run(folder / "a");
  make_run(folder / "b");
  RunList runs({folder.path()});
  runs.update(std::chrono::seconds(10));
  std::filesystem::remove_all(folder / "a");
  runs.update(std::chrono::seconds(10));
  EXPECT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs.run(0).last_step(), 1);
  EXPECT_EQ(runs.run(1).name(), "b");
}

}  // namespace
}  // namespace trireme::watch
