#include "trireme/launch/agent/store_line.h"

#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"

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

int some_port() { return 20000 + (getpid() * 7) % 20000; }

template <typename Condition>
void await(const Condition& condition) {  // ctest bounds it
  while (!condition()) std::this_thread::sleep_for(5ms);
}

TEST(StoreLine, CarriesReportsToTheLeaderAndPlansBack) {
  const StoreLineOptions options = options_at(some_port());
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
  const StoreLineOptions options = options_at(some_port() + 1);
  const auto leader = make_store_line(options);
  for (int version = 1; version <= 5; ++version) {
    leader->publish({.version = version, .job = "job-1"});
  }
  const auto member = make_store_line(options);
  await([&] { return member->plan().version == 5; });
}

TEST(StoreLine, BeatsWithoutNews) {
  const StoreLineOptions options = options_at(some_port() + 2);
  const auto leader = make_store_line(options);
  const auto member = make_store_line(options);
  member->report({.id = "b", .name = "b", .address = "x", .program = "p"});
  await([&] { return !leader->hosts().empty(); });
  const int64_t beat = leader->hosts().front().report.beat;
  await([&] { return leader->hosts().front().report.beat > beat + 2; });
}

TEST(StoreLine, KnowsThatTheLeaderIsGone) {
  const StoreLineOptions options = options_at(some_port() + 3);
  auto leader = make_store_line(options);
  const auto member = make_store_line(options);
  member->report({.id = "b", .name = "b", .address = "x", .program = "p"});
  leader.reset();
  await([&] { return !member->problem().empty(); });
}

}  // namespace
}  // namespace trireme::launch
