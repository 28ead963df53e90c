#include "trireme/launch/inject/performer.h"

#include <filesystem>
#include <fstream>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/launch/inject/own_namespaces.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using ::testing::HasSubstr;

bool can_write(const std::filesystem::path& path) {
  std::ofstream file(path);
  file << std::string(100'000, 'x') << std::flush;
  return file.good();
}

TEST(DiskFill, TakesAllSpaceAndGivesItBack) {
  const harness::TemporaryFolder folder;
  in_own_namespaces([&] {
    const std::filesystem::path disk = folder.path();
    ASSERT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1m"), 0);
    EXPECT_TRUE(can_write(disk / "before"));
    {
      const DiskFill fill(disk, int64_t{1} << 30);
      EXPECT_GT(fill.num_bytes(), 800'000);
      EXPECT_FALSE(can_write(disk / "meanwhile"));
      EXPECT_EQ(std::filesystem::space(disk).available, 0u);
      EXPECT_EQ(harness::names_in(disk), (std::vector<std::string>{"before", "meanwhile"}));
    }
    EXPECT_TRUE(can_write(disk / "after"));
  });
}

TEST(DiskFill, RefusesALargeDiskAndAMissingFolder) {
  const harness::TemporaryFolder folder;
  const auto error_of = [](const std::filesystem::path& path) -> std::string {
    try {
      const DiskFill fill(path, 1);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(error_of(folder.path()), HasSubstr("expected at most 1; put the run on a small"));
  EXPECT_THAT(error_of(folder / "missing"), HasSubstr("No such file"));
  EXPECT_TRUE(harness::names_in(folder.path()).empty());
}

}  // namespace
}  // namespace trireme::launch
