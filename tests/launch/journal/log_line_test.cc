#include "trireme/launch/journal/log_line.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/launch/journal/morning.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

TEST(LogLine, ReadsBackWhatItWrites) {
  for (const auto& [name, stream] : kLogStreams) {
    for (const int64_t step : {int64_t{-1}, int64_t{0}, int64_t{123456}}) {
      for (const std::string& text :
           {std::string(), std::string("boom"), std::string("| x\0\xff\x1b y", 10)}) {
        const std::string line = to_text({kMorning + 1us, 2, step, stream, text});
        ASSERT_TRUE(line.ends_with('\n'));
        const auto again = parse_log_line(line.substr(0, line.size() - 1));
        ASSERT_TRUE(again.has_value()) << line;
        EXPECT_EQ(again->time, kMorning + 1us);
        EXPECT_EQ(again->epoch, 2);
        EXPECT_EQ(again->step, step);
        EXPECT_EQ(again->stream, stream);
        EXPECT_EQ(again->text, text);
      }
    }
  }
  EXPECT_EQ(to_text({kMorning, 2, 50, LogStream::kErr, "boom"}),
            "2026-11-25T07:00:00.000000Z 2 50 err| boom\n");
}

TEST(LogLine, StaysOneLine) {
  EXPECT_TRUE(to_text({kMorning, 1, 1, LogStream::kOut, "a\nb\rc"}).ends_with("out| a b c\n"));
}

TEST(LogLine, RefusesOtherLines) {
  for (const char* line :
       {"", "text", "2026-11-25T07:00:00.000000Z", "2026-11-25T07:00:00.000000Z 1 2 out",
        "2026-11-25T07:00:00.000000Z 1 2 other| x", "2026-11-25T07:00:00.000000Z -1 2 out| x",
        "2026-11-25T07:00:00.000000Z 1 -2 out| x", "2026-11-25T07:00:00.000000Z 1 x out| x",
        "2026-11-25T07:00:00.000000Z 99999999999999999999 2 out| x", "now 1 2 out| x",
        "2026-11-25T07:00:00.000000Z  1 2 out| x"}) {
    EXPECT_FALSE(parse_log_line(line).has_value()) << line;
  }
}

TEST(LogLine, NamesFilesAfterRanksAndHosts) {
  EXPECT_EQ(rank_log_name(3), "rank-00003.log");
  EXPECT_EQ(rank_of_log("rank-00003.log"), 3);
  for (const char* name : {"rank-3.log", "rank-.log", "rank-00003", "rank-000x3.log", "agent-b.log",
                           "rank-99999.log", "rank--0001.log", ""}) {
    EXPECT_EQ(rank_of_log(name), std::nullopt) << name;
  }
  EXPECT_EQ(agent_log_name("node-7.example"), "agent-node-7.example.log");
  EXPECT_EQ(agent_log_name("../a b\n\x1b"), "agent-.._a_b__.log");
  EXPECT_EQ(agent_log_name(""), "agent-_.log");
  EXPECT_LE(agent_log_name(std::string(5000, 'h')).size(), 255u);
  EXPECT_EQ(host_of_log("agent-node-7.log"), "node-7");
  EXPECT_EQ(host_of_log("agent-\x1b[2J.log"), std::nullopt);
  EXPECT_EQ(host_of_log("rank-00003.log"), std::nullopt);
}

}  // namespace
}  // namespace trireme::launch
