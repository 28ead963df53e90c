#include "trireme/base/file/folder.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::filesystem::path& folder,
                    std::chrono::milliseconds patience = std::chrono::milliseconds(0)) {
  return harness::message_of<ConfigError>([&] { const FolderLock lock(folder, patience); });
}

TEST(FolderLock, KeepsOthersOutWhileItLives) {
  const harness::TemporaryFolder folder;
  {
    const FolderLock lock(folder.path());
    EXPECT_THAT(refusal(folder.path()), HasSubstr("another program"));
    EXPECT_THAT(refusal(folder.path(), std::chrono::milliseconds(50)),
                HasSubstr(folder.path().string()));
  }
  EXPECT_EQ(refusal(folder.path()), "");
}

TEST(FolderLock, SharedOnesKeepOutWhoWantsToBeAlone) {
  const harness::TemporaryFolder folder;
  const auto share = [&] {
    return FolderLock(folder.path(), std::chrono::milliseconds(0), FolderLock::Kind::kShared);
  };
  {
    const FolderLock one = share(), other = share();
    EXPECT_THAT(refusal(folder.path()), HasSubstr("another program"));
  }
  const FolderLock alone(folder.path());
  EXPECT_NE(harness::message_of<ConfigError>([&] { share(); }), "");
}

TEST(FolderLock, WaitsForOneThatIsKilled) {
  const harness::TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FolderLock lock(folder.path());
    [[maybe_unused]] const ssize_t written = write(ready[1], "!", 1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_NE(refusal(folder.path()), "");
  kill(child, SIGKILL);
  EXPECT_EQ(refusal(folder.path(), std::chrono::minutes(1)), "");
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(FolderLock, NamesAFolderThatIsNone) {
  const harness::TemporaryFolder folder;
  EXPECT_THAT(refusal(folder / "none"), HasSubstr("cannot open"));
}

TEST(FolderLock, KnowsWhereItsFolderIs) {
  namespace fs = std::filesystem;
  const harness::TemporaryFolder folder;
  const fs::path run = folder / "run", moved = folder / "moved";
  fs::create_directory(run);
  const FolderLock lock(run);
  EXPECT_TRUE(lock.is_in_place());
  fs::rename(run, moved);
  EXPECT_FALSE(lock.is_in_place());
  EXPECT_EQ(lock.place(), fs::canonical(moved));
  fs::create_directory(run);  // another one
  EXPECT_FALSE(lock.is_in_place());
  fs::remove(run);
  fs::rename(moved, run);
  EXPECT_TRUE(lock.is_in_place());
  fs::remove(run);
  EXPECT_FALSE(lock.is_in_place());
  EXPECT_EQ(lock.place(), fs::path());
}

}  // namespace
}  // namespace trireme
