// The watch of real ranks, in processes of their own.
#include "trireme/launch/watchdog/watch.h"

#include <csignal>
#include <functional>
#include <thread>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/comm/recorder/recorded_ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/launch/watchdog/classify.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Ranks under a watch.
class WatchedRanks {
 public:
  using Function = std::function<void(comm::Communicator&, comm::Recorder&)>;

  WatchedRanks(int size, const Function& function)
      : ranks_(size, folder_.path(), function),
        watch_({.folder = folder_.path(), .host = "here", .evidence_after = 20ms}) {}

  // Polls until the observations are as wanted.
  std::vector<Observation> until(
      const std::function<bool(const std::vector<Observation>&)>& is_wanted) {
    std::vector<WatchedProcess> processes;
    for (int rank = 0; rank < ranks_.size(); ++rank) processes.push_back({rank, ranks_.id(rank)});
    for (;;) {
      const std::vector<Observation> observations = watch_.poll(processes);
      if (is_wanted(observations)) return observations;
      std::this_thread::sleep_for(5ms);
    }
  }
  // Until `find` finds something.
  std::vector<Fault> first_faults(decltype(find_hang)& find) {
    std::vector<Fault> faults;
    until([&](const std::vector<Observation>& observations) {
      faults = find(observations, {.hang_after = 1s});
      return !faults.empty();
    });
    return faults;
  }
  const comm::RecordedRanks& ranks() const { return ranks_; }

 private:
  harness::TemporaryFolder folder_;
  comm::RecordedRanks ranks_;
  Watch watch_;
};

void step_forever(comm::Communicator& world, comm::Recorder& recorder,
                  const std::function<void(int64_t step)>& compute) {
  const at::Tensor data = at::zeros({4});
  for (int64_t step = 1;; ++step) {
    comm::StepRecording recording(&recorder, step);
    compute(step);
    const auto start = std::chrono::steady_clock::now();
    world.all_reduce(data)->wait();
    recording.finish(std::chrono::steady_clock::now() - start);
  }
}

TEST(Watch, SeesStepsCallsAndTheProcess) {
  WatchedRanks watched(2, [](comm::Communicator& world, comm::Recorder& recorder) {
    step_forever(world, recorder, [](int64_t) { std::this_thread::sleep_for(1ms); });
  });
  const auto observations = watched.until([](const std::vector<Observation>& all) {
    return std::ranges::all_of(all, [](const Observation& rank) {
      return rank.windows.size() >= 2 && rank.is_in_step && rank.cores_used > 0;
    });
  });
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(observations[rank].rank, rank);
    EXPECT_EQ(observations[rank].host, "here");
    EXPECT_EQ(observations[rank].process_id, watched.ranks().id(rank));
    EXPECT_GT(observations[rank].step, 40);
    EXPECT_GT(observations[rank].num_calls, 40u);
    EXPECT_THAT(observations[rank].last_call, HasSubstr("of group "));
    EXPECT_EQ(observations[rank].windows[0].first_step % kWindowSteps, 1);
    EXPECT_GE(observations[rank].windows[0].computing, 1ms);
  }
}

TEST(Watch, StoppedRankIsNamedAndNotTheOnesThatWaitForIt) {
  WatchedRanks watched(3, [](comm::Communicator& world, comm::Recorder& recorder) {
    step_forever(world, recorder, [](int64_t) {});
  });
  watched.until([](const auto& all) {
    return std::ranges::all_of(all, [](const Observation& rank) { return rank.step > 3; });
  });
  watched.ranks().signal(1, SIGSTOP);
  const std::vector<Fault> faults = watched.first_faults(find_hang);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, FaultKind::kHang);
  EXPECT_EQ(faults[0].rank, 1);
  EXPECT_THAT(faults[0].evidence, HasSubstr("rank 1 is stopped"));
  // When it goes on, the run goes on.
  watched.ranks().signal(1, SIGCONT);
  watched.until([](const auto& all) {
    return std::ranges::all_of(all, [](const Observation& rank) { return rank.idle < 500ms; });
  });
}

