#include "trireme/launch/process/rank_environment.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

TEST(MeetingFile, IsMadeByItsUsersAndRemovedWithTheObject) {
  std::string path;
  {
    const MeetingFile file("a-test-of-meeting-files");
    ASSERT_TRUE(file.store().starts_with("file:/"));
    path = file.store().substr(5);
    EXPECT_TRUE(path.ends_with("/trireme-a-test-of-meeting-files.store"));
    EXPECT_FALSE(std::filesystem::exists(path));
    std::ofstream made(path);
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  const MeetingFile unused("another-test-of-meeting-files");  // nothing to remove
}

}  // namespace
}  // namespace trireme::launch
