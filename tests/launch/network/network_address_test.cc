#include "trireme/launch/network/network_address.h"

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

TEST(NetworkAddress, IsNumberedFromOne) {
  EXPECT_EQ(network_address(0), "10.231.80.1");
  EXPECT_EQ(network_address(63), "10.231.80.64");
}

}  // namespace
}  // namespace trireme::launch
