#include "trireme/comm/sized_message.h"

#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/hierarchical/hierarchical_ranks.h"
#include "tests/comm/message/memory_channel.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/message/message_communicator.h"

namespace trireme::comm {
namespace {

at::Tensor numbers_of(int rank, int64_t count) {
  return at::arange(count, at::kDouble) + 1000 * rank;
}

// Every rank with every other, of several sizes, beside announced messages of the same tag.
void swap_all(Communicator& group) {
  for (const int64_t count : {0, 1, 1000, 300'000}) {
    std::vector<at::Tensor> sized, announced;
    std::vector<WorkPtr> works;
    const Options options{.tag = 3};
    const Options in_background{.tag = 3, .background = true};
    for (int peer = 0; peer < group.size(); ++peer) {
      // Every other number of a longer tensor: a message may arrive in one with gaps.
      sized.push_back(at::zeros({count, 2}, at::kDouble).select(1, 0));
      announced.push_back(at::zeros({count + 1}, at::kDouble));
      if (peer == group.rank()) continue;
      works.push_back(recv_sized(group, sized.back(), peer, options));
      works.push_back(group.recv(announced.back(), peer, in_background));
    }
    for (int peer = 0; peer < group.size(); ++peer) {
      if (peer == group.rank()) continue;
      works.push_back(group.send(numbers_of(group.rank(), count + 1), peer, in_background));
      works.push_back(send_sized(group, numbers_of(group.rank(), count), peer, options));
    }
    for (const WorkPtr& work : works) work->wait();
    for (int peer = 0; peer < group.size(); ++peer) {
      if (peer == group.rank()) continue;
      const auto at = static_cast<size_t>(peer);
      EXPECT_TRUE(sized[at].equal(numbers_of(peer, count))) << peer << ", " << count;
      EXPECT_TRUE(announced[at].equal(numbers_of(peer, count + 1))) << peer << ", " << count;
    }
  }
}

TEST(SizedMessage, ArrivesOnEveryKindOfGroup) {
  for (const int size : {1, 2, 3, 4}) {
    harness::run_ranks(size, swap_all);
    const auto mail = std::make_shared<Mail>();
    run_threads(size, [&](int rank) {
      MessageCommunicator group(std::make_unique<MemoryChannel>(mail, rank, size), "messages",
                                std::chrono::seconds(10), {});
      swap_all(group);
    });
  }
  for (const std::vector<int>& hosts :
       {std::vector{0, 1}, std::vector{0, 0, 1}, std::vector{0, 1, 0, 2}}) {
    run_hierarchical_ranks(hosts, swap_all);
  }
}

TEST(SizedMessage, KeepsTheOrderOfItsTag) {
  harness::run_ranks(2, [](Communicator& group) {
    const int peer = 1 - group.rank();
    std::vector<at::Tensor> theirs;
    std::vector<WorkPtr> works;
    for (int64_t i = 0; i < 5; ++i) {
      theirs.push_back(at::zeros({i + 1}, at::kDouble));
      works.push_back(recv_sized(group, theirs.back(), peer, {.tag = 1}));
    }
    for (int64_t i = 0; i < 5; ++i) {
      works.push_back(send_sized(group, numbers_of(group.rank() + 1, i + 1), peer, {.tag = 1}));
    }
    for (const WorkPtr& work : works) work->wait();
    for (int64_t i = 0; i < 5; ++i) {
      EXPECT_TRUE(theirs[static_cast<size_t>(i)].equal(numbers_of(peer + 1, i + 1)));
    }
  });
}

TEST(SizedMessage, NeedsARankAndATagOfTheUsers) {
  harness::run_ranks(2, [](Communicator& group) {
    const at::Tensor data = at::zeros({1});
    EXPECT_THROW(static_cast<void>(recv_sized(group, data, kAnySource, {})), InternalError);
    EXPECT_THROW(
        static_cast<void>(send_sized(group, data, 1 - group.rank(), {.tag = kMostTag + 1})),
        InternalError);
  });
}

}  // namespace
}  // namespace trireme::comm
