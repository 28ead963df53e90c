#include "trireme/train/tracking/logged_step.h"

#include <cmath>

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(LoggedStep, HasTheNumbersOfALine) {
  const auto logged = parse_logged_step(
      R"({"step": 7, "loss": 2.5, "skipped": true, "unit": "tokens", "expert_tokens/0": [3, 4],)"
      R"( "epoch": 2, "time": 1764480000.125})");
  ASSERT_TRUE(logged);
  EXPECT_EQ(logged->step, 7);
  EXPECT_EQ(logged->time, 1764480000.125);
  EXPECT_EQ(logged->values, (std::vector<LoggedValue>{{"loss", 2.5},
                                                      {"skipped", 1},
                                                      {"expert_tokens/0/0", 3},
                                                      {"expert_tokens/0/1", 4},
                                                      {"epoch", 2}}));
}

TEST(LoggedStep, KeepsAllBitsAndKnowsNoNumber) {
  const auto logged =
      parse_logged_step(R"({"step": 1, "loss": 0.10000000000000001, "norm": null})");
  ASSERT_TRUE(logged);
  EXPECT_EQ(logged->values[0].value, 0.1);
  EXPECT_TRUE(std::isnan(logged->values[1].value));
  EXPECT_EQ(logged->time, 0);
}

TEST(LoggedStep, IsNoneWhereTheLineIsNot) {
  for (const char* line : {"", "{", "[1]", "{\"loss\": 1}", "{\"step\": -1}", "{\"step\": 1.5}",
                           "{\"step\": 1, \"step\": 2}", "{\"step\": \"1\"}", "\xff"})
    EXPECT_FALSE(parse_logged_step(line)) << line;
  const std::string deep =
      "{\"step\": 1, \"a\": " + std::string(100, '[') + std::string(100, ']') + "}";
  EXPECT_FALSE(parse_logged_step(deep));
}

}  // namespace
}  // namespace trireme::train
