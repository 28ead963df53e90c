#include "trireme/comm/c10d/network_interface.h"

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TEST(NetworkInterface, ThisHostIsReachedOverLoopback) {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const NetworkInterface interface = find_interface_to(host);
    EXPECT_EQ(interface.name, "lo");
    EXPECT_TRUE(interface.is_loopback);
  }
  EXPECT_EQ(to_string(find_interface_to("127.0.0.1")), "lo (127.0.0.1)");
}

TEST(NetworkInterface, TheLoopbackNeedsNoName) {
  EXPECT_EQ(to_string(find_loopback()), "lo (127.0.0.1)");
}

TEST(NetworkInterface, IsFoundByName) {
  EXPECT_EQ(find_interface("lo").address, "127.0.0.1");
  EXPECT_ERROR(ConfigError, find_interface("oar0"),
               "GLOO_SOCKET_IFNAME is \"oar0\", which is not an interface of this host that is up; "
               "expected one of");
}

TEST(NetworkInterface, NamesThatDoNotResolveAreConfigErrors) {
  EXPECT_ERROR(ConfigError, find_interface_to("no-such-host.invalid"),
               "address \"no-such-host.invalid\" does not resolve");
}

}  // namespace
}  // namespace trireme::comm
