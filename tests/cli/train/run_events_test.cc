#include "trireme/cli/train/run_events.h"

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"

namespace trireme::cli {
namespace {

using launch::Event;
using launch::EventKind;

std::vector<EventKind> kinds_in(const std::filesystem::path& folder) {
  std::vector<EventKind> kinds;
  for (const Event& event : launch::read_events(folder).events) kinds.push_back(event.kind);
  return kinds;
}

train::RunConfig in_epoch(int64_t epoch) {
  train::RunConfig config;
  config.run_epoch = epoch;
  return config;
}

TEST(RunEvents, TellARunFromItsStartToItsEnd) {
  const harness::TemporaryFolder folder;
  RunEvents events(folder.path());
  events.start(in_epoch(2), {.num_ranks = 4, .resumed_step = 50});
  events.finish_step(51);
  events.finish_step(52);
  events.save("checkpoints/step-000052-epoch-2", 1.5);
  events.end(train::Outcome::kStopped);
  events.fail("not any more");
  const std::vector<Event> found = launch::read_events(folder.path()).events;
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].kind, EventKind::kStart);
  EXPECT_EQ(found[0].text.find("epoch 2: 4 ranks; goes on from step 50; trireme "), 0U)
      << found[0].text;
  EXPECT_EQ(found[0].step, 50);
  EXPECT_EQ(found[1].kind, EventKind::kRecovery);
  EXPECT_EQ(found[1].step, 51);
  EXPECT_EQ(found[2].cause, "checkpoint");
  EXPECT_EQ(found[2].step, 52);
  EXPECT_EQ(found[2].seconds, 1.5);
  EXPECT_EQ(found[3].kind, EventKind::kEnd);
  EXPECT_EQ(found[3].step, 52);
  EXPECT_EQ(found[3].cause, "");
  for (const Event& event : found) EXPECT_EQ(event.epoch, 2);
}

TEST(RunEvents, SayWhyARunHasFailed) {
  const harness::TemporaryFolder folder;
  RunEvents events(folder.path());
  events.start(in_epoch(1), {.num_ranks = 1});
  events.fail("step 3: the loss is nan\nmore");
  const std::vector<Event> found = launch::read_events(folder.path()).events;
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[1].cause, "error");
  EXPECT_EQ(found[1].text, "step 3: the loss is nan");
}

TEST(RunEvents, OfARunThatHasNotStartedAreNone) {
  const harness::TemporaryFolder folder;
  RunEvents events(folder.path());
  events.finish_step(1);
  events.fail("refused");
  EXPECT_FALSE(launch::has_events(folder.path()));
}

TEST(RunEvents, NeverMakeALostFolderAgain) {
  const harness::TemporaryFolder folder;
  const auto run = folder / "run";
  std::filesystem::create_directory(run);
  RunEvents events(run);
  events.start(in_epoch(1), {.num_ranks = 1});
  std::filesystem::remove_all(run);
  events.end(train::Outcome::kFinished);
  EXPECT_FALSE(std::filesystem::exists(run));
}

TEST(FailureEvent, FollowsTheEventsOfRanksThatHadBegun) {
  const harness::TemporaryFolder folder;
  const launch::RankExit killed{.rank = 1, .code = -1, .signal = 9, .message = ""};
  FailureEvent(folder.path()).write(killed);
  EXPECT_FALSE(launch::has_events(folder.path()));
  const FailureEvent failure(folder.path());
  RunEvents events(folder.path());
  events.start(in_epoch(3), {.num_ranks = 2});
  events.finish_step(1);
  OutputFile(folder / train::kMetricsName).write("{\"step\": 1}\n{\"step\": 4}\n{\"ste");
  failure.write(killed);
  EXPECT_EQ(kinds_in(folder.path()),
            (std::vector<EventKind>{EventKind::kStart, EventKind::kRecovery, EventKind::kFailure,
                                    EventKind::kEnd}));
  const Event last = launch::read_events(folder.path()).events.back();
  EXPECT_EQ(last.epoch, 3);
  EXPECT_EQ(last.step, 4);
  EXPECT_EQ(last.rank, 1);
  EXPECT_EQ(last.cause, "killed");
}

TEST(FailureEvent, LeavesTheEventsOfARunAtItsFoldersPlaceAlone) {
  const harness::TemporaryFolder folder;
  const auto run = folder / "run";
  std::filesystem::create_directory(run);
  const FailureEvent failure(run);
  std::filesystem::remove_all(run);
  std::filesystem::create_directory(run);
  RunEvents other(run);
  other.start(in_epoch(1), {.num_ranks = 1});
  failure.write({.rank = 0, .code = 2, .signal = 0, .message = "the folder was removed"});
  EXPECT_EQ(kinds_in(run), std::vector<EventKind>{EventKind::kStart});
}

}  // namespace
}  // namespace trireme::cli
