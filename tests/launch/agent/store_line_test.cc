#include "trireme/launch/agent/store_line.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/comm/cancellation.h"
#include "trireme/launch/process/rank_environment.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

StoreLineOptions options_at(int port) {
  return {.meeting = {.address = concat("127.0.0.1:", port),
                      .job = "job",
                      .timeout = 10s,
                      .answer_patience = 5s},
          .beat = 20ms};
}

template <typename Condition>
void await(const Condition& condition) {  // ctest bounds it
  while (!condition()) std::this_thread::sleep_for(5ms);
}

TEST(StoreLine, CarriesReportsToTheLeaderAndPlansBack) {
  const StoreLineOptions options = options_at(free_port());
  const auto leader = make_store_line(options);
  const auto member = make_store_line(options);
  EXPECT_TRUE(leader->leads());
  EXPECT_FALSE(member->leads());
  EXPECT_EQ(member->own_address(), "127.0.0.1");
  leader->report({.id = "a", .name = "a", .address = "x", .program = "p"});
  member->report({.id = "b", .name = "b", .address = "x", .program = "p"});
  await([&] { return leader->hosts().size() == 2; });
  leader->publish({.version = 1, .phase = Phase::kRun, .epoch = 1, .job = "job-1"});
  await([&] { return member->plan().version == 1; });
  EXPECT_EQ(member->plan().job, "job-1");
}

TEST(StoreLine, TellsOnesWhoJoinLateTheNewestPlan) {
  const StoreLineOptions options = options_at(free_port());
  const auto leader = make_store_line(options);
  for (int version = 1; version <= 5; ++version) {
    leader->publish({.version = version, .job = "job-1"});
  }
  const auto member = make_store_line(options);
  await([&] { return member->plan().version == 5; });
}

TEST(StoreLine, BeatsWithoutNews) {
  const StoreLineOptions options = options_at(free_port());
  const auto leader = make_store_line(options);
  const auto member = make_store_line(options);
  member->report({.id = "b", .name = "b", .address = "x", .program = "p"});
  await([&] { return !leader->hosts().empty(); });
  const int64_t beat = leader->hosts().front().report.beat;
  await([&] { return leader->hosts().front().report.beat > beat + 2; });
}

// The member's threads run on before anybody asks whether the lease has lapsed.
TEST(StoreLine, RemembersThatTheLeaderWasSilentForLongerThanTheLease) {
  StoreLineOptions options = options_at(free_port());
  options.lease = 2s;
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto leader = make_store_line(options);
    char end = 0;
    close(pipe_ends[1]);
    _exit(read(pipe_ends[0], &end, 1) == 0 ? 0 : 1);
  }
  close(pipe_ends[0]);
  options.leads = false;
  const auto member = make_store_line(options);
  member->report({.id = "b", .name = "b", .address = "x", .program = "p"});
  const auto begin = member->last_contact();
  await([&] { return member->last_contact() > begin; });
  EXPECT_FALSE(member->has_lapsed());
  kill(child, SIGSTOP);
  std::this_thread::sleep_for(3s);
  kill(child, SIGCONT);
  const auto end = BootClock::now();
  await([&] { return member->last_contact() > end; });
  EXPECT_TRUE(member->has_lapsed());
  EXPECT_TRUE(member->begin_anew());
  EXPECT_FALSE(member->has_lapsed());
  close(pipe_ends[1]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// Its own store answers late when the process was paused, and is not gone.
TEST(StoreLine, LeadsOnAfterItWasPausedForLongerThanItsPatience) {
  StoreLineOptions options = options_at(free_port());
  const auto await_host = [](const Line& line, const std::string& id) {
    await([&] {
      const auto hosts = line.hosts();
      return std::ranges::any_of(hosts, [&](const auto& host) { return host.report.id == id; });
    });
  };
  const pid_t child = fork();
  if (child == 0) {
    StoreLineOptions own = options;
    own.meeting.answer_patience = 0ms;  // as if it was paused in every request
    const auto leader = make_store_line(own);
    leader->report({.id = "a", .name = "a", .address = "x", .program = "p"});
    await_host(*leader, "b-anew");  // the pause is over
    leader->publish({.version = 1, .job = "job-1"});
    await_host(*leader, "b-done");
    await([&] { return Clock::now() - leader->hosts().front().seen < 100ms; });
    _exit(leader->problem().empty() ? 0 : 1);
  }
  options.leads = false;
  const auto member = make_store_line(options);
  const auto report = [&](const std::string& id) {
    member->report({.id = id, .name = "b", .address = "x", .program = "p"});
  };
  const auto begin = member->last_contact();
  report("b");
  await([&] { return member->last_contact() > begin; });
  kill(child, SIGSTOP);
  std::this_thread::sleep_for(300ms);
  kill(child, SIGCONT);
  report("b-anew");
  await([&] { return member->plan().version == 1; });
  report("b-done");
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(StoreLine, GivesUpLookingForALeaderWhenAsked) {
  StoreLineOptions options = options_at(free_port());
  options.leads = false;
  options.meeting.timeout = 1h;
  options.meeting.cancellation = std::make_shared<comm::Cancellation>();
  std::thread asks([&] { options.meeting.cancellation->cancel("asked to stop"); });
  EXPECT_THROW(make_store_line(options), CommError);
  asks.join();
}

TEST(StoreLine, KnowsThatTheLeaderIsGone) {
  const StoreLineOptions options = options_at(free_port());
  auto leader = make_store_line(options);
  const auto member = make_store_line(options);
  member->report({.id = "b", .name = "b", .address = "x", .program = "p"});
  leader.reset();
  await([&] { return !member->problem().empty(); });
}

}  // namespace
}  // namespace trireme::launch