TEST(Watch, SlowComputingIsTheStragglerAndTheWaitingPeerIsNot) {
  WatchedRanks watched(2, [](comm::Communicator& world, comm::Recorder& recorder) {
    step_forever(world, recorder,
                 [&](int64_t) { std::this_thread::sleep_for(world.rank() == 1 ? 20ms : 1ms); });
  });
  const std::vector<Fault> faults = watched.first_faults(find_stragglers);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, FaultKind::kStraggler);
  EXPECT_EQ(faults[0].rank, 1);
}

TEST(Watch, MutualWaitsAreAHang) {
  WatchedRanks watched(2, [](comm::Communicator& world, comm::Recorder&) {
    at::Tensor data = at::zeros({4});
    world.recv(data, 1 - world.rank(), {.tag = 7})->wait();
  });
  const std::vector<Fault> faults = watched.first_faults(find_hang);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, FaultKind::kHang);
  EXPECT_THAT(faults[0].evidence,
              AllOf(HasSubstr("ranks 0 and 1 wait for each other"), HasSubstr("recv #1")));
}

TEST(Watch, RankThatComputesForeverIsLateAndShownToCompute) {
  WatchedRanks watched(2, [](comm::Communicator& world, comm::Recorder&) {
    world.barrier()->wait();
    volatile bool forever = world.rank() == 1;
    while (forever) continue;
    world.barrier()->wait();
  });
  const std::vector<Fault> faults = watched.first_faults(find_hang);
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].rank, 1);
  EXPECT_THAT(faults[0].evidence, AllOf(HasSubstr("rank 1 is late"), HasSubstr("computes on")));
}

TEST(Watch, ProcessWithoutARingIsSeenByItsStateOnly) {
  const harness::TemporaryFolder folder;
  Watch watch({.folder = folder.path(), .host = "here"});
  const std::vector<WatchedProcess> self = {{0, getpid()}, {1, 0x7fffffff}};
  for (const bool has_garbage : {false, true}) {
    if (has_garbage) write_file_atomically(folder / comm::ring_name(0), "garbage");
    const auto observations = watch.poll(self);
    ASSERT_EQ(observations.size(), 2u);
    EXPECT_FALSE(observations[0].has_ring);
    EXPECT_EQ(observations[0].process_state, 'R');
    EXPECT_EQ(observations[1].process_state, '?');
  }
  watch.set_folder(folder / "missing");
  EXPECT_FALSE(watch.poll(self)[0].has_ring);
}

TEST(Watch, FindsTheRingOfAProcessThatTheWorkerHasStarted) {
  const harness::TemporaryFolder folder;
  const pid_t script = fork();
  if (script == 0) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      comm::Recorder recorder({.folder = folder.path(), .is_unpublished = true});
      for (;;) pause();
    }
    for (;;) pause();
  }
  Watch watch({.folder = folder.path()});
  const std::vector<WatchedProcess> processes = {{0, script}};
  std::vector<Observation> observations;
  do observations = watch.poll(processes);
  while (!observations[0].has_ring);
  EXPECT_NE(observations[0].process_id, script);
  kill(script, SIGKILL);
  waitpid(script, nullptr, 0);
}

TEST(Watch, NextEpochsRingReplacesTheClosedOne) {
  const harness::TemporaryFolder folder;
  Watch watch({.folder = folder.path()});
  const std::vector<WatchedProcess> self = {{0, getpid()}};
  for (const int64_t step : {7, 3}) {
    {
      comm::Recorder recorder({.folder = folder.path(), .is_unpublished = true});
      comm::StepRecording(&recorder, step).finish(0ns);
      EXPECT_EQ(watch.poll(self)[0].step, step);
      recorder.publish();
      comm::StepRecording(&recorder, step + 1).finish(0ns);
      EXPECT_EQ(watch.poll(self)[0].step, step + 1);
    }
    EXPECT_FALSE(watch.poll(self)[0].has_ring);
  }
}

TEST(Watch, AnotherProcessesRingIsNotTaken) {
  const harness::TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  {
    const comm::Recorder own({.folder = folder.path()});
    Watch watch({.folder = folder.path()});
    const std::vector<WatchedProcess> processes = {{0, child}};
    EXPECT_FALSE(watch.poll(processes)[0].has_ring);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace trireme::launch
