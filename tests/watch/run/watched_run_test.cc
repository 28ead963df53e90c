#include "trireme/watch/run/watched_run.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"

namespace trireme::watch {
namespace {

class WatchedRunTest : public testing::Test {
 protected:
  void append(const std::string& name, const std::string& text) {
    OutputFile(folder_ / name, /*append=*/true).write(text);
  }
  void read(WatchedRun& run) {
    while (run.update(std::chrono::seconds(10))) {
    }
  }
  harness::TemporaryFolder folder_;
};

TEST_F(WatchedRunTest, AnEmptyFolderIsARunOfWhichNothingIsKnown) {
  WatchedRun run(folder_.path());
  read(run);
  EXPECT_EQ(run.verdict().state, RunState::kUnknown);
  EXPECT_EQ(run.last_step(), 0);
  EXPECT_EQ(run.num_ranks(), 1);
  EXPECT_TRUE(run.checkpoints().empty());
  EXPECT_TRUE(run.events().events.empty());
  EXPECT_FALSE(run.goodput().share);
  EXPECT_TRUE(run.alerts().empty());
}

TEST_F(WatchedRunTest, DamagedAndTornLinesAreCountedAndTheRestIsRead) {
  append("metrics.jsonl", "{\"step\":1,\"loss\":2}\nrubbish\n\n{\"step\":2,\"loss\":1}\n{\"ste");
  append("config.toml", "[train]\nsteps = 2\n[parallel]\ndata = 2\n");
  WatchedRun run(folder_.path());
  read(run);
  EXPECT_EQ(run.num_unreadable(), 1);
  EXPECT_EQ(run.last_step(), 2);
  EXPECT_EQ(run.num_ranks(), 2);
  EXPECT_EQ(run.verdict().state, RunState::kFinished);
  append("metrics.jsonl", "p\":3,\"loss\":0.5}\n");
  read(run);
  EXPECT_EQ(run.last_step(), 3);
}

TEST_F(WatchedRunTest, DamagedRingsAndEventsAreAsIfTheyWereNotThere) {
  append("metrics.jsonl", "{\"step\":1}\n");
  append("events.jsonl", "rubbish\n\xff\n");
  std::filesystem::create_directories(folder_ / "recorder");
  append("recorder/rank-00000.ring", "no ring");
  WatchedRun run(folder_.path());
  read(run);
  EXPECT_TRUE(run.observation().ranks.empty());
  EXPECT_TRUE(run.events().events.empty());
  EXPECT_EQ(run.verdict().state, RunState::kRunning);
}

TEST_F(WatchedRunTest, CheckpointsAreFoundByTheirNames) {
  for (const char* name : {"step-000020", "step-000010", "other", "step-x"})
    std::filesystem::create_directories(folder_ / "checkpoints" / name);
  WatchedRun run(folder_.path());
  ASSERT_EQ(run.checkpoints().size(), 2u);
  EXPECT_EQ(run.checkpoints()[0].step, 10);
  EXPECT_GT(run.checkpoints()[0].time, 1e9);
}

}  // namespace
}  // namespace trireme::watch
