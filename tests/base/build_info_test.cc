#include "trireme/base/build_info.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(BuildInfo, HasAVersionAndARevisionOfGit) {
  const std::string version(build_version());
  EXPECT_EQ(std::ranges::count(version, '.'), 2) << version;
  EXPECT_EQ(version.find_first_not_of("0123456789."), version.npos) << version;
  std::string revision(build_revision());
  if (revision.empty()) return;  // of sources without git
  if (revision.ends_with("-dirty")) revision.resize(revision.size() - 6);
  EXPECT_GE(revision.size(), 12U);
  EXPECT_EQ(revision.find_first_not_of("0123456789abcdef"), revision.npos) << revision;
}

}  // namespace
}  // namespace trireme
