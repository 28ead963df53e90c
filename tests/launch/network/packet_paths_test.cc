#include "trireme/launch/network/packet_paths.h"

#include <gtest/gtest.h>

#include "tests/launch/network/packets.h"
#include "trireme/launch/network/network_address.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
constexpr int64_t kMs = 1'000'000;

// A line between a and b; c has none.
NetworkFile two_and_one(const comm::LinkShape& shape) {
  return {.hosts = {"a", "b", "c"}, .links = {{0, 1, shape}}};
}

TEST(PacketPaths, APacketIsThereAfterItsLine) {
  PacketPaths paths(two_and_one({.rate = 8e6, .delay = 50ms}));
  EXPECT_EQ(paths.next_time(), std::nullopt);
  const auto packet = packet_to(network_address(1), 1000, 7);
  paths.take(0, 10 * kMs, packet);
  EXPECT_EQ(paths.next_time(), 61 * kMs);
  EXPECT_FALSE(paths.next(61 * kMs - 1).has_value());
  const auto arrival = paths.next(61 * kMs);
  ASSERT_TRUE(arrival.has_value());
  EXPECT_EQ(arrival->host, 1);
  EXPECT_EQ(arrival->packet, packet);
  EXPECT_FALSE(paths.next(1000 * kMs).has_value());
  const auto directions = paths.directions();
  ASSERT_EQ(directions.size(), 2);
  EXPECT_EQ(directions[0].from, 0);
  EXPECT_EQ(directions[0].to, 1);
  EXPECT_EQ(directions[0].counts.bytes, 1000);
  EXPECT_EQ(directions[1].counts.packets, 0);
}

TEST(PacketPaths, BothDirectionsAreFreeOfEachOtherAndInOrder) {
  PacketPaths paths(two_and_one({.rate = 8e6, .delay = 50ms, .jitter = 40ms}));
  for (unsigned char n = 0; n < 100; ++n) {
    paths.take(0, 0, packet_to(network_address(1), 1000, n));
    paths.take(1, 0, packet_to(network_address(0), 21, n));
  }
  unsigned char next_of[2] = {0, 0};
  while (const auto arrival = paths.next(1000 * kMs)) {
    EXPECT_EQ(arrival->packet.back(), std::byte{next_of[arrival->host]++});
  }
  EXPECT_EQ(next_of[0], 100);
  EXPECT_EQ(next_of[1], 100);
}

TEST(PacketPaths, WhatIsForNobodyIsNotCounted) {
  PacketPaths paths(two_and_one({}));
  auto version_6 = packet_to(network_address(1), 60);
  version_6[0] = std::byte{0x60};
  for (const auto& packet :
       {packet_to(network_address(2), 60), packet_to(network_address(0), 60),
        packet_to("10.231.80.0", 60), packet_to("10.231.80.4", 60), packet_to("10.231.80.255", 60),
        packet_to("10.231.81.2", 60), packet_to("224.0.0.1", 60), version_6,
        std::vector<std::byte>(19, std::byte{0x45}), std::vector<std::byte>()}) {
    paths.take(0, 0, packet);
  }
  EXPECT_EQ(paths.next_time(), std::nullopt);
  for (const auto& direction : paths.directions()) EXPECT_EQ(direction.counts.packets, 0);
}

TEST(PacketPaths, LossesAreThoseOfTheSeedAndOfEachDirection) {
  const auto lost_of = [](uint64_t seed) {
    NetworkFile network = two_and_one({.loss = 0.5});
    network.seed = seed;
    PacketPaths paths(network);
    std::vector<uint64_t> lost;
    for (int n = 0; n < 64; ++n) {
      paths.take(0, n * kMs, packet_to(network_address(1), 100));
      paths.take(1, n * kMs, packet_to(network_address(0), 100));
      for (const auto& direction : paths.directions()) lost.push_back(direction.counts.lost);
    }
    return lost;
  };
  const auto first = lost_of(1);
  EXPECT_EQ(first, lost_of(1));
  EXPECT_NE(first, lost_of(2));
  std::vector<uint64_t> there, back;
  for (size_t i = 0; i < first.size(); i += 2) {
    there.push_back(first[i]);
    back.push_back(first[i + 1]);
  }
  EXPECT_NE(there, back);
}

TEST(PacketPaths, MemoryOfPacketsUnderWayIsBounded) {
  PacketPaths paths(two_and_one({.rate = 1e12, .delay = 60s}), /*most_bytes=*/2500);
  const auto packet = packet_to(network_address(1), 1000);
  for (int n = 0; n < 4; ++n) paths.take(0, 0, packet);
  EXPECT_EQ(paths.directions()[0].counts.packets, 2);
  EXPECT_EQ(paths.directions()[0].counts.dropped, 2);
  // What has arrived makes room again.
  while (paths.next(61'000 * kMs)) continue;
  paths.take(0, 61'000 * kMs, packet);
  EXPECT_EQ(paths.directions()[0].counts.packets, 3);
}

}  // namespace
}  // namespace trireme::launch
