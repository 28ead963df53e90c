#include "trireme/comm/shared/thread_group.h"

#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TEST(ThreadGroup, GivesEachRankItsCommunicatorInOrder) {
  for (int size = 1; size <= 8; ++size) {
    auto ranks = make_thread_group(size);
    ASSERT_EQ(ranks.size(), static_cast<size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(ranks[rank]->rank(), rank);
      EXPECT_EQ(ranks[rank]->size(), size);
      EXPECT_EQ(ranks[rank]->name(), "world");
    }
  }
}

TEST(ThreadGroup, GroupsAreIndependentOfEachOther) {
  auto one = make_thread_group(2);
  auto other = make_thread_group(2);
  one[1].reset();
  at::Tensor first = at::ones({2}), second = at::ones({2});
  std::thread peer([&] { other[1]->all_reduce(second)->wait(); });
  other[0]->all_reduce(first)->wait();
  peer.join();
  EXPECT_EQ(first[0].item<float>(), 2);
  EXPECT_ERROR(CommError, one[0]->barrier(), "rank 1 has left the group");
}

TEST(ThreadGroup, ANumberOfRanksBelowOneIsAConfigError) {
  EXPECT_ERROR(ConfigError, make_thread_group(0), "at least one rank, got 0");
}

}  // namespace
}  // namespace trireme::comm
