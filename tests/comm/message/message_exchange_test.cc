#include "trireme/comm/message/message_exchange.h"

#include <atomic>
#include <thread>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tests/comm/c10d/gloo_ranks.h"
#include "tests/comm/errors.h"
#include "tests/comm/message/memory_channel.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

// The error of every rank when each runs `function`; none may be without.
void expect_on_all(int size, const harness::RankFunction& function,
                   const std::vector<std::string>& parts) {
  std::atomic<int> failures = 0;
  run_gloo_ranks(size, [&](Communicator& group) {
    try {
      function(group);
      ADD_FAILURE() << "rank " << group.rank() << " did not fail";
    } catch (const CommError& error) {
      for (const std::string& part : parts) EXPECT_PRED2(contains, error.what(), part);
      EXPECT_FALSE(contains(error.what(), "\n")) << error.what();
    }
    ++failures;
    while (failures.load() < size) std::this_thread::yield();
  });
}

TEST(MessageExchange, WordsOfAnErrorAreOneLine) {
  EXPECT_EQ(words_of(std::runtime_error("first\nsecond")), "first");
  try {
    TORCH_CHECK(false, "torch's words");
  } catch (const std::exception& error) {
    EXPECT_EQ(words_of(error), "torch's words");
  }
}

TEST(MessageExchange, DifferentOperationsFailOnAllRanksAndNameBoth) {
  expect_on_all(
      3,
      [](Communicator& group) {
        at::Tensor data = at::ones({3}, at::kDouble);
        if (group.rank() == 1) return group.broadcast(data, 0)->wait();
        group.all_reduce(data)->wait();
      },
      {"rank 1 broadcast(Double, 3 elements, root 0)", "all_reduce(Double, 3 elements, sum)"});
}

TEST(MessageExchange, DifferentSizesDtypesAndRootsFailOnBothRanks) {
  expect_on_all(
      2, [](Communicator& group) { group.all_reduce(at::ones({3 + group.rank()}))->wait(); },
      {"rank 0 all_reduce(Float, 3 elements, sum), rank 1 all_reduce(Float, 4 elements, sum)"});
  expect_on_all(
      2,
      [](Communicator& group) {
        group.all_reduce(at::ones({3}, group.rank() == 0 ? at::kFloat : at::kInt))->wait();
      },
      {"rank 0 all_reduce(Float", "rank 1 all_reduce(Int"});
  expect_on_all(2,
                [](Communicator& group) { group.broadcast(at::ones({3}), group.rank())->wait(); },
                {"rank 0 broadcast(Float, 3 elements, root 0)", "root 1)"});
  expect_on_all(
      2,
      [](Communicator& group) {
        const int64_t mine = 3 + 2 * group.rank();  // the sums are equal
        group.all_gather({at::zeros({mine}), at::zeros({8 - mine})}, at::ones({3}))->wait();
      },
      {"all_gather(Float, 8 elements in blocks"});
}

TEST(MessageExchange, BlocksOfOtherSizesThanExpectedFailOnAllRanks) {
  expect_on_all(2,
                [](Communicator& group) {
                  const int64_t expected = group.rank() == 1 ? 4 : 3;
                  group
                      .all_to_all(
                          group.rank() == 0
                              ? std::vector<at::Tensor>{at::zeros({3}), at::zeros({3})}
                              : std::vector<at::Tensor>{at::zeros({expected}), at::zeros({3})},
                          {at::ones({3}), at::ones({3})})
                      ->wait();
                },
                {"rank 0 sends 12 bytes to rank 1, which expects 16"});
}

TEST(MessageExchange, AMessageOfAnotherSizeFailsOnBothRanks) {
  expect_on_all(2,
                [](Communicator& group) {
                  if (group.rank() == 0) return group.send(at::ones({3}), 1)->wait();
                  group.recv(at::ones({4}), 0)->wait();
                },
                {"rank 0 sends send(Float, 3 elements), rank 1 expects recv(Float, 4 elements)"});
}

