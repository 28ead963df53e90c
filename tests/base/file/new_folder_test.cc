#include "trireme/base/file/folder.h"

#include <string>
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
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string error_of(const fs::path& target) {
  return harness::message_of<ConfigError>([&] { const NewFolder folder(target); });
}

TEST(NewFolder, AppearsWithItsFilesWhenItIsComplete) {
  const harness::TemporaryFolder outer;
  for (const fs::path& target : {outer / "new", outer / "inner/new/", outer / "empty"}) {
    if (target.filename() == "empty") fs::create_directory(target);
    NewFolder folder(target);
    write_file_atomically(folder.path() / "file", "text");
    EXPECT_FALSE(fs::exists(target / "file"));
    folder.commit();
    EXPECT_EQ(read_file(target / "file"), "text");
  }
  EXPECT_THAT(names_in(outer / "inner"), ElementsAre("new"));
}

TEST(NewFolder, LeavesNothingWithoutACommit) {
  const harness::TemporaryFolder outer;
  {
    const NewFolder folder(outer / "new");
    write_file_atomically(folder.path() / "file", "text");
  }
  EXPECT_THAT(names_in(outer.path()), IsEmpty());
}

TEST(NewFolder, WhatAKilledOneHasLeftIsNotInTheNext) {
  const harness::TemporaryFolder outer;
  fs::create_directories(outer / ".new.tmp/folder");
  write_file_atomically(outer / ".new.tmp/folder/file", "text");
  NewFolder folder(outer / "new");
  EXPECT_THAT(names_in(folder.path()), IsEmpty());
  folder.commit();
  EXPECT_THAT(names_in(outer.path()), ElementsAre("new"));
}

TEST(NewFolder, WhatOneHasLeftIsInTheNextThatAsksForIt) {
  const harness::TemporaryFolder outer;
  for (const bool again : {false, true}) {
    NewFolder folder(outer / "new", WorkFolder::Left::kKept);
    EXPECT_EQ(fs::exists(folder.path() / "file"), again);
    write_file_atomically(folder.path() / "file", "text");
    folder.release();
  }
  EXPECT_THAT(names_in(outer.path()), ElementsAre(".new.tmp"));
  NewFolder folder(outer / "new", WorkFolder::Left::kKept);
  folder.commit();
  EXPECT_THAT(names_in(outer.path()), ElementsAre("new"));
  EXPECT_EQ(read_file(outer / "new/file"), "text");
}

TEST(NewFolder, WhatIsThereStays) {
  const harness::TemporaryFolder outer;
  fs::create_directory(outer / "full");
  write_file_atomically(outer / "full/file", "text");
  EXPECT_THAT(error_of(outer / "full"), AllOf(HasSubstr("not empty"), HasSubstr("it holds file"),
                                              HasSubstr("choose another, or remove it")));
  EXPECT_THAT(error_of(outer / "full/file"), HasSubstr("is a file"));
  EXPECT_THAT(error_of(outer / "full/file/below"), HasSubstr("cannot make"));
  EXPECT_EQ(read_file(outer / "full/file"), "text");
}

TEST(NewFolder, TwoAtATimeForOnePlaceAreRefused) {
  const harness::TemporaryFolder outer;
  NewFolder folder(outer / "new");
  EXPECT_THAT(error_of(outer / "new"), HasSubstr("another program"));
  EXPECT_EQ(error_of(outer / "other"), "");
  write_file_atomically(folder.path() / "file", "text");
  folder.commit();
  EXPECT_THAT(names_in(outer / "new"), ElementsAre("file"));
}

TEST(NewFolder, APlaceTakenMeanwhileIsNotOverwritten) {
  const harness::TemporaryFolder outer;
  {
    NewFolder folder(outer / "new");
    write_file_atomically(folder.path() / "file", "mine");
    fs::create_directory(outer / "new");
    write_file_atomically(outer / "new/file", "theirs");
    EXPECT_THROW(folder.commit(), ConfigError);
  }
  EXPECT_EQ(read_file(outer / "new/file"), "theirs");
  EXPECT_THAT(names_in(outer.path()), ElementsAre("new"));
}

}  // namespace
}  // namespace trireme
