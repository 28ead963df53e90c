#include "trireme/train/state/places.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class MemoryFolder : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const fs::path& folder : made_) fs::remove_all(folder);
  }
  RunMark mark(const fs::path& folder) {
    fs::create_directories(folder);
    const RunMark found = mark_run(folder);
    made_.push_back(memory_folder(found));
    return found;
  }
  // As a run does that has ended since.
  static void make_memory_folder(const RunMark& run) { static_cast<void>(hold_memory_folder(run)); }
  std::vector<fs::path> made_;
  harness::TemporaryFolder root_;
};

TEST_F(MemoryFolder, IsTheSameForARunAndAnotherForEachOther) {
  const RunMark first = mark(root_ / "a");
  EXPECT_EQ(memory_folder(mark(root_ / "a")), memory_folder(first));
  EXPECT_NE(memory_folder(mark(root_ / "b")), memory_folder(first));
  fs::copy(root_ / "a", root_ / "copy", fs::copy_options::recursive);
  EXPECT_EQ(mark(root_ / "copy").id, first.id);
  EXPECT_NE(memory_folder(mark(root_ / "copy")), memory_folder(first));
  fs::remove_all(root_ / "a");
  EXPECT_NE(memory_folder(mark(root_ / "a")), memory_folder(first));  // another run at its place
}

