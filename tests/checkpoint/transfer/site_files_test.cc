#include "trireme/checkpoint/transfer/site_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/hosts.h"

namespace trireme::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Manifest with_files() { return {.step = 3, .files = {{"a", 5, ""}, {"b", 2, ""}, {"c", 9, ""}}}; }

TEST(SiteFiles, PresentAreThoseOfTheRightSize) {
  const harness::TemporaryFolder folder;
  overwrite(folder / "a", "12345");
  overwrite(folder / "b", "123");
  overwrite(folder / "d", "1");
  EXPECT_THAT(present_files(with_files(), folder.path()), ElementsAre("a"));
}

TEST(SiteFiles, NamesSurviveTheirText) {
  const FileNames names{"a", "with \"quotes\"", ""};
  EXPECT_EQ(parse_names(to_text(names)), names);
}

TEST(SiteFiles, ATransferComesFromTheFirstSiteThatHasTheFile) {
  const std::vector<FileNames> present{{"a"}, {"b", "c"}, {"c"}};
  const auto plan = plan_transfers(with_files(), {{"a", "c"}, {"b"}, {"a"}}, present);
  ASSERT_EQ(plan.size(), 2);
  EXPECT_EQ(plan[0].file, "c");
  EXPECT_EQ(plan[0].num_bytes, 9);
  EXPECT_EQ(std::pair(plan[0].from, plan[0].to), std::pair(1, 0));
  EXPECT_EQ(plan[1].file, "a");
  EXPECT_EQ(std::pair(plan[1].from, plan[1].to), std::pair(0, 2));
  EXPECT_THAT(plan_transfers(with_files(), present, present), IsEmpty());
}

TEST(SiteFiles, AFileThatNoSiteHasIsAnError) {
  const std::string message = checkpoint_error([] {
    plan_transfers(with_files(), {{"a"}, {"b"}}, {{"a"}, {}});
  });
  EXPECT_THAT(message, HasSubstr("the file b of the checkpoint of step 3"));
}

}  // namespace
}  // namespace trireme::checkpoint
