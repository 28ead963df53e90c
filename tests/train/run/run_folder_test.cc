#include "trireme/train/run/run_folder.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class RunFolderTest : public ::testing::Test {
 protected:
  // A run after two steps.
  RunFolderTest() {
    fs::create_directory(run());
    folder_.emplace(run(), std::make_unique<FolderLock>(run()), write_note);
    folder_->start("config", 0);
    folder_->metrics().write({.step = 1});
    folder_->metrics().write({.step = 2});
  }
  static void write_note(const fs::path& folder) {
    write_file_atomically(folder / "note.txt", "of the task");
  }
  fs::path run() const { return root_ / "run"; }
  fs::path moved() const { return root_ / "moved"; }
  static RunFolder::Loss lose(RunFolder& folder) {
    EXPECT_FALSE(folder.is_in_place());
    return folder.recover({.step = 3});
  }
  static int64_t num_lines(const fs::path& folder) {
    return std::ranges::count(read_file(folder / "metrics.jsonl"), '\n');
  }
  static std::string lock_of(const fs::path& folder) {
    return harness::message_of<ConfigError>([&] { const FolderLock lock(folder); });
  }

  harness::TemporaryFolder root_;
  std::optional<RunFolder> folder_;
};

TEST_F(RunFolderTest, HoldsWhatARunBeginsWith) {
  EXPECT_TRUE(folder_->is_in_place());
  EXPECT_EQ(read_file(run() / "config.toml"), "config");
  EXPECT_EQ(read_file(run() / "note.txt"), "of the task");
  EXPECT_EQ(num_lines(run()), 2);
  folder_->write_config("another");
  EXPECT_EQ(read_file(run() / "config.toml"), "another");
  EXPECT_NE(lock_of(run()), "");
}

TEST_F(RunFolderTest, IsUsedWhereItWasMovedThoughItsMetricsCannotBe) {
  fs::rename(run(), moved());
  std::ofstream(moved() / "metrics.jsonl") << std::string(2000, '\n');
  const RunFolder::Loss loss = lose(*folder_);
  EXPECT_EQ(loss.refuge, moved());
  EXPECT_THAT(loss.message, AllOf(HasSubstr("was moved to"), HasSubstr("metrics are not complete"),
                                  HasSubstr("are not metrics")));
}

TEST_F(RunFolderTest, IsUsedWhereItWasMoved) {
  fs::rename(run(), moved());
  const RunFolder::Loss loss = lose(*folder_);
  EXPECT_EQ(loss.refuge, fs::canonical(moved()));
  EXPECT_THAT(loss.message, AllOf(HasSubstr("was moved to"), HasSubstr("saved step 3"),
                                  HasSubstr("--output.folder=" + loss.refuge.string())));
  EXPECT_EQ(num_lines(moved()), 3);
  EXPECT_FALSE(fs::exists(run()));
}

TEST_F(RunFolderTest, IsUsedWhereItWasMovedWhenAnotherIsAtItsPlace) {
  fs::rename(run(), moved());
  fs::create_directory(run());
  EXPECT_EQ(lose(*folder_).refuge, fs::canonical(moved()));
  EXPECT_TRUE(fs::is_empty(run()));
  EXPECT_EQ(lock_of(run()), "");
}

TEST_F(RunFolderTest, IsMadeAgainWhenItWasRemoved) {
  fs::remove_all(run());
  const RunFolder::Loss loss = lose(*folder_);
  EXPECT_EQ(loss.refuge, run());
  EXPECT_THAT(loss.message, AllOf(HasSubstr("was removed"), HasSubstr("step 3"),
                                  HasSubstr("same command goes on")));
  EXPECT_EQ(read_file(run() / "config.toml"), "config");
  EXPECT_TRUE(fs::exists(run() / "note.txt"));
  EXPECT_EQ(num_lines(run()), 1);
  EXPECT_TRUE(folder_->is_in_place());
  EXPECT_NE(lock_of(run()), "");
}

TEST_F(RunFolderTest, IsMadeAgainWithTheFoldersAboveIt) {
  fs::create_directories(root_ / "a/b");
  RunFolder deep(root_ / "a/b", std::make_unique<FolderLock>(root_ / "a/b"), write_note);
  deep.start("config", 0);
  fs::remove_all(root_ / "a");
  EXPECT_EQ(lose(deep).refuge, root_ / "a/b");
}

TEST_F(RunFolderTest, LeavesAnotherAtItsPlaceAlone) {
  fs::remove_all(run());
  fs::create_directory(run());  // nobody has it yet
  EXPECT_EQ(lose(*folder_).refuge, fs::path());
  EXPECT_TRUE(fs::is_empty(run()));
  {
    const FolderLock another(run());
    const RunFolder::Loss loss = lose(*folder_);
    EXPECT_EQ(loss.refuge, fs::path());
    EXPECT_THAT(loss.message, AllOf(HasSubstr("something else is at its place"),
                                    HasSubstr("left alone"), HasSubstr("step 3")));
  }
  EXPECT_TRUE(fs::is_empty(run()));
  fs::remove(run());
  std::ofstream(run()) << "a file";
  EXPECT_EQ(lose(*folder_).refuge, fs::path());
  EXPECT_EQ(read_file(run()), "a file");
}

}  // namespace
}  // namespace trireme::train
