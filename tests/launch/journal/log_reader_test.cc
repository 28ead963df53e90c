#include "trireme/launch/journal/log_reader.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/launch/journal/morning.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/launch/journal/event.h"
#include "trireme/launch/journal/log_line.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

class LogReaders : public ::testing::Test {
 protected:
  LogReaders() { std::filesystem::create_directory(logs()); }

  std::filesystem::path logs() const { return folder_ / kLogFolderName; }
  // Each writes one line.
  void rank_writes(int rank, std::chrono::milliseconds time, const std::string& text) const {
    LogWriter(logs() / rank_log_name(rank)).write({kMorning + time, 1, 5, LogStream::kOut, text});
  }
  void agent_writes(const std::string& host, std::chrono::milliseconds time,
                    const std::string& text) const {
    LogWriter(logs() / agent_log_name(host))
        .write({kMorning + time, 1, 5, LogStream::kAgent, text});
  }
  // "0 text": the rank or the host and the text, for all lines that are there.
  static Lines read(LogReader& reader) {
    Lines lines;
    while (const auto entry = reader.next()) {
      lines.push_back(concat(entry->rank < 0 ? entry->host : std::to_string(entry->rank), " ",
                             entry->line.text));
    }
    return lines;
  }
  Lines read(const LogFilter& filter = {}) const {
    LogReader reader(folder_.path(), filter);
    return read(reader);
  }

  harness::TemporaryFolder folder_;
};

TEST_F(LogReaders, MergesFilesByTime) {
  rank_writes(1, 2ms, "b");
  rank_writes(0, 1ms, "a");
  agent_writes("host", 3ms, "c");
  rank_writes(0, 4ms, "d");
  rank_writes(10, 2ms, "b too");
  EXPECT_EQ(read(), (Lines{"0 a", "1 b", "10 b too", "host c", "0 d"}));
}

TEST_F(LogReaders, KeepsTheOrderOfAFileWhoseClockWasSetBack) {
  rank_writes(0, 10ms, "first");
  rank_writes(0, 1ms, "second");
  rank_writes(0, 20ms, "third");
  rank_writes(1, 5ms, "other");
  rank_writes(1, 15ms, "later");
  EXPECT_EQ(read(), (Lines{"1 other", "0 first", "0 second", "1 later", "0 third"}));
}

TEST_F(LogReaders, FiltersByRankTimeLevelAndText) {
  rank_writes(0, 1s, "a");
  rank_writes(1, 2s, "ERROR: b");
  rank_writes(2, 3s, "WARNING: c");
  agent_writes("host", 4s, "d");
  EXPECT_EQ(read({.ranks = {{1, 2}}}), (Lines{"1 ERROR: b", "2 WARNING: c"}));
  EXPECT_EQ(read({.since = kMorning + 3s}), (Lines{"2 WARNING: c", "host d"}));
  EXPECT_EQ(read({.least_level = LogLevel::kError}), Lines{"1 ERROR: b"});
  EXPECT_EQ(read({.least_level = LogLevel::kWarning}), (Lines{"1 ERROR: b", "2 WARNING: c"}));
  EXPECT_EQ(read({.matches = [](std::string_view text) { return text == "d"; }}), Lines{"host d"});
}

TEST_F(LogReaders, LinesWithoutATimeStayWhereTheyAre) {
  rank_writes(0, 1ms, "a");
  OutputFile(logs() / rank_log_name(0), /*append=*/true).write("2026-11-2\nwritten by hand\n");
  rank_writes(1, 2ms, "b");
  rank_writes(0, 3ms, "c");
  OutputFile(logs() / rank_log_name(0), /*append=*/true).write("2026-11-25T07:0");
  EXPECT_EQ(read(),
            (Lines{"0 a", "0 2026-11-2", "0 written by hand", "1 b", "0 c", "0 2026-11-25T07:0"}));
}

