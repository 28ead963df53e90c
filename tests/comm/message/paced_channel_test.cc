#include "trireme/comm/message/paced_channel.h"

#include <array>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/message/memory_channel.h"
#include "trireme/base/error.h"
#include "trireme/comm/message/message_communicator.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

// Each rank's channel; every line is of `shape`.
struct PacedRanks {
  std::vector<std::unique_ptr<PacedChannel>> channels;
  PacedRanks(int size, const LinkShape& shape, uint64_t seed = 1) {
    const auto mail = std::make_shared<Mail>();
    for (int rank = 0; rank < size; ++rank) {
      channels.push_back(std::make_unique<PacedChannel>(
          std::make_unique<MemoryChannel>(mail, rank, size),
          PacedOptions{std::vector(static_cast<size_t>(size), shape), seed}));
    }
  }
  PacedChannel& operator[](size_t rank) { return *channels[rank]; }
};

std::vector<int> ordered_bytes(size_t count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// From rank 0 to rank 1.
void transfer(PacedRanks& ranks, size_t count) {
  const std::vector<int> sent = ordered_bytes(count);
  std::vector<int> received(count);
  const auto receipt = ranks[1].recv(received.data(), count * sizeof(int), 0, 7);
  ranks[0].send(sent.data(), count * sizeof(int), 1, 7)->wait(1s);
  receipt->wait(1s);
  EXPECT_EQ(receipt->source(), 0);
  EXPECT_EQ(received, sent);
}

TEST(PacedChannel, AMessageTakesItsBytesAndTheDelay) {
  PacedRanks ranks(2, {.rate = 8e6, .delay = 50ms});  // 1,000 bytes a millisecond
  transfer(ranks, 10'000);
  EXPECT_EQ(ranks[1].now(), 90ms);
  EXPECT_EQ(ranks[0].now(), 0ms) << "sending takes no time";
  transfer(ranks, 10'000);
  EXPECT_EQ(ranks[1].now(), 130ms) << "queues behind the first";
  EXPECT_EQ(ranks[0].counts_to(1).bytes, 80'000);
  EXPECT_EQ(ranks[0].counts_to(1).packets, 2 * 27);
  EXPECT_EQ(ranks[1].counts_to(0).packets, 0);
}

TEST(PacedChannel, TimeGoesOnByComputingAndByLaterMessages) {
  PacedRanks ranks(2, {.rate = 8e9, .delay = 10ms});
  ranks[0].advance(5ms);
  ranks[1].advance(100ms);
  transfer(ranks, 2);
  EXPECT_EQ(ranks[1].now(), 100ms) << "was there before";
  ranks[0].advance(200ms);
  transfer(ranks, 2);
  EXPECT_EQ(ranks[1].now(), 215ms + 8ns);
}

TEST(PacedChannel, TheOrderOfWaitsDoesNotMatter) {
  for (const bool in_order : {true, false}) {
    PacedRanks ranks(3, {.rate = 8e6, .delay = 10ms});
    ranks[0].advance(30ms);
    std::array<char, 2> received{};
    const auto first = ranks[2].recv(&received[0], 1, 0, 1);
    const auto second = ranks[2].recv(&received[1], 1, 1, 1);
    ranks[0].send("a", 1, 2, 1)->wait(1s);
    ranks[1].send("b", 1, 2, 1)->wait(1s);
    (in_order ? first : second)->wait(1s);
    (in_order ? second : first)->wait(1s);
    EXPECT_EQ(ranks[2].now(), 40'001us);
    EXPECT_EQ(received[0], 'a');
    EXPECT_EQ(received[1], 'b');
  }
}

TEST(PacedChannel, ALostPacketComesTwoDelaysLaterAndTheBytesAreRight) {
  const LinkShape clean{.rate = 8e9, .delay = 50ms};
  LinkShape lossy = clean;
  lossy.loss = 0.3;
  PacedRanks without(2, clean), with(2, lossy), again(2, lossy), other(2, lossy, 2);
  for (PacedRanks* ranks : {&without, &with, &again, &other}) transfer(*ranks, 10'000);
  const LinkCounts counts = with[0].counts_to(1);
  EXPECT_GT(counts.lost, 0);
  EXPECT_EQ(counts.packets, 27 + counts.lost) << "each lost one was sent again";
  EXPECT_GE(with[1].now(), without[1].now() + 2 * clean.delay);
  EXPECT_EQ(with[1].now(), again[1].now());
  EXPECT_NE(with[0].counts_to(1).lost, other[0].counts_to(1).lost);
}

TEST(PacedChannel, ASplitKeepsTheClockAndTheLines) {
  PacedRanks ranks(3, {.rate = 8e6, .delay = 10ms});
  const auto mine = ranks[2].split("pair", {2, 0}, 1s);
  const auto theirs = ranks[0].split("pair", {2, 0}, 1s);
  EXPECT_EQ(mine->rank(), 0);
  EXPECT_EQ(theirs->rank(), 1);
  char received = 0;
  const auto receipt = theirs->recv(&received, 1, kAnySource, 1);
  mine->send("a", 1, 1, 1)->wait(1s);
  receipt->wait(1s);
  EXPECT_EQ(receipt->source(), 0);
  EXPECT_EQ(ranks[0].now(), 10'001us);
  EXPECT_EQ(ranks[2].counts_to(0).bytes, 1);
  EXPECT_EQ(ranks[2].counts_to(1).bytes, 0);
}

// The time of collectives is that of their rounds, and their bits are those of any other channel.
TEST(PacedChannel, CollectivesTakeTheirRoundTrips) {
  constexpr int kRanks = 3;
  std::array<std::chrono::nanoseconds, kRanks> first{}, second{};
  for (auto* const times : {&first, &second}) {
    PacedRanks ranks(kRanks, {.rate = 1e9, .delay = 50ms, .jitter = 5ms, .loss = 0.05});
    run_threads(kRanks, [&](int rank) {
      PacedChannel& channel = ranks[static_cast<size_t>(rank)];
      MessageCommunicator group(std::move(ranks.channels[static_cast<size_t>(rank)]), "world", 10s);
      at::Tensor data = at::arange(100'000, at::kFloat) * (rank + 1);
      group.all_reduce(data)->wait();
      EXPECT_TRUE(at::equal(data, at::arange(100'000, at::kFloat) * 6));
      (*times)[static_cast<size_t>(rank)] = channel.now();
    });
    // A round for the call's description and two for the data.
    for (const auto time : *times) EXPECT_GE(time, 150ms);
  }
  EXPECT_EQ(first, second);
}

TEST(PacedChannel, NeedsALineToEachRank) {
  const auto mail = std::make_shared<Mail>();
  EXPECT_THROW(
      PacedChannel(std::make_unique<MemoryChannel>(mail, 0, 3), {std::vector<LinkShape>(2)}),
      InternalError);
}

}  // namespace
}  // namespace trireme::comm
