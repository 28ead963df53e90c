#include "trireme/launch/agent/worker.h"

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

// A worker that is a shell script.
class WorkerTest : public ::testing::Test {
 protected:
  void start(const std::string& script, int epoch = 1) {
    worker_.emplace(WorkerOptions{.command = {"/bin/sh", "-c", script},
                                  .environment = inherited_environment(),
                                  .grace = 200ms});
    worker_->take(assignment(epoch));
  }
  static Assignment assignment(int epoch) {
    return {.join = {.epoch = epoch, .rank = 2, .size = 4, .local_size = 2, .job = "job-1"},
            .master_host = "127.0.0.1",
            .master_port = 4711};
  }
  Worker::OnOutput collect() {
    return [this](LogStream stream, std::string_view text) {
      (stream == LogStream::kOut ? output_ : errors_) += text;
    };
  }
  const WorkerReport& await_end() {
    while (!worker_->update(Clock::now(), collect())) {
      worker_->read(collect());
      std::this_thread::sleep_for(2ms);
    }
    return *worker_->report();
  }

  std::optional<Worker> worker_;
  std::string output_;
  std::string errors_;
};

TEST_F(WorkerTest, TellsItsProgramItsPlace) {
  start(
      "echo $RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $TRIREME_EPOCH; echo bad "
      ">&2");
  EXPECT_EQ(await_end().state, WorkerState::kDone);
  EXPECT_EQ(output_, "2 4 2 127.0.0.1:4711 1\n");
  EXPECT_EQ(errors_, "bad\n");
}

TEST_F(WorkerTest, KeepsTheLastWordsOfAFailedOne) {
  start("echo 'no such file' >&$TRIREME_ERROR_FD; exit 2");
  const WorkerReport& report = await_end();
  EXPECT_EQ(report.state, WorkerState::kFailed);
  EXPECT_EQ(report.code, 2);
  EXPECT_EQ(report.message, "no such file");
}

TEST_F(WorkerTest, KeepsAllThatWasWrittenBeforeTheEnd) {
  start("for i in $(seq 20000); do echo line $i; done");
  await_end();
  EXPECT_TRUE(output_.ends_with("line 20000\n")) << output_.size();
}

TEST_F(WorkerTest, IsKilledWhenItDoesNotEndInTime) {
  start("trap '' TERM; echo ready; while true; do sleep 0.01; done");
  while (output_.empty()) worker_->read(collect());
  worker_->leave({.epoch = 1, .reason = "a test"}, Clock::now());
  EXPECT_EQ(await_end().signal, SIGKILL);
}

TEST_F(WorkerTest, KeepsTheFirstAndTheNewestStepOfItsEpoch) {
  start(
      "for s in 7 8 9; do\n"
      "  echo '{\"message\":\"step\",\"epoch\":1,\"step\":'$s'}' >&$TRIREME_AGENT_FD\n"
      "done");
  const WorkerReport& report = await_end();
  EXPECT_EQ(report.first_step, 7);
  EXPECT_EQ(report.step, 9);
}

TEST_F(WorkerTest, HasAnUnknownStepUntilItsProgramSpeaks) {
  start("true");
  EXPECT_EQ(await_end().step, std::nullopt);
  start("echo '{\"message\":\"hello\",\"version\":1,\"folder\":\"\"}' >&$TRIREME_AGENT_FD");
  EXPECT_EQ(await_end().step, 0);
}

TEST_F(WorkerTest, CanPretendAnotherEnd) {
  start("sleep 1000");
  worker_->pretend(7);
  worker_->kill();
  EXPECT_EQ(await_end().code, 7);
}

TEST_F(WorkerTest, IsStartedAnewInTheNextEpoch) {
  start("echo epoch $TRIREME_EPOCH; exit 1");
  await_end();
  worker_->take(assignment(2));
  EXPECT_EQ(worker_->report()->state, WorkerState::kRunning);
  await_end();
  EXPECT_EQ(output_, "epoch 1\nepoch 2\n");
}

}  // namespace
}  // namespace trireme::launch
