#include "trireme/launch/journal/event.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/launch/journal/morning.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

TEST(Event, ReadsBackWhatItWrites) {
  for (const auto& [name, kind] : kEventKinds) {
    const Event event{.time = kMorning + 5us,
                      .kind = kind,
                      .epoch = 2,
                      .step = 50,
                      .host = "b",
                      .rank = 3,
                      .seconds = 1.25,
                      .cause = "killed",
                      .text = "rank 3 was \"killed\""};
    const std::string line = to_json_line(event);
    EXPECT_TRUE(line.ends_with("}\n"));
    EXPECT_EQ(nlohmann::json::parse(line)["event"], name);
    const Event again = parse_event(line.substr(0, line.size() - 1), "events");
    EXPECT_EQ(again.time, event.time);
    EXPECT_EQ(again.kind, kind);
    EXPECT_EQ(again.epoch, 2);
    EXPECT_EQ(again.step, 50);
    EXPECT_EQ(again.host, "b");
    EXPECT_EQ(again.rank, 3);
    EXPECT_EQ(again.seconds, 1.25);
    EXPECT_EQ(again.cause, "killed");
    EXPECT_EQ(again.text, event.text);
  }
}

TEST(Event, LeavesOutWhatHasNoMeaning) {
  EXPECT_EQ(to_json_line({.time = kMorning, .kind = EventKind::kStart, .epoch = 1}),
            "{\"time\":\"2026-11-25T07:00:00.000000Z\",\"event\":\"start\",\"epoch\":1}\n");
  const Event event = parse_event(R"({"time":"2026-11-25T07:00:00Z","event":"start"})", "events");
  EXPECT_EQ(event.step, -1);
  EXPECT_EQ(event.rank, -1);
  EXPECT_EQ(event.seconds, 0);
  EXPECT_EQ(event.host, "");
}

TEST(Event, StaysOneShortLineOfAsciiWhateverTheText) {
  Event event{
      .time = kMorning, .host = std::string(10'000, 'h'), .cause = std::string("\n\x1b\0", 3)};
  event.text = std::string(100'000, '\xff');
  const std::string line = to_json_line(event);
  EXPECT_LT(line.size(), kMaxEventBytes);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  for (const char c : line.substr(0, line.size() - 1)) ASSERT_TRUE(c >= ' ' && c <= '~');
  EXPECT_NO_THROW(parse_event(line, "events"));
}

TEST(Event, SkipsUnknownKeys) {
  const Event event = parse_event(
      R"({"time":"2026-11-25T07:00:00Z","event":"end","new":{"a":[1,2]},"epoch":7})", "events");
  EXPECT_EQ(event.epoch, 7);
}

TEST(Event, KnowsAtAGlanceWhatIsNone) {
  const std::string line = to_json_line({.time = kMorning});
  EXPECT_TRUE(may_be_event(line.substr(0, line.size() - 1)));
  for (const char* other : {"", "{", "{}", "text", "{\"event\"", "[\"event\"]"}) {
    EXPECT_FALSE(may_be_event(other)) << other;
  }
}

TEST(Event, RefusesWhatIsNoEvent) {
  const std::string time = R"("time":"2026-11-25T07:00:00Z")";
  for (const std::string& line :
       {std::string(), std::string("{"), std::string("[]"), std::string("7"), "{" + time + "}",
        std::string(R"({"event":"end"})"), "{" + time + R"(,"event":"unheard of"})",
        std::string(R"({"time":"now","event":"end"})"), "{" + time + R"(,"event":"end","step":-2})",
        "{" + time + R"(,"event":"end","rank":1e9})",
        "{" + time + R"(,"event":"end","seconds":-1})", "{" + time + R"(,"event":"end","text":7})",
        "{" + time + R"(,"event":"end","host":")" + std::string(9999, 'h') + "\"}",
        "{" + time + R"(,"event":"end","x":)" + std::string(50, '[') + std::string(50, ']') +
            "}"}) {
    EXPECT_THROW(parse_event(line, "events"), ConfigError) << line.substr(0, 100);
  }
}

}  // namespace
}  // namespace trireme::launch
