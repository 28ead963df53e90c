#include "trireme/base/file/atomic_file.h"

#include <algorithm>
#include <filesystem>
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

TEST(AtomicFile, TwoAtATimeForOneNameDoNotMix) {
  const TemporaryFolder folder;
  AtomicFile first(folder / "a"), second(folder / "a");
  first.write("the first's ");
  second.write("the second's");
  first.write("text");
  EXPECT_NE(first.temporary(), second.temporary());
  second.commit();
  EXPECT_EQ(read_file(folder / "a"), "the second's");
  first.commit();
  EXPECT_EQ(read_file(folder / "a"), "the first's text");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
}

TEST(AtomicFile, RemovesWhatAKilledOneHasLeftAndNothingElse) {
  const TemporaryFolder folder;
  for (const char* left : {".a.01234567.tmp", ".a.fedcba98.tmp"}) {
    write_file_atomically(folder / left, "half");
  }
  const std::vector<std::string> others = {".a.0123456.tmp", ".a.01234567.tmp2", ".a.x1234567.tmp",
                                           ".b.01234567.tmp", "a.01234567.tmp"};
  for (const std::string& other : others) write_file_atomically(folder / other, "another's");
  const AtomicFile living(folder / "a");
  write_file_atomically(folder / "a", "whole");
  std::vector<std::string> expected = others;
  expected.insert(expected.end(), {"a", living.temporary().filename().string()});
  std::ranges::sort(expected);
  EXPECT_EQ(names_in(folder.path()), expected);
}

TEST(AtomicFile, NeverWritesOrRemovesThroughALink) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "precious", "text");
  std::filesystem::create_symlink(folder / "precious", folder / ".a.01234567.tmp");
  std::filesystem::create_symlink(folder / "precious", folder / "a.tmp");
  write_file_atomically(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "precious"), "text");
  EXPECT_EQ(read_file(folder / "a"), "new");
}

TEST(AtomicFile, GoesOnWithWhatAnotherWroteAndStaysUntilItIsComplete) {
  const TemporaryFolder folder;
  {
    AtomicFile first(folder / "a", {folder / "place"});
    first.write("one two");
    first.sync();
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"place"});
  EXPECT_EQ(harness::message_of<Error>([&] {
              AtomicFile{folder / "a", {folder / "place", 8}};
            }),
            "cannot go on with " + (folder.path() / "place").string() +
                ": it has 7 bytes; expected at least 8");
  AtomicFile next(folder / "a", {folder / "place", 4});
  next.write("three");
  next.commit();
  EXPECT_EQ(read_file(folder / "a"), "one three");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"a"});
  EXPECT_THROW(AtomicFile(folder / "a", {folder / "nothing", 1}), Error);
}

TEST(AtomicFile, DoesNotReplaceAFolder) {
  const TemporaryFolder folder;
  EXPECT_EQ(harness::message_of<Error>([&] { AtomicFile{folder.path()}; }),
            "cannot write " + folder.path().string() + ": Is a directory");
}

}  // namespace
}  // namespace trireme
