#include "trireme/launch/journal/event.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "tests/harness/file_size_limit.h"
#include "tests/harness/temporary_folder.h"
#include "tests/launch/journal/morning.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

class EventFiles : public ::testing::Test {
 protected:
  void append(const std::string& text) const {
    OutputFile(folder_ / kEventFileName, /*append=*/true).write(text);
  }

  harness::TemporaryFolder folder_;
};

TEST_F(EventFiles, ReadsBackWhatSeveralWritersAppended) {
  EXPECT_FALSE(has_events(folder_.path()));
  EventWriter(folder_.path()).write({.kind = EventKind::kStart, .epoch = 1});
  EventWriter writer(folder_.path());
  writer.write({.kind = EventKind::kFailure, .epoch = 1, .step = 7, .cause = "killed"});
  EXPECT_TRUE(has_events(folder_.path()));
  const EventLog log = read_events(folder_.path());
  ASSERT_EQ(log.events.size(), 2u);
  EXPECT_EQ(log.events[1].step, 7);
  EXPECT_GT(log.events[0].time, WallTime());
  EXPECT_EQ(log.num_unreadable, 0);
  EXPECT_FALSE(log.is_cut);
}

TEST_F(EventFiles, CountsLinesThatAreNoEvents) {
  EventWriter(folder_.path()).write({.kind = EventKind::kStart});
  append("{\"time\":\"2026-11-25T07:0");  // killed here
  EventWriter(folder_.path()).write({.kind = EventKind::kEnd});
  append(std::string("\n\n\0\xff\n", 5) + std::string(200'000, '[') + "\n");
  append("{\"time\":");  // being written
  const EventLog log = read_events(folder_.path());
  ASSERT_EQ(log.events.size(), 2u);
  EXPECT_EQ(log.events[1].kind, EventKind::kEnd);
  EXPECT_GE(log.num_unreadable, 3);
}

TEST_F(EventFiles, SaysHowManyEventsAFullDiskKeptOut) {
  EventWriter writer(folder_.path());
  writer.write({.kind = EventKind::kStart, .epoch = 1});
  {
    const harness::FileSizeLimit limit(100);
    writer.write({.kind = EventKind::kFailure, .epoch = 1});
    writer.write({.kind = EventKind::kRecovery, .epoch = 2});
    EXPECT_NE(writer.take_problem(), "");
    EXPECT_EQ(writer.take_problem(), "");
  }
  writer.write({.kind = EventKind::kEnd, .epoch = 2});
  writer.write({.kind = EventKind::kEnd, .epoch = 3});
  const EventLog log = read_events(folder_.path());
  ASSERT_EQ(log.events.size(), 4u);
  EXPECT_EQ(log.events[1].kind, EventKind::kGap);
  EXPECT_EQ(log.events[1].text, "2 events could not be written");
  EXPECT_EQ(log.events[3].epoch, 3);
}

TEST_F(EventFiles, StopsReadingAtItsBounds) {
  std::string lines;
  const std::string line = to_json_line({.kind = EventKind::kNotice});
  for (size_t i = 0; i < kMaxEvents + 10; ++i) lines += line;
  append(lines);
  const EventLog log = read_events(folder_.path());
  EXPECT_TRUE(log.is_cut);
  EXPECT_EQ(log.events.size(), kMaxEvents);
}

TEST_F(EventFiles, GivesUpOnAFileThatIsMostlySomethingElse) {
  append(std::string(1'000'000, '\n'));  // empty lines do not count
  for (int i = 0; i < 3; ++i) append("text\n");
  EXPECT_FALSE(read_events(folder_.path()).is_cut);
  std::string lines;
  for (int64_t i = 0; i < kMaxUnreadableEvents; ++i) lines += "{\"event\"}\n";
  append(lines);
  EventWriter(folder_.path()).write({.kind = EventKind::kEnd});
  const EventLog log = read_events(folder_.path());
  EXPECT_TRUE(log.is_cut);
  EXPECT_EQ(log.num_unreadable, kMaxUnreadableEvents);
}

TEST_F(EventFiles, NamesTheFileThatCannotBeOpened) {
  EXPECT_THROW(read_events(folder_.path()), Error);
  std::filesystem::create_directory(folder_ / kEventFileName);
  EXPECT_THROW(read_events(folder_.path()), Error);
  EXPECT_FALSE(EventWriter(folder_.path()).write({.kind = EventKind::kStart}));
}

Event start_of(std::chrono::seconds time, int64_t epoch) {
  return {.time = kMorning + time, .kind = EventKind::kStart, .epoch = epoch};
}

TEST(EpochStarts, KnowWhichEpochIsOver) {
  EpochStarts starts;
  EXPECT_FALSE(starts.is_over(1, kMorning));
  starts.add(start_of(1s, 1));
  starts.add({.time = kMorning + 2s, .kind = EventKind::kFailure, .epoch = 7});
  starts.add(start_of(3s, 2));
  EXPECT_FALSE(starts.is_over(1, kMorning + 3s));
  EXPECT_TRUE(starts.is_over(1, kMorning + 4s));
  EXPECT_FALSE(starts.is_over(2, kMorning + 4s));
}

TEST(EpochStarts, DoNotCompareEpochsOfTwoJobs) {
  EpochStarts starts;
  starts.add(start_of(1s, 1));
  starts.add(start_of(2s, 2));
  starts.add({.time = kMorning + 3s, .kind = EventKind::kEnd, .epoch = 2});
  EXPECT_FALSE(starts.is_over(1, kMorning + 4s));  // of a host whose clock is a little behind
  starts.add(start_of(5s, 1));
  EXPECT_FALSE(starts.is_over(1, kMorning + 6s));
  starts.add(start_of(7s, 2));
  EXPECT_TRUE(starts.is_over(1, kMorning + 8s));
}

TEST(EpochStarts, KeepTheirOrderWhenTheClockIsSetBack) {
  EpochStarts starts;
  starts.add(start_of(10s, 1));
  starts.add(start_of(5s, 2));
  EXPECT_FALSE(starts.is_over(1, kMorning + 7s));
  EXPECT_TRUE(starts.is_over(1, kMorning + 11s));
}

}  // namespace
}  // namespace trireme::launch