TEST_F(LogReaders, IgnoresOtherFiles) {
  for (const char* name : {"notes.txt", "rank-3.log", "agent-\x1b.log", "rank-00003.log.2"}) {
    OutputFile(logs() / name).write("x\n");
  }
  EXPECT_EQ(read(), Lines{});
}

TEST_F(LogReaders, FollowsNewLinesAndNewFiles) {
  LogReader reader(folder_.path(), {.is_following = true});
  EXPECT_EQ(read(reader), Lines{});
  rank_writes(0, 1ms, "a");
  EXPECT_EQ(read(reader), Lines{"0 a"});
  rank_writes(0, 3ms, "c");
  rank_writes(7, 2ms, "b");
  EXPECT_EQ(read(reader), (Lines{"7 b", "0 c"}));
  OutputFile(logs() / rank_log_name(0), /*append=*/true).write("ha");
  EXPECT_EQ(read(reader), Lines{});
  OutputFile(logs() / rank_log_name(0), /*append=*/true).write("lf\n");
  EXPECT_EQ(read(reader), Lines{"0 half"});
}

TEST_F(LogReaders, ReadsRotatedFilesInOrder) {
  LogWriter log(logs() / rank_log_name(0), {.max_bytes = 300});
  Lines written;
  for (int i = 0; i < 12; ++i) {
    log.write({kMorning, 1, i, LogStream::kOut, concat("x", i)});
    written.push_back(concat("0 x", i));
  }
  const Lines seen = read();
  ASSERT_GE(seen.size(), 8u);
  EXPECT_TRUE(std::equal(seen.rbegin(), seen.rend(), written.rbegin()));
}

TEST_F(LogReaders, KnowsWhetherTheRunHasEnded) {
  LogReader reader(folder_.path(), {});
  EXPECT_FALSE(reader.has_ended());
  EventWriter events(folder_.path());
  events.write({.kind = EventKind::kStart});
  EXPECT_FALSE(reader.has_ended());
  events.write({.kind = EventKind::kEnd});
  EXPECT_TRUE(reader.has_ended());
  OutputFile(folder_ / kEventFileName, /*append=*/true).write("damaged\n");
  EXPECT_TRUE(reader.has_ended());
  events.write({.kind = EventKind::kStart});
  EXPECT_FALSE(reader.has_ended());
}

TEST_F(LogReaders, FindsStaleLinesAsTheEventsCome) {
  LogReader reader(folder_.path(), {.is_following = true});
  EventWriter events(folder_.path());
  events.write({.time = kMorning, .kind = EventKind::kStart, .epoch = 1});
  rank_writes(0, 1s, "a");
  EXPECT_FALSE(reader.next()->is_stale);
  EXPECT_FALSE(reader.next());
  events.write({.time = kMorning + 2s, .kind = EventKind::kStart, .epoch = 2});
  rank_writes(0, 3s, "b");
  agent_writes("host", 4s, "what an agent says is never stale");
  EXPECT_TRUE(reader.next()->is_stale);
  EXPECT_FALSE(reader.next()->is_stale);
}

TEST_F(LogReaders, NamesTheFolderThatIsNoRun) {
  EXPECT_THROW(LogReader(folder_ / "nowhere", {}), ConfigError);
  EXPECT_THROW(LogReader(logs(), {}), ConfigError);
}

TEST_F(LogReaders, ReadsThousandsOfFiles) {
  constexpr int kFiles = 3000;  // more than a process may open by default
  for (int rank = 0; rank < kFiles; ++rank) {
    OutputFile(logs() / rank_log_name(rank))
        .write(to_text(
            {kMorning + std::chrono::milliseconds(kFiles - rank), 1, 1, LogStream::kOut, "x"}));
  }
  const Lines lines = read();
  ASSERT_EQ(lines.size(), static_cast<size_t>(kFiles));
  EXPECT_EQ(lines.front(), concat(kFiles - 1, " x"));
  EXPECT_EQ(lines.back(), "0 x");
}

}  // namespace
}  // namespace trireme::launch