TEST_F(MemoryFolder, IsForThisUserAlone) {
  const RunMark run = mark(root_ / "a");
  EXPECT_FALSE(has_memory_folder(run));
  make_memory_folder(run);
  make_memory_folder(run);
  EXPECT_TRUE(has_memory_folder(run));
  struct stat status {};
  ASSERT_EQ(stat(memory_folder(run).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700);
}

TEST_F(MemoryFolder, SaysWhatIsInItWithoutMakingAFile) {
  EXPECT_EQ(newest_in_memory(root_ / "none"), "nothing");
  fs::create_directory(root_ / "a");
  EXPECT_EQ(newest_in_memory(root_ / "a"), "nothing");
  EXPECT_TRUE(fs::is_empty(root_ / "a"));
  const RunMark run = mark(root_ / "a");
  make_memory_folder(run);
  EXPECT_EQ(newest_in_memory(root_ / "a"), "nothing");
  for (const char* step : {"step-000007", "step-000012", "step-000013"})
    fs::create_directories(memory_folder(run) / "checkpoints" / step);
  for (const char* step : {"step-000007", "step-000012"})
    write_file_atomically(memory_folder(run) / "checkpoints" / step / "manifest.json", "{}");
  EXPECT_THAT(newest_in_memory(root_ / "a"), ::testing::StartsWith("step 12, "));
}

TEST_F(MemoryFolder, IsForgottenOnceTheRunsFolderHasACheckpointAsNew) {
  const RunMark run = mark(root_ / "a");
  make_memory_folder(run);
  const auto save = [](const fs::path& folder, const char* step) {
    fs::create_directories(folder / "checkpoints" / step);
    write_file_atomically(folder / "checkpoints" / step / "manifest.json", "{}");
  };
  forget_overtaken_memory(root_ / "a");
  EXPECT_TRUE(has_memory_folder(run));  // nothing is saved
  save(memory_folder(run), "step-000012");
  save(root_ / "a", "step-000011");
  forget_overtaken_memory(root_ / "a");
  EXPECT_TRUE(has_memory_folder(run));
  save(root_ / "a", "step-000012");
  forget_overtaken_memory(root_ / "a");
  EXPECT_FALSE(has_memory_folder(run));
  forget_overtaken_memory(root_ / "a");
  forget_overtaken_memory(root_ / "none");
  EXPECT_FALSE(fs::exists(root_ / "none"));
}

TEST_F(MemoryFolder, WhatAnotherUserMayHaveMadeIsRefused) {
  const RunMark run = mark(root_ / "a");
  const auto expect_refused = [&](const std::string& why) {
    EXPECT_FALSE(has_memory_folder(run));
    try {
      make_memory_folder(run);
      ADD_FAILURE() << "made it";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
    fs::remove_all(memory_folder(run));
  };
  fs::create_directory(memory_folder(run));
  fs::permissions(memory_folder(run), fs::perms(0770));
  expect_refused("is open to other users");
  fs::create_directory_symlink(root_ / "a", memory_folder(run));
  expect_refused("is not a folder");
  if (geteuid() != 0) return;
  fs::create_directory(memory_folder(run));
  ASSERT_EQ(chown(memory_folder(run).c_str(), 65534, 65534), 0);
  expect_refused("belongs to user 65534");
}

TEST_F(MemoryFolder, OfRunsThatAreGoneIsRemovedAndNoOther) {
  const RunMark gone = mark(root_ / "gone"), replaced = mark(root_ / "replaced");
  const RunMark stays = mark(root_ / "stays"), away = mark(root_ / "mounted" / "away");
  const auto make = [](const RunMark& run) {
    make_memory_folder(run);
    sign_memory_folder(run);
  };
  for (const RunMark& run : {gone, replaced, stays, away}) make(run);
  fs::remove_all(root_ / "gone");
  fs::remove_all(root_ / "replaced");
  mark(root_ / "replaced");
  fs::rename(root_ / "mounted", root_ / "unmounted");  // at once: other tests remove stale ones too
  make(mark(root_ / "new"));
  EXPECT_FALSE(has_memory_folder(gone));
  EXPECT_FALSE(has_memory_folder(replaced));
  EXPECT_TRUE(has_memory_folder(stays));
  EXPECT_TRUE(has_memory_folder(away));
}

// As of a host that was killed, while the others have gone on and ended the run.
TEST_F(MemoryFolder, OfARunThatHasGoneOnIsRemovedByTheNextUnlessItIsHeld) {
  const auto save = [](const fs::path& folder, const char* step) {
    fs::create_directories(folder / "checkpoints" / step);
    write_file_atomically(folder / "checkpoints" / step / "manifest.json", "{}");
  };
  const RunMark killed = mark(root_ / "killed"), newer = mark(root_ / "newer");
  const RunMark held = mark(root_ / "held"), next = mark(root_ / "next");
  for (const RunMark& run : {killed, newer, held}) {
    make_memory_folder(run);
    sign_memory_folder(run);
    save(memory_folder(run), "step-000005");
    save(run.folder, run.folder == newer.folder ? "step-000004" : "step-000005");
  }
  const FolderLock hold = hold_memory_folder(held);
  make_memory_folder(next);
  sign_memory_folder(next);
  EXPECT_FALSE(has_memory_folder(killed));
  EXPECT_TRUE(has_memory_folder(newer));
  EXPECT_TRUE(has_memory_folder(held));
}

TEST_F(MemoryFolder, IsThereForWhomHoldsItWhoeverRemovesOthersMeanwhile) {
  const RunMark run = mark(root_ / "run"), another = mark(root_ / "another");
  const auto saved = run.folder / "checkpoints/step-000005";
  fs::create_directories(saved);
  write_file_atomically(saved / "manifest.json", "{}");
  std::atomic<bool> is_ending = false;
  std::thread other([&] {
    const RunMark mine = mark_run(root_ / "run");
    while (!is_ending.load()) {
      {
        const FolderLock hold = hold_memory_folder(mine);
        sign_memory_folder(mine);
      }
      const FolderLock hold = hold_memory_folder(another);
      sign_memory_folder(another);  // removes that of `mine`, which has nothing newer, unless held
    }
  });
  for (int i = 0; i < 200; ++i) {
    const FolderLock hold = hold_memory_folder(run);
    EXPECT_TRUE(has_memory_folder(run));
    fs::create_directories(memory_folder(run) / "checkpoints");
  }
  is_ending.store(true);
  other.join();
}

}  // namespace
}  // namespace trireme::train
