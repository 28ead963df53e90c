#include "trireme/spmd/operator_table.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "trireme/spmd/dispatch.h"

namespace trireme::spmd {
namespace {

// tools/operators_page.py sets TRIREME_OPERATORS_PAGE to have the page written there.
TEST(OperatorTable, IsThePageOfTheReference) {
  const std::filesystem::path path =
      std::filesystem::path(TRIREME_SOURCE_DIR) / "docs/reference/operators.md";
  if (const char* written = std::getenv("TRIREME_OPERATORS_PAGE"))
    std::ofstream(written) << operator_page();
  std::ifstream file(path);
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), operator_page()) << "run tools/operators_page.py";
}

TEST(OperatorTable, SaysOfEachRuleWhatMayBeSplit) {
  for (const Rule& rule : all_rules()) EXPECT_STRNE(rule.splits, "") << rule.name;
  EXPECT_NE(operator_page().find("`native_batch_norm`"), std::string::npos);
}

}  // namespace
}  // namespace trireme::spmd
