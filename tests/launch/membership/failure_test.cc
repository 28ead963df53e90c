#include "trireme/launch/membership/failure.h"

#include <csignal>

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

WorkerReport failed(int rank, int code, int signal = 0) {
  return {.state = WorkerState::kFailed, .rank = rank, .step = 7, .code = code, .signal = signal};
}

std::optional<Failure> failure_of(const std::vector<WorkerReport>& workers) {
  const HostReport report{.name = "a", .workers = workers};
  return failure_of_workers({&report}, /*step=*/7, Policy());
}

TEST(FailureOfWorkers, IsNothingWhileAllWorkOrAreDone) {
  EXPECT_FALSE(failure_of({{.rank = 0}, {.state = WorkerState::kDone, .rank = 1}}));
  EXPECT_FALSE(failure_of({{.state = WorkerState::kSpare, .rank = 0}}));
}

TEST(FailureOfWorkers, NamesTheCauseAndNotWhoLostAPeer) {
  const auto failure = failure_of({failed(0, 3), failed(1, -1, 9), failed(2, 3)});
  ASSERT_TRUE(failure);
  EXPECT_TRUE(failure->is_cause_known);
  EXPECT_EQ(failure->faults.front().rank, 1);
  EXPECT_EQ(failure->cause, "killed");
  EXPECT_EQ(failure->exit_code, 3);
}

TEST(FailureOfWorkers, SaysThatTheCauseIsUnknown) {
  const auto failure = failure_of(
      {{.state = WorkerState::kLeft, .rank = 0, .message = "rank 1 is gone"}, {.rank = 1}});
  ASSERT_TRUE(failure);
  EXPECT_FALSE(failure->is_cause_known);
  EXPECT_NE(failure->faults.front().evidence.find("rank 1 is gone"), std::string::npos);
}

TEST(FailureOfWorkers, KeepsTheExitCodeThatARestartDoesNotMend) {
  for (const int code : {2, 4}) {
    const auto failure = failure_of({failed(0, code)});
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->exit_code, code);
    EXPECT_EQ(failure->faults.front().action, Action::kStop);
  }
  EXPECT_EQ(failure_of({failed(0, 127)})->exit_code, 2);
  EXPECT_EQ(failure_of({failed(0, 127)})->faults.front().action, Action::kStop);
}

TEST(FailureOfStop, IsAWorkerThatCouldNotSave) {
  EXPECT_EQ(failure_of_stop({{.rank = 0}, {.state = WorkerState::kDone, .rank = 1}}), nullptr);
  EXPECT_EQ(failure_of_stop({failed(0, -1, SIGTERM)}), nullptr);  // has nothing to save
  for (const WorkerReport& worker : {failed(1, -1, SIGKILL), failed(1, 4)}) {
    const std::vector<WorkerReport> workers = {failed(0, -1, SIGTERM), worker};
    const WorkerReport* cause = failure_of_stop(workers);
    ASSERT_NE(cause, nullptr);
    EXPECT_EQ(cause->rank, 1);
    EXPECT_EQ(exit_code_after(*cause), worker.signal != 0 ? 3 : 4);
  }
}

TEST(FailureOfHost, SaysForHowLongItWasSilent) {
  const Failure failure = failure_of_host("b", 2, 7, 4.2);
  EXPECT_EQ(failure.faults.front().evidence, "host b is lost: no heartbeat for 4 s");
  EXPECT_EQ(failure.cause, "host lost");
}

}  // namespace
}  // namespace trireme::launch
