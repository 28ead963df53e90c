#include "trireme/comm/cancellation.h"

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/comm/shared/shm_group.h"
#include "trireme/comm/shared/thread_group.h"

namespace trireme::comm {
namespace {

TEST(Cancellation, AbortsWhatWatchesOnceWithTheFirstReason) {
  Cancellation cancellation;
  std::vector<std::string> reasons;
  const auto first = cancellation.watch([&](const std::string& why) { reasons.push_back(why); });
  const auto second = cancellation.watch([&](const std::string& why) { reasons.push_back(why); });
  {
    const auto gone = cancellation.watch([&](const std::string&) { reasons.push_back("gone"); });
  }
  EXPECT_EQ(cancellation.reason(), "");
  cancellation.check("meeting");
  cancellation.cancel("rank 2 is lost");
  cancellation.cancel("another reason");
  EXPECT_EQ(reasons, (std::vector<std::string>{"rank 2 is lost", "rank 2 is lost"}));
  EXPECT_EQ(cancellation.reason(), "rank 2 is lost");
  EXPECT_THROW(cancellation.check("meeting"), CommError);
}

TEST(Cancellation, AbortsAtOnceWhatComesLater) {
  Cancellation cancellation;
  cancellation.cancel("too late");
  std::string reason;
  const auto watch = cancellation.watch([&](const std::string& why) { reason = why; });
  EXPECT_EQ(reason, "too late");
}

TEST(Cancellation, AWatchGoesOnlyWhenItsAbortHasReturned) {
  Cancellation cancellation;
  std::promise<void> began;
  std::promise<void> may_end;
  std::atomic<bool> ended = false;
  auto watch = std::make_optional(cancellation.watch([&](const std::string&) {
    began.set_value();
    may_end.get_future().wait();
    ended = true;
  }));
  std::thread canceller([&] { cancellation.cancel("now"); });
  began.get_future().wait();
  auto gone = std::async(std::launch::async, [&] {
    watch.reset();
    return ended.load();
  });
  may_end.set_value();
  EXPECT_TRUE(gone.get());
  canceller.join();
}

TEST(Cancellation, EndsWaitsInAGroupAndItsSubGroups) {
  const auto cancellation = std::make_shared<Cancellation>();
  auto world = make_thread_group(2, {.cancellation = cancellation});
  // The peer takes part in the split, and in nothing else.
  std::unique_ptr<Communicator> peers_part;
  std::thread peer([&] { peers_part = world[1]->split(0, 1, "part"); });
  const auto part = world[0]->split(0, 0, "part");
  peer.join();
  std::thread canceller([&] { cancellation->cancel("rank 1 of another host is lost"); });
  EXPECT_THROW(part->all_reduce(at::ones({3}))->wait(), CommError);
  EXPECT_THROW(world[0]->barrier()->wait(), CommError);
  canceller.join();
}

TEST(Cancellation, EndsAMeetingOfProcesses) {
  const auto cancellation = std::make_shared<Cancellation>();
  const std::string job = concat("cancellation-test-", getpid());
  for (const int rank : {0, 1}) {  // as the one that makes the memory, and as one that waits for it
    std::thread canceller([&] { cancellation->cancel("rank 2 was killed"); });
    try {
      make_shm_group(job, rank, 3, {.cancellation = cancellation});
      ADD_FAILURE() << "a group of missing ranks";
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 2 was killed"), std::string::npos);
    }
    canceller.join();
  }
}

}  // namespace
}  // namespace trireme::comm
