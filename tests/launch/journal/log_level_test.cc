#include "trireme/launch/journal/log_line.h"

#include <string>

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

LogLevel level_of(LogStream stream, std::string_view text) {
  return LogLevels().next(stream, text);
}

TEST(LogLevel, KnowsErrorsByTheirWords) {
  for (const char* text :
       {"trireme: train.steps is -1; expected 1", "Traceback (most recent call last):",
        "RuntimeError: boom", "terminate called after throwing an instance of 'std::bad_alloc'",
        "  what():  std::bad_alloc", "Segmentation fault (core dumped)", "2026 ERROR disk",
        "ERROR: x", "[E1125 07:12:01.12 socket.cpp:1] closed", "F1125 07:12:01 x", "error: no file",
        "x.py: error: the following arguments are required: --y", "Fatal Python error: Aborted"}) {
    EXPECT_EQ(level_of(LogStream::kErr, text), LogLevel::kError) << text;
  }
}

TEST(LogLevel, KnowsWarningsByTheirWords) {
  for (const char* text : {"WARNING: low memory", "x.py:3: UserWarning: deprecated", "WARN slow",
                           "[W1125 07:12:01.12 socket.cpp:1] retry", "gcc: warning: unused"}) {
    EXPECT_EQ(level_of(LogStream::kErr, text), LogLevel::kWarning) << text;
  }
}

TEST(LogLevel, TakesOtherLinesForInformation) {
  for (const char* text : {"", "step 5/10 loss 2.5", "TERRORS", "ERRORS_SEEN 0", "errors 0",
                           "WARNINGS off", "E112 x", "[rank", "[rankx]: y"}) {
    EXPECT_EQ(level_of(LogStream::kErr, text), LogLevel::kInfo) << text;
  }
  EXPECT_EQ(level_of(LogStream::kOut, "trireme: is a program"), LogLevel::kInfo);
}

TEST(LogLevel, ATracebackIsAnErrorUpToItsException) {
  for (const std::string prefix : {"", "[rank3]: "}) {
    LogLevels levels;
    for (const char* text : {"Traceback (most recent call last):", "  File \"a.py\", line 1",
                             "    f()", "KeyError: 'x'"}) {
      EXPECT_EQ(levels.next(LogStream::kErr, prefix + text), LogLevel::kError) << text;
      // Another stream has nothing to do with it.
      EXPECT_EQ(levels.next(LogStream::kOut, "  plain"), LogLevel::kInfo);
    }
    EXPECT_EQ(levels.next(LogStream::kErr, "plain"), LogLevel::kInfo);
  }
}

TEST(LogLevel, TellsConsequencesFromCauses) {
  for (const char* text :
       {"all_reduce #5 of group world (4 ranks), after 0.3 s: rank 2 died",
        "rank 1 of 4 lost the store: Broken pipe", "Connection closed by peer [10.0.0.2]:4711",
        "all_reduce #5 of group world (rank 1 of 4): lost rank 2 after 3 s"}) {
    EXPECT_TRUE(is_lost_peer(text)) << text;
  }
  for (const char* text : {"killed by signal 9", "KeyError: 'x'", "out of memory", "",
                           "all_reduce #5 of group world (4 ranks), after 0.3 s: the ranks call "
                           "different operations"}) {
    EXPECT_FALSE(is_lost_peer(text)) << text;
  }
}

}  // namespace
}  // namespace trireme::launch
