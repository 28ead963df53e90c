#include "trireme/launch/inject/network_fault.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/inject/own_namespaces.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

const Injection kPartition{.fault = InjectedFault::kPartition, .target = Target::kHost};

// eth0 with an address, a default route and another one, to a device that stands for the others.
void make_host() {
  run_command({"ip", "link", "add", "eth0", "type", "veth", "peer", "name", "rest"});
  run_command({"ip", "address", "add", "10.7.0.2/24", "dev", "eth0"});
  run_command({"ip", "link", "set", "dev", "rest", "up"});
  run_command({"ip", "link", "set", "dev", "eth0", "up"});
  run_command({"ip", "route", "add", "default", "via", "10.7.0.1", "dev", "eth0"});
  run_command(
      {"ip", "route", "add", "10.8.0.0/16", "via", "10.7.0.9", "dev", "eth0", "metric", "7"});
}

TEST(NetworkFault, PartitionEndsWithTheRoutesThatWereThere) {
  in_own_namespaces([] {
    make_host();
    EXPECT_FALSE(is_network_of_machine());
    EXPECT_EQ(network_device(), "eth0");
    const std::string before = run_command({"ip", "-4", "route", "show"});
    for (const bool ends_by_itself : {false, true}) {
      {
        NetworkFault fault(kPartition, "eth0");
        EXPECT_EQ(run_command({"ip", "-4", "route", "show"}), "");
        EXPECT_THAT(run_command({"ip", "link", "show", "eth0"}), HasSubstr("state DOWN"));
        if (ends_by_itself) fault.end();
      }
      EXPECT_EQ(run_command({"ip", "-4", "route", "show"}), before);
    }
  });
}

TEST(NetworkFault, DelayAndLossWorkOrSayThatTheKernelLacksThem) {
  in_own_namespaces([] {
    make_host();
    for (const Injection& injection :
         {Injection{.fault = InjectedFault::kDelay, .target = Target::kHost, .delay = 50ms},
          Injection{.fault = InjectedFault::kLoss, .target = Target::kHost, .loss = 0.05}}) {
      try {
        NetworkFault fault(injection, "eth0");
        EXPECT_THAT(run_command({"tc", "qdisc", "show", "dev", "eth0"}),
                    AnyOf(HasSubstr("delay 50"), HasSubstr("loss 5%")));
        fault.end();
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("on eth0: the kernel has no netem; "));
      }
      EXPECT_THAT(run_command({"tc", "qdisc", "show", "dev", "eth0"}), Not(HasSubstr("netem")));
    }
  });
}

TEST(NetworkFault, UnknownDeviceAndChoiceAreOneLine) {
  in_own_namespaces([] {
    const auto error_of = [](const auto& call) -> std::string {
      try {
        call();
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_THAT(error_of([] { NetworkFault(kPartition, "eth7"); }),
                HasSubstr("cannot inject partition on eth7: "));
    EXPECT_THAT(error_of([] { network_device(); }), HasSubstr("0 devices are up"));
    make_host();
    run_command({"ip", "route", "del", "default"});
    EXPECT_THAT(error_of([] { network_device(); }), HasSubstr("2 devices are up"));
    run_command({"ip", "link", "set", "dev", "rest", "down"});
    EXPECT_EQ(network_device(), "eth0");
  });
}

}  // namespace
}  // namespace trireme::launch
