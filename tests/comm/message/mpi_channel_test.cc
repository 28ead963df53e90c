// Every rank of an mpirun runs these tests.
#include "trireme/comm/message/mpi_channel.h"

#include <cstring>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/message/mpi_group.h"

namespace trireme::comm {
namespace {

constexpr std::chrono::milliseconds kLong = std::chrono::minutes(1);

// With 2 ranks or more.
class MpiChannels : public testing::Test {
 protected:
  void SetUp() override {
    world_ = make_mpi_group();  // initialises MPI
    channel_ = make_channel();
  }
  // Peers may still be in a test that this rank has left.
  void TearDown() override { world_->barrier()->wait(); }

  static std::unique_ptr<MpiChannel> make_channel() {
    MPI_Comm comms[2];
    for (MPI_Comm& comm : comms) check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    return std::make_unique<MpiChannel>(comms[0], comms[1], 1);
  }
  int next() const { return (channel_->rank() + 1) % channel_->size(); }
  int previous() const { return (channel_->rank() + channel_->size() - 1) % channel_->size(); }

  std::unique_ptr<Communicator> world_;
  std::unique_ptr<MpiChannel> channel_;
};

TEST_F(MpiChannels, MessagesAreMatchedByTagInTheOrderOfTheCalls) {
  const std::vector<int> sent = {10, 20, 30};
  std::vector<ChannelMessagePtr> messages;
  for (const int& value : sent) {
    messages.push_back(channel_->send(&value, sizeof(value), next(), value == 30 ? 0x7fffffff : 5));
  }
  std::vector<int> got(3);
  channel_->recv(&got[2], sizeof(int), previous(), 0x7fffffff)->wait(kLong);
  channel_->recv(&got[0], sizeof(int), previous(), 5)->wait(kLong);
  const ChannelMessagePtr last = channel_->recv(&got[1], sizeof(int), kAnySource, 5);
  last->wait(kLong);
  EXPECT_EQ(got, sent);
  EXPECT_EQ(last->source(), previous());
  for (const ChannelMessagePtr& message : messages) message->wait(kLong);
}

TEST_F(MpiChannels, MessagesMayBeLargerThanMpiCounts) {
  if (channel_->rank() > 1) return;
  const size_t num_bytes = (size_t{1} << 31) + 12345;
  std::vector<char> data(num_bytes);
  if (channel_->rank() == 0) {
    for (size_t i = 0; i < num_bytes; i += 4096) data[i] = static_cast<char>(i / 4096 % 127);
    data.back() = 99;
    channel_->send(data.data(), num_bytes, 1, 0)->wait(kLong);
  } else {
    channel_->recv(data.data(), num_bytes, 0, 0)->wait(kLong);
    for (size_t i = 0; i < num_bytes; i += 4096) {
      ASSERT_EQ(data[i], static_cast<char>(i / 4096 % 127)) << i;
    }
    EXPECT_EQ(data.back(), 99);
  }
}

TEST_F(MpiChannels, AWaitEndsAtItsTimeoutAndWhenCancelled) {
  int value = 0;
  const ChannelMessagePtr late = channel_->recv(&value, sizeof(value), previous(), 1);
  EXPECT_ERROR(std::exception, late->wait(std::chrono::milliseconds(50)), "no answer");
  const ChannelMessagePtr cancelled = channel_->recv(&value, sizeof(value), previous(), 2);
  cancelled->cancel();
  EXPECT_ERROR(std::exception, cancelled->wait(kLong), "aborted");
}

TEST_F(MpiChannels, TheFirstWordReachesThePeersAndEndsTheirWaits) {
  if (channel_->rank() == 0) {
    channel_->leave_word("the reason");
    channel_->leave_word("a later reason");
    return;
  }
  int value = 0;
  EXPECT_ERROR(std::exception, channel_->recv(&value, sizeof(value), 0, 1)->wait(kLong), "gave up");
  EXPECT_EQ(channel_->word_left(), "the reason");
}

TEST_F(MpiChannels, AClosedPeerFailsWaitsButWhatItSentBeforeArrives) {
  int value = 7;
  if (channel_->rank() == 0) {
    const ChannelMessagePtr message = channel_->send(&value, sizeof(value), 1, 1);
    message->wait(kLong);
    channel_->close();
    EXPECT_ERROR(std::exception, channel_->send(&value, sizeof(value), 1, 1), "closed");
    return;
  }
  if (channel_->rank() != 1) return;
  value = 0;
  channel_->recv(&value, sizeof(value), 0, 1)->wait(kLong);
  EXPECT_EQ(value, 7);
  const ChannelMessagePtr never = channel_->recv(&value, sizeof(value), 0, 1);
  EXPECT_ERROR(std::exception, never->wait(kLong), "rank 0 has left");
}

TEST_F(MpiChannels, SplitsAreOrderedAsTheirMembersAndSeparate) {
  if (channel_->rank() > 1) return;
  const auto pair = channel_->split("pair", {1, 0}, kLong);
  EXPECT_EQ(pair->rank(), 1 - channel_->rank());
  const int one = 1;
  const int two = 2;
  int first = 0;
  int second = 0;
  const int peer = 1 - channel_->rank();
  const auto a = channel_->send(&one, sizeof(one), peer, 3);
  const auto b = pair->send(&two, sizeof(two), 1 - pair->rank(), 3);
  pair->recv(&second, sizeof(second), 1 - pair->rank(), 3)->wait(kLong);
  channel_->recv(&first, sizeof(first), peer, 3)->wait(kLong);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
  a->wait(kLong);
  b->wait(kLong);
}

TEST_F(MpiChannels, AMemberThatDoesNotComeIsATimeout) {
  if (channel_->rank() == 1) return;
  if (channel_->rank() == 0) {
    EXPECT_THROW(channel_->split("absent", {0, 1}, std::chrono::milliseconds(50)), std::exception);
  }
}

}  // namespace
}  // namespace trireme::comm
