#include "trireme/train/metrics/logged_step.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/train/metrics/metrics.h"

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

TEST(LoggedStep, OfAFileThoseThatCountComeInOrder) {
  const harness::TemporaryFolder folder;
  std::string seen;
  const auto see = [&](const LoggedStep& step) {
    seen += concat(step.step, ":", value_in(step, "loss"), " ");
    EXPECT_TRUE(std::isnan(value_in(step, "none")));
  };
  for_each_step(folder.path(), see);
  EXPECT_EQ(seen, "");
  OutputFile(folder / kMetricsName)
      .write(
          "{\"step\": 1, \"loss\": 3, \"epoch\": 1}\nrubbish\n"
          "{\"step\": 2, \"loss\": 9, \"epoch\": 1}\n"
          "{\"step\": 2, \"loss\": 2, \"epoch\": 2}\n{\"step\": 3, \"lo");
  for_each_step(folder.path(), see);
  EXPECT_EQ(seen, "1:3 2:2 ");
}

}  // namespace
}  // namespace trireme::train
