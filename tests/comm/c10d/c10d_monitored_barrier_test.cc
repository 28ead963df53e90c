#include "trireme/comm/c10d/gloo_behaviour.h"

#include <atomic>
#include <csignal>
#include <latch>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAmple = std::chrono::minutes(1);
constexpr milliseconds kShort(50);

void come(Communicator& group, milliseconds limit, bool wait_all_ranks = false) {
  std::mutex issuing;
  monitored_barrier(group, issuing, limit, wait_all_ranks);
}

TEST(MonitoredBarrier, ReturnsWhenAllHaveComeAndAgain) {
  for (const int size : {1, 2, 3, 4}) {
    std::atomic<int> arrived = 0;
    harness::run_ranks(size, [&](Communicator& group) {
      for (int round = 1; round <= 3; ++round) {
        ++arrived;
        come(group, kAmple, round == 2);
        EXPECT_GE(arrived.load(), round * size);
        at::Tensor data = at::ones({3});  // the group goes on
        group.all_reduce(data)->wait();
        EXPECT_EQ(data[0].item<double>(), size);
      }
    });
  }
}

TEST(MonitoredBarrier, NamesTheFirstLateRankOrAllOfThem) {
  for (const bool wait_all_ranks : {false, true}) {
    std::latch over(4);
    harness::run_ranks(4, [&](Communicator& group) {
      if (group.rank() == 0) {
        EXPECT_ERROR(c10::DistBackendError, come(group, kShort, wait_all_ranks),
                     wait_all_ranks
                         ? "[Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 50 "
                           "ms: monitored_barrier of group"
                         : "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 50 ms: ");
      } else if (group.rank() == 2) {
        EXPECT_ERROR(c10::DistBackendError, come(group, kAmple),
                     "Rank 2 successfully reached monitoredBarrier, but received errors while "
                     "waiting for send/recv from rank 0. Please check rank 0 logs for faulty "
                     "rank: monitored_barrier of group");
      } else if (group.rank() == 3) {  // stuck somewhere else: it hears who is to blame
        at::Tensor data = at::ones({3});
        EXPECT_ERROR(CommError, group.all_reduce(data), "waiting for rank 1");
      }
      over.arrive_and_wait();
    });
  }
}

TEST(MonitoredBarrier, WithoutTimeWantsAllToBeThere) {
  std::latch over(2);
  harness::run_ranks(2, [&](Communicator& group) {
    if (group.rank() == 0) {
      EXPECT_ERROR(c10::DistBackendError, come(group, milliseconds(0)),
                   "Rank 0 timed out in monitoredBarrier after 0 ms");
    }
    over.arrive_and_wait();
  });
}

TEST(MonitoredBarrier, NamesRank0WhenItDoesNotCome) {
  std::latch over(2);
  harness::run_ranks(2, [&](Communicator& group) {
    if (group.rank() == 1) {
      EXPECT_ERROR(c10::DistBackendError, come(group, kShort), "waiting for rank 0");
    }
    over.arrive_and_wait();
  });
}

TEST(MonitoredBarrier, SaysThatARankHasDied) {
  const auto statuses = harness::fork_ranks(3, [](Communicator& group) {
    if (group.rank() == 1) raise(SIGKILL);
    const std::string error = error_of<c10::DistBackendError>([&] { come(group, kAmple); });
    const char* expected =
        group.rank() == 0 ? "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 60000 ms: "
                          : "Rank 2 successfully reached monitoredBarrier, but received errors";
    TRIREME_CHECK(contains(error, expected) && contains(error, "rank 1 died"), error);
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0, -SIGKILL, 0}));
}

TEST(MonitoredBarrier, IsNotHeldUpByACollectiveThatWaits) {
  harness::run_ranks(2, [&](Communicator& group) {
    at::Tensor data = at::ones({3});
    WorkPtr work;
    if (group.rank() == 1) work = group.all_reduce(data, {.background = true});
    come(group, kAmple);
    if (group.rank() == 0) work = group.all_reduce(data, {.background = true});
    work->wait();
    EXPECT_EQ(data[0].item<double>(), 2);
  });
}

}  // namespace
}  // namespace trireme::comm
