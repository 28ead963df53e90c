#include "trireme/tasks/export/foreign_keys.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::tasks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr FixedKey kFixed[] = {{"bias", "true"}, {"act", R"("relu")"}};
constexpr std::string_view kTaken[] = {"width"};

void check(const nlohmann::json& root) {
  const std::string source = "config.json";
  check_foreign_keys(JsonView(root, source), kFixed, kTaken,
                     [](std::string_view name) { return name == "note"; });
}

std::string refusal(const nlohmann::json& root) {
  return harness::message_of<ConfigError>([&] { check(root); });
}

TEST(ForeignKeys, AKeyIsReadFixedOrHarmless) {
  check({{"width", 3}, {"bias", true}, {"act", nullptr}, {"note", {1, 2}}});
  EXPECT_THAT(refusal({{"bias", false}}),
              AllOf(HasSubstr("config.json: bias is false"), HasSubstr("expected true")));
  EXPECT_THAT(refusal({{"act", "gelu"}}), HasSubstr("\"relu\": nothing else is computed here"));
  EXPECT_THAT(refusal({{"groups", 32}}),
              AllOf(HasSubstr("groups is 32"), HasSubstr("remove it if it does not")));
  EXPECT_THAT(refusal(nlohmann::json::array()), HasSubstr("config.json"));
}

TEST(ForeignKeys, NullIsNotGiven) {
  const nlohmann::json root = {{"a", nullptr}, {"b", 2}};
  const std::string source = "config.json";
  const JsonView view(root, source);
  EXPECT_FALSE(given(view, "a"));
  EXPECT_FALSE(given(view, "c"));
  EXPECT_EQ(given(view, "b")->integer(0), 2);
}

}  // namespace
}  // namespace trireme::tasks
