#include "trireme/launch/journal/log_splitter.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/launch/journal/morning.h"

namespace trireme::launch {
namespace {

std::string text_of(const std::vector<LogLine>& lines) {
  std::string text;
  for (const LogLine& line : lines) text += to_text(line);
  return text;
}

const std::string kTime = "2026-11-25T07:00:00.000000Z";

TEST(LogSplitter, KeepsEachStreamsLinesWhole) {
  LogSplitter log;
  EXPECT_EQ(text_of(log.add(LogStream::kOut, 1, 5, "one\ntw", kMorning)),
            kTime + " 1 5 out| one\n");
  EXPECT_EQ(text_of(log.add(LogStream::kErr, 1, 5, "err", kMorning)), "");
  EXPECT_EQ(text_of(log.add(LogStream::kOut, 1, 6, "o\n", kMorning)), kTime + " 1 6 out| two\n");
  EXPECT_EQ(text_of(log.finish(1, 7, kMorning)), kTime + " 1 7 err| err\n");
}

TEST(LogSplitter, CutsLongLines) {
  LogSplitter log(100);
  EXPECT_EQ(log.add(LogStream::kOut, 1, 1, std::string(250, 'x') + "\n", kMorning).size(), 3u);
}

}  // namespace
}  // namespace trireme::launch
