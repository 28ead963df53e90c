#include "trireme/launch/network/network.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"
#include "trireme/launch/network/host_space.h"
#include "trireme/launch/process/signal_watch.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

NetworkOptions two_hosts(const std::string& script) {
  return {.network = {.hosts = {"a", "b"}, .links = {{0, 1, {.rate = 1e6, .delay = 1ms}}}},
          .command = {"sh", "-c", script},
          .environment = inherited_environment()};
}

// In a process without other threads.
NetworkReport report_of(const NetworkOptions& options) {
  return run_network(options, [](const std::string& line) { ADD_FAILURE() << line; });
}

TEST(Network, ReportsEachHostAndTheFirstFailure) {
  const auto statuses = harness::fork_processes(1, [](int) {
    const NetworkReport report = report_of(two_hosts("test {index} = 0 || exit 5"));
    EXPECT_EQ(report.exit_code, 5);
    ASSERT_EQ(report.hosts.size(), 2);
    EXPECT_EQ(report.hosts[0].name, "a");
    EXPECT_EQ(report.hosts[0].address, "10.231.80.1");
    EXPECT_EQ(report.hosts[0].status.code, 0);
    EXPECT_EQ(report.hosts[1].status.code, 5);
    ASSERT_EQ(report.directions.size(), 2);
    EXPECT_EQ(report.directions[1].from, "b");
    EXPECT_EQ(report.directions[1].to, "a");
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0}));
}

TEST(Network, AMissingProgramIsAFailureOfTheCommand) {
  const auto statuses = harness::fork_processes(1, [](int) {
    NetworkOptions options = two_hosts("");
    options.command = {"/nowhere/program"};
    EXPECT_EQ(report_of(options).exit_code, kNotFound);
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0}));
}

TEST(Network, LeavesNoProcessOfItsOwn) {
  const harness::TemporaryFolder folder;
  const auto statuses = harness::fork_processes(1, [&](int) {
    const std::string file = (folder / "pid-{index}").string();
    report_of(two_hosts("setsid sleep 1000 & echo $! > " + file));
    EXPECT_EQ(kill_marked(network_mark()), 0);
    for (const char* const name : {"pid-0", "pid-1"}) {
      std::ifstream stream(folder / name);
      int process = 0;
      EXPECT_TRUE(stream >> process);
      const auto stat = process_stat(process);
      EXPECT_TRUE(!stat || stat->state == 'Z');
    }
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0}));
}

}  // namespace
}  // namespace trireme::launch
