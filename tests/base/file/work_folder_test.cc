#include "trireme/base/file/folder.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using harness::names_in;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string refusal_of(const fs::path& target) {
  return harness::message_of<ConfigError>([&] { const WorkFolder folder(target); });
}

TEST(WorkFolder, LiesBesideItsTargetAndGoesWithItsContent) {
  const harness::TemporaryFolder outer;
  {
    const WorkFolder folder(outer / "missing/name");
    EXPECT_EQ(folder.path(), outer / "missing/.name.tmp");
    write_file_atomically(folder.path() / "file", "text");
  }
  EXPECT_THAT(names_in(outer / "missing"), IsEmpty());
}

TEST(WorkFolder, IsHeldByOneAtATime) {
  const harness::TemporaryFolder outer;
  {
    const WorkFolder folder(outer / "name");
    write_file_atomically(folder.path() / "file", "text");
    EXPECT_THAT(refusal_of(outer / "name"), HasSubstr("is being written by another program"));
    EXPECT_THAT(names_in(folder.path()), ElementsAre("file"));
    EXPECT_EQ(refusal_of(outer / "other"), "");
  }
  EXPECT_EQ(refusal_of(outer / "name"), "");
}

TEST(WorkFolder, KeepsWhatAnotherLeftIfAsked) {
  const harness::TemporaryFolder outer;
  {
    WorkFolder folder(outer / "name");
    write_file_atomically(folder.path() / "file", "text");
    folder.release();
  }
  {
    WorkFolder folder(outer / "name", WorkFolder::Left::kKept);
    EXPECT_THAT(names_in(folder.path()), ElementsAre("file"));
    folder.release();
  }
  const WorkFolder folder(outer / "name");
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
}

TEST(WorkFolder, IsNotClearedThroughALink) {
  const harness::TemporaryFolder outer;
  fs::create_directory(outer / "precious");
  write_file_atomically(outer / "precious/file", "text");
  fs::create_directory_symlink(outer / "precious", outer / ".name.tmp");
  EXPECT_THAT(refusal_of(outer / "name"), HasSubstr("is a link"));
  EXPECT_EQ(read_file(outer / "precious/file"), "text");
}

// Whoever opened the folder before its holder removed it would otherwise lock a folder without a
// name, beside the holder of the next one.
TEST(WorkFolder, AFolderThatVanishesWhileItIsLockedIsNotHeld) {
  const harness::TemporaryFolder outer;
  std::atomic<int> num_holders = 0, num_held = 0, most = 0;
  const auto work = [&] {
    for (int i = 0; i < 300; ++i) {
      try {
        const WorkFolder folder(outer / "name");
        const int holders = ++num_holders;
        if (holders > most) most = holders;
        ++num_held;
        --num_holders;
      } catch (const ConfigError&) {  // another thread has it
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_GT(num_held, 0);
  EXPECT_THAT(names_in(outer.path()), IsEmpty());
}

}  // namespace
}  // namespace trireme
