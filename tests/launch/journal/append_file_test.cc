#include "trireme/launch/journal/line_file.h"

#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"

namespace trireme::launch {
namespace {

class AppendFiles : public ::testing::Test {
 protected:
  void put(const std::string& text) const { OutputFile(folder_ / "log").write(text); }
  std::string content(const std::string& name = "log") const { return read_file(folder_ / name); }

  harness::TemporaryFolder folder_;
};

TEST_F(AppendFiles, AppendsToWhatIsThere) {
  put("a\n");
  AppendFile file(folder_ / "log");
  EXPECT_TRUE(file.append("b\n"));
  EXPECT_TRUE(AppendFile(folder_ / "log").append("c\n"));
  EXPECT_TRUE(file.append("d\n"));
  EXPECT_EQ(content(), "a\nb\nc\nd\n");
}

TEST_F(AppendFiles, ClosesALineThatAKilledWriterLeft) {
  put("a\nhal");
  AppendFile file(folder_ / "log");
  EXPECT_TRUE(file.append("b\n"));
  EXPECT_TRUE(file.append("c\n"));
  EXPECT_EQ(content(), "a\nhal\nb\nc\n");
}

TEST_F(AppendFiles, MakesItsFolder) {
  AppendFile file(folder_ / "x" / "y" / "log");
  EXPECT_TRUE(file.append("a\n"));
  EXPECT_EQ(read_file(folder_ / "x/y/log"), "a\n");
}

TEST_F(AppendFiles, GoesOnAfterAnOutageAndCountsWhatItLost) {
  AppendFile file(folder_ / "log");
  EXPECT_TRUE(file.append("0123456789\n"));
  {
    const harness::FileSizeLimit limit(16);
    EXPECT_FALSE(file.append("abcdefghij\n"));  // five bytes of it fit
    EXPECT_FALSE(file.append("lost\n"));
  }
  EXPECT_EQ(file.num_lost(), 2);
  const std::string problem = file.take_problem();
  EXPECT_NE(problem.find((folder_ / "log").string()), std::string::npos) << problem;
  EXPECT_EQ(file.take_problem(), "");
  EXPECT_TRUE(file.append("back\n"));
  EXPECT_EQ(file.take_lost(), 2);
  EXPECT_EQ(file.num_lost(), 0);
  EXPECT_EQ(content(), "0123456789\nabcde\nback\n");
}

TEST_F(AppendFiles, ReportsEachOutageOnce) {
  AppendFile file(folder_ / "log");
  for (int outage = 0; outage < 2; ++outage) {
    EXPECT_TRUE(file.append("ok\n"));
    const harness::FileSizeLimit limit(4);
    for (int i = 0; i < 3; ++i) {
      EXPECT_FALSE(file.append("lost\n"));
      EXPECT_EQ(file.take_problem().empty(), i > 0);
    }
  }
}

TEST_F(AppendFiles, NeverThrowsWhereNothingCanBeWritten) {
  put("a file in the place of a folder");
  AppendFile file(folder_ / "log" / "log");
  EXPECT_FALSE(file.append("a\n"));
  EXPECT_EQ(file.num_lost(), 1);
  EXPECT_FALSE(file.take_problem().empty());
}

TEST_F(AppendFiles, SayWhyThereIsNoFolder) {
  AppendFile file("/sys/trireme-test/log");  // where nobody makes folders
  EXPECT_FALSE(file.append("a\n"));
  EXPECT_EQ(file.take_problem().find("No such file"), std::string::npos);
}

TEST_F(AppendFiles, FollowsNoLinkAndWaitsForNoPipe) {
  std::filesystem::create_symlink(folder_ / "elsewhere", folder_ / "link");
  EXPECT_FALSE(AppendFile(folder_ / "link").append("a\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "elsewhere"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(AppendFile(folder_ / "pipe").append("a\n"));
}

TEST_F(AppendFiles, BeginsAnewWhenSomebodyHasRemovedIt) {
  AppendFile file(folder_ / "x" / "log");
  EXPECT_TRUE(file.append("a\n"));
  EXPECT_FALSE(file.take_removed());
  std::filesystem::remove_all(folder_ / "x");
  EXPECT_TRUE(file.append("b\n"));
  EXPECT_EQ(content("x/log"), "b\n");
  EXPECT_TRUE(file.take_removed());
  EXPECT_FALSE(file.take_removed());
  std::filesystem::rename(folder_ / "x", folder_ / "y");  // moved, and found where it is now
  EXPECT_TRUE(file.append("c\n"));
  EXPECT_EQ(content("y/log"), "b\nc\n");
}

TEST_F(AppendFiles, RotatesOverTheOlderFile) {
  AppendFile file(folder_ / "log");
  for (const char* line : {"a\n", "b\n", "c\n"}) {
    EXPECT_TRUE(file.append(line));
    EXPECT_EQ(file.num_bytes(), 2u);
    file.rotate();
  }
  EXPECT_TRUE(file.append("d\n"));
  EXPECT_EQ(content("log.1"), "c\n");
  EXPECT_EQ(content(), "d\n");
  EXPECT_EQ(harness::names_in(folder_.path()).size(), 2u);
}

}  // namespace
}  // namespace trireme::launch
