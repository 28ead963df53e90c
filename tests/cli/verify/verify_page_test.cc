#include "trireme/cli/verify/verify_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cli/verify/compared.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"
#include "trireme/cli/verify/page_files.h"

namespace trireme::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

nlohmann::json data_of(const std::string& page) {
  const std::string begin = "id=\"trireme-data\">";
  const size_t at = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at)).at("comparison");
}

TEST(VerifyPage, HasTheComparisonAndNoTextOfItIsATag) {
  const std::string page = verify_page(compared(), {.a = "a.toml, 1 rank", .b = "<b>"});
  const nlohmann::json data = data_of(page);
  EXPECT_EQ(data.at("a"), "a.toml, 1 rank");
  EXPECT_EQ(data.at("b"), "<b>");
  EXPECT_EQ(data.at("finding"), "bug");
  EXPECT_EQ(data.at("first").at("name"), "head.weight</script>");
  EXPECT_EQ(data.at("left_out_of_page"), 0);
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
}

TEST(VerifyPage, AllowsItsOwnStylesAndScriptsAlone) {
  const std::string page = verify_page(compared(), {});
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'; script-src 'sha256-"));
  for (const char* request : {"http://", "https://", "src=\"", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(request)));
  }
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
}

TEST(VerifyPage, IsMadeOfItsFiles) {
  std::vector<std::string_view> names;
  for (const watch::Asset& asset : verify_files::assets()) names.push_back(asset.name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("index.html", "verify.css", "verify.js"));
}

TEST(VerifyPage, ManyProbesStayBelowFiveMegabytes) {
  verify::Comparison comparison = compared();
  const verify::Probe rounding = comparison.probes[0], bug = comparison.probes[1];
  comparison.probes.assign(30'000, rounding);
  comparison.probes.push_back(bug);
  const std::string page = verify_page(comparison, {});
  EXPECT_LT(page.size(), 5'000'000U);
  EXPECT_EQ(data_of(page).at("left_out_of_page"), 30'001 - 12'000 + 1);
  EXPECT_EQ(data_of(page).at("probes")[0].at("finding"), "bug");
  EXPECT_EQ(data_of(page).at("first").at("name"), "head.weight</script>");
}

TEST(VerifyPage, IsWrittenWhole) {
  const harness::TemporaryFolder folder;
  write_verify_page(compared(), {}, folder.path() / "page.html");
  EXPECT_EQ(read_file(folder.path() / "page.html"), verify_page(compared(), {}));
}

}  // namespace
}  // namespace trireme::cli
