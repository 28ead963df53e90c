#include "trireme/launch/network/line_control.h"

#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "tests/launch/network/packets.h"
#include "trireme/launch/network/network_address.h"
#include "trireme/launch/network/packet_paths.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
constexpr int64_t kMillisecond = 1'000'000;
constexpr size_t kStatus = 28 + 8, kDelay = kStatus + 8, kLoss = kDelay + 8, kBytes = kLoss + 8;

template <typename Value>
void put(std::vector<std::byte>& packet, size_t at, Value value) {
  std::memcpy(packet.data() + at, &value, sizeof(value));
}

// As change_lines() sends it.
std::vector<std::byte> request(const LineChange& change) {
  std::vector<std::byte> packet = packet_to(network_address(kControlNumber - 1), kBytes);
  packet[9] = std::byte{17};
  packet[12] = std::byte{1};  // the sender
  put(packet, 28, uint64_t{0x656d657269727431});
  put<int64_t>(packet, kDelay, change.delay.count());
  put(packet, kLoss, change.loss);
  return packet;
}

TEST(LineControl, ReadsARequestAndNothingElse) {
  const LineChange change{50ms, 0.25};
  EXPECT_EQ(requested_change(request(change)), change);
  EXPECT_EQ(requested_change(request({})), LineChange());
  for (const LineChange& bad :
       {LineChange{-1ns, 0}, LineChange{2min, 0}, LineChange{0ms, -0.1}, LineChange{0ms, 1.1},
        LineChange{0ms, std::numeric_limits<double>::quiet_NaN()}}) {
    EXPECT_EQ(requested_change(request(bad)), std::nullopt);
  }
  for (const size_t at : {size_t{0}, size_t{9}, size_t{28}, kStatus}) {
    auto packet = request(change);
    packet[at] ^= std::byte{1};
    EXPECT_EQ(requested_change(packet), std::nullopt) << at;
  }
  auto packet = request(change);
  packet.pop_back();
  EXPECT_EQ(requested_change(packet), std::nullopt);
  EXPECT_EQ(requested_change({}), std::nullopt);
}

TEST(LineControl, TheAnswerGoesBackAndSaysWhetherItIsDone) {
  const auto asked = request({50ms, 0});
  const auto done = answer_to(asked, true), refused = answer_to(asked, false);
  EXPECT_EQ(done[16], std::byte{1});
  EXPECT_EQ(done[12], std::byte{10});
  EXPECT_EQ(done[kStatus], std::byte{1});
  EXPECT_EQ(refused[kStatus], std::byte{2});
  EXPECT_EQ(requested_change(done), std::nullopt);
}

// Host 0 has its lines worsened, and only those on which it sends.
TEST(LineControl, ChangesWhatAHostSendsUntilItEnds) {
  PacketPaths paths({.hosts = {"a", "b"}, .links = {{0, 1, {.rate = 8e9, .delay = 10ms}}}});
  int64_t now_ns = 0;
  const auto answer_of = [&](const LineChange& change) {
    paths.take(0, now_ns, request(change));
    const auto arrival = paths.next(now_ns);
    EXPECT_TRUE(arrival && arrival->host == 0);
    return std::to_integer<int>(arrival.value().packet[kStatus]);
  };
  const auto milliseconds_from = [&](size_t host) -> int64_t {
    now_ns += 1000 * kMillisecond;
    paths.take(host, now_ns, packet_to(network_address(1 - host), 1000));
    const auto time = paths.next_time();
    if (!time) return -1;
    paths.next(*time);
    return (*time - now_ns) / kMillisecond;
  };
  EXPECT_EQ(milliseconds_from(0), 10);
  EXPECT_EQ(answer_of({40ms, 0}), 1);
  EXPECT_EQ(milliseconds_from(0), 50);
  EXPECT_EQ(milliseconds_from(1), 10);
  EXPECT_EQ(answer_of({0ms, 0.5}), 2) << "one at a time";
  EXPECT_EQ(milliseconds_from(0), 50);
  EXPECT_EQ(answer_of({}), 1);
  EXPECT_EQ(milliseconds_from(0), 10);
  EXPECT_EQ(answer_of({0ms, 1}), 1);
  EXPECT_EQ(milliseconds_from(0), -1) << "lost";
  EXPECT_EQ(milliseconds_from(1), 10);
  EXPECT_EQ(answer_of({}), 1);
  EXPECT_EQ(milliseconds_from(0), 10);
  EXPECT_EQ(paths.directions()[0].counts.lost, 1);
}

}  // namespace
}  // namespace trireme::launch
