#include "trireme/launch/agent/drill.h"

#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trireme::launch {
namespace {

// A run of two hosts with a rank each, whose ranks have finished this step.
std::vector<SeenHost> hosts_at(int64_t step) {
  std::vector<SeenHost> hosts;
  for (const std::string name : {"a", "b"}) {
    const int rank = name == "a" ? 0 : 1;
    hosts.push_back(
        {.report = {
             .id = name, .name = name, .epoch = 1, .workers = {{.rank = rank, .step = step}}}});
  }
  return hosts;
}

Plan running() {
  return {.phase = Phase::kRun, .epoch = 1, .hosts = {{"a", "a", 0, 1}, {"b", "b", 1, 1}}};
}

TEST(DrillSchedule, KnowsTheStepAndTheHostOfARank) {
  DrillSchedule schedule(parse_injections("kill rank=1 at step=6"), /*seed=*/1, Clock::now());
  EXPECT_TRUE(schedule.due(running(), hosts_at(2), Clock::now()).empty());
  const auto due = schedule.due(running(), hosts_at(6), Clock::now());
  ASSERT_EQ(due.size(), 1);
  EXPECT_EQ(due[0].rank, 1);
  EXPECT_EQ(due[0].host, "b");
  EXPECT_TRUE(schedule.due(running(), hosts_at(7), Clock::now()).empty());
}

TEST(DrillPerformer, DoesWhatIsForItsHostAndOnlyOnce) {
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  Plan plan = running();
  plan.injections = {{1, "a", "kill rank=0"}, {2, "b", "kill rank=1"}};
  const DrillTargets targets{.process_ids = [&](int) { return std::vector<int64_t>{child}; }};
  DrillPerformer other("c");
  EXPECT_TRUE(other.perform(plan, targets, Clock::now()).empty());
  DrillPerformer performer("b");
  EXPECT_EQ(performer.perform(plan, targets, Clock::now()).size(), 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_TRUE(performer.perform(plan, targets, Clock::now()).empty());
}

TEST(DrillPerformer, LeavesThroughTheAgent) {
  Plan plan = running();
  plan.injections = {{1, "a", "leave host=a"}};
  bool has_left = false;
  const DrillTargets targets{.leave = [&] { has_left = true; }};
  DrillPerformer performer("a");
  EXPECT_EQ(performer.perform(plan, targets, Clock::now()).size(), 1);
  EXPECT_TRUE(has_left);
}

}  // namespace
}  // namespace trireme::launch
