#include "trireme/base/file/atomic_file.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

using harness::names_in;
using harness::TemporaryFolder;

TEST(AtomicFile, ReplacesTheOldOneWhenItIsComplete) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  {
    AtomicFile dropped(folder / "a");
    dropped.write("half");
  }
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
  AtomicFile file(folder / "a");
  file.write("the ");
  file.write("new");
  EXPECT_EQ(read_file(folder / "a"), "old");
  file.commit();
  EXPECT_EQ(read_file(folder / "a"), "the new");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
}

// Another process may write the next one by then.
TEST(AtomicFile, LeavesTheTemporaryNameAloneAfterItsCommit) {
  const TemporaryFolder folder;
  {
    AtomicFile file(folder / "a");
    file.commit();
    write_file_atomically(folder / "a.tmp", "another's");
  }
  EXPECT_EQ(read_file(folder / "a.tmp"), "another's");
}

TEST(AtomicFile, DoesNotReplaceAFolder) {
  const TemporaryFolder folder;
  EXPECT_EQ(harness::message_of<Error>([&] { AtomicFile{folder.path()}; }),
            "cannot write " + folder.path().string() + ": Is a directory");
}

}  // namespace
}  // namespace trireme
