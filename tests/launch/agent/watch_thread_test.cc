#include "trireme/launch/agent/crew.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace trireme::launch {
namespace {

TEST(WatchThread, SeesTheRanksThatAreAskedFor) {
  WatchThread watch({.host = "here"});
  const std::vector<WatchedProcess> both = {{.rank = 3, .process_id = getpid()},
                                            {.rank = 4, .process_id = getpid()}};
  std::vector<Observation> seen;
  while ((seen = watch.poll(both)).empty()) {  // ctest bounds it
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].rank, 3);
  EXPECT_EQ(seen[0].host, "here");
  EXPECT_EQ(seen[0].process_id, getpid());
  seen = watch.poll({both[1]});
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].rank, 4);
  EXPECT_TRUE(watch.poll({}).empty());
}

}  // namespace
}  // namespace trireme::launch
