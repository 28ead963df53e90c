#include "trireme/launch/journal/time_text.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/launch/journal/morning.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

const WallTime kBreakfast = kMorning + 12min;

TEST(TimeText, ReadsBackWhatItWrites) {
  for (const WallTime time :
       {kBreakfast, kBreakfast + 1us, kBreakfast + 999999us, WallTime(), WallTime(-1us),
        WallTime(std::chrono::sys_days(std::chrono::year(2024) / 2 / 29))}) {
    const std::string text = to_text(time);
    EXPECT_EQ(text.size(), 27u) << text;
    ASSERT_TRUE(parse_time(text).has_value()) << text;
    EXPECT_EQ(*parse_time(text), time) << text;
  }
  EXPECT_EQ(to_text(kBreakfast + 123456us), "2026-11-25T07:12:00.123456Z");
}

TEST(TimeText, TakesFractionsOfAnyLength) {
  EXPECT_EQ(parse_time("2026-11-25T07:12:00Z"), kBreakfast);
  EXPECT_EQ(parse_time("2026-11-25T07:12:00.5Z"), kBreakfast + 500ms);
  EXPECT_EQ(parse_time("2026-11-25T07:12:00.123Z"), kBreakfast + 123ms);
  EXPECT_EQ(parse_time("2026-11-25T07:12:00.123456789Z"), kBreakfast + 123456us);
}

TEST(TimeText, RefusesWhatIsNoTime) {
  for (const char* text :
       {"", "Z", "2026", "2026-11-25", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z",
        "2026-11-25T24:00:00Z", "2026-11-25T07:60:00Z", "2026-11-25T07:12:00.Z",
        "2026-11-25T07:12:00.1234567890Z", "2026-11-25T07:12:00", "2026-11-25T07:12:00Zx",
        "2026-11-25 07:12:00Z", "-026-11-25T07:12:00Z", "9999-11-25T07:12:00Z",
        "0000-11-25T07:12:00Z", "2026-1a-25T07:12:00Z"}) {
    EXPECT_EQ(parse_time(text), std::nullopt) << text;
  }
}

TEST(TimeText, SinceTakesDurationsAndTimes) {
  const auto since = [](std::string_view text) { return parse_since(text, "--since", kBreakfast); };
  EXPECT_EQ(since("90s"), kBreakfast - 90s);
  EXPECT_EQ(since("10m"), kBreakfast - 10min);
  EXPECT_EQ(since("1.5h"), kBreakfast - 90min);
  EXPECT_EQ(since("3d"), kBreakfast - 72h);
  EXPECT_EQ(since("2026-11-25"), kBreakfast - 7h - 12min);
  EXPECT_EQ(since("2026-11-25T07:12"), kBreakfast);
  EXPECT_EQ(since("2026-11-25 07:12:30"), kBreakfast + 30s);
  EXPECT_EQ(since("2026-11-25T07:12:30.25Z"), kBreakfast + 30s + 250ms);
}

TEST(TimeText, SinceNamesTheOptionAndWhatItExpects) {
  for (const char* text : {"", "10", "m", ".m", "1..5h", "-5m", "1e9d", "99999999999s", "yesterday",
                           "2026-11-31", "10 m", "\x1b[2J"}) {
    try {
      parse_since(text, "--since", kBreakfast);
      ADD_FAILURE() << text;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find("--since is \""), 0u);
      EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace trireme::launch
