#include "trireme/launch/network/tun_device.h"

#include <algorithm>
#include <array>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/harness/messages.h"
#include "tests/launch/inject/own_namespaces.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using ::testing::HasSubstr;

sockaddr_in address_of(const char* address) {
  sockaddr_in numbers{};
  numbers.sin_family = AF_INET;
  numbers.sin_port = htons(7000);
  ::inet_pton(AF_INET, address, &numbers.sin_addr);
  return numbers;
}

Descriptor bound_to(const char* address) {
  Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
  const sockaddr_in numbers = address_of(address);
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&numbers), sizeof(numbers)), 0);
  return socket;
}

// The next datagram that the host has sent; IPv6 asks for routers meanwhile.
std::vector<std::byte> next_datagram(const TunDevice& device) {
  std::array<std::byte, 2000> buffer{};
  for (;;) {
    const auto packet = device.read(buffer);
    if (packet.empty()) return {};
    if (std::to_integer<int>(packet[0]) >> 4 == 4) return {packet.begin(), packet.end()};
  }
}

TEST(TunDevice, CarriesWhatTheHostSendsAndReceives) {
  in_own_namespaces([] {
    raise_loopback();
    const TunDevice device("trireme0", "10.231.80.1", 1400);
    const Descriptor host = bound_to("10.231.80.1");
    const sockaddr_in peer = address_of("10.231.80.2");
    ASSERT_EQ(
        ::sendto(host.get(), "hello", 5, 0, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)),
        5);
    std::vector<std::byte> packet = next_datagram(device);
    ASSERT_EQ(packet.size(), 20 + 8 + 5);
    EXPECT_TRUE(next_datagram(device).empty());
    // The answer: the same with both ends exchanged, by which no checksum changes.
    std::swap_ranges(packet.begin() + 12, packet.begin() + 16, packet.begin() + 16);
    EXPECT_TRUE(device.write(packet));
    std::array<char, 16> answer{};
    EXPECT_EQ(::recv(host.get(), answer.data(), answer.size(), 0), 5);
    EXPECT_STREQ(answer.data(), "hello");
    EXPECT_FALSE(device.write(std::vector<std::byte>(20))) << "no IP packet";
  });
}

TEST(TunDevice, ThereIsOneOfAName) {
  in_own_namespaces([] {
    const TunDevice device("trireme0", "10.231.80.1", 1500);
    EXPECT_THAT(
        harness::message_of<ConfigError>([] { TunDevice("trireme0", "10.231.80.2", 1500); }),
        HasSubstr("cannot make the device trireme0: "));
  });
}

}  // namespace
}  // namespace trireme::launch