TEST(MessageExchange, ATimeoutOfOneCallNamesTheLateRank) {
  std::atomic<bool> is_named = false;
  run_gloo_ranks(3, [&](Communicator& group) {
    while (group.rank() == 2 && !is_named.load()) std::this_thread::yield();
    if (group.rank() == 2) return;
    try {
      group.barrier({.timeout = std::chrono::milliseconds(200)})->wait();
      ADD_FAILURE() << "expected an error";
    } catch (const CommError& error) {
      // One of the two may learn of it from the other.
      EXPECT_PRED2(contains, error.what(), "waiting for rank 2");
      EXPECT_PRED2(contains, error.what(), "barrier #1 of group world");
    }
    is_named.store(true);
  });
}

TEST(MessageExchange, AbortOfWorkEndsItHereAndOnThePeers) {
  run_gloo_ranks(2, [](Communicator& group) {
    at::Tensor data = at::ones({3});
    if (group.rank() == 1) {
      EXPECT_ERROR(CommError, group.recv(data, 0), "group world was aborted");
      return;
    }
    const WorkPtr work = group.recv(data, 1, {.background = true});
    work->abort();
    EXPECT_ERROR(CommError, work->wait(), "group world was aborted");
    EXPECT_ERROR(CommError, group.barrier(), "group world was aborted");
  });
}

// A channel that notes in which order messages are posted: r for a receive, s for a send.
class ListingChannel final : public MessageChannel {
 public:
  ListingChannel(std::shared_ptr<Mail> mail, int rank, int size, std::string& posted)
      : inner_(std::move(mail), rank, size), posted_(posted) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const std::string& transport() const override { return inner_.transport(); }
  ChannelMessagePtr send(const void* data, size_t num_bytes, int peer, int tag) override {
    posted_ += 's';
    return inner_.send(data, num_bytes, peer, tag);
  }
  ChannelMessagePtr recv(void* data, size_t num_bytes, int peer, int tag) override {
    posted_ += 'r';
    return inner_.recv(data, num_bytes, peer, tag);
  }
  void leave_word(const std::string& reason) noexcept override { inner_.leave_word(reason); }
  std::string word_left() noexcept override { return inner_.word_left(); }
  void close() noexcept override { inner_.close(); }
  std::unique_ptr<MessageChannel> split(const std::string& uid, const std::vector<int>& members,
                                        std::chrono::milliseconds timeout) override {
    return inner_.split(uid, members, timeout);
  }

 private:
  MemoryChannel inner_;
  std::string& posted_;
};

// Over Gloo a peer sends only when it knows that this rank receives, which it learns behind what
// this rank sends.
TEST(MessageExchange, PostsAllReceivesOfDataBeforeTheFirstSend) {
  for (const int size : {1, 2, 3, 4, 5}) {
    const auto mail = std::make_shared<Mail>();
    std::vector<std::string> posted(static_cast<size_t>(size));
    run_threads(size, [&](int rank) {
      MessageExchange exchange(
          std::make_unique<ListingChannel>(mail, rank, size, posted[static_cast<size_t>(rank)]),
          "world", std::chrono::seconds(10));
      std::vector<int> mine(3, rank), theirs(3 * static_cast<size_t>(size), -1);
      std::vector<ConstBlock> to(static_cast<size_t>(size), {mine.data(), 3 * sizeof(int)});
      std::vector<Block> from;
      for (int peer = 0; peer < size; ++peer) {
        from.push_back({&theirs[3 * static_cast<size_t>(peer)], 3 * sizeof(int)});
      }
      exchange.exchange({"test", std::chrono::steady_clock::now(), std::chrono::seconds(10)}, to,
                        from);
      for (int peer = 0; peer < size; ++peer) {
        EXPECT_EQ(theirs[3 * static_cast<size_t>(peer)], peer == rank ? -1 : peer);
      }
    });
    const auto others = static_cast<size_t>(size - 1);
    for (const std::string& each : posted) {
      EXPECT_EQ(each, std::string(others, 'r') + std::string(others, 's'));
    }
  }
}

}  // namespace
}  // namespace trireme::comm
