#include "trireme/launch/output/output.h"

#include <atomic>
#include <csignal>
#include <future>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLong = 1min;

TEST(TaskQueue, RunsTasksInOrder) {
  TaskQueue queue(1000);
  const auto done = std::make_shared<std::vector<int>>();
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(queue.post(1, [done, i] { done->push_back(i); }));
  EXPECT_TRUE(queue.finish(kLong));
  ASSERT_EQ(done->size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ((*done)[i], i);
  EXPECT_EQ(queue.running_for(), 0ms);
}

TEST(TaskQueue, DropsWhatHasNoRoomUntilHalfIsFree) {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto begun = std::make_shared<std::promise<void>>();
  TaskQueue queue(100);
  ASSERT_TRUE(queue.post(100, [gate, begun] {
    begun->set_value();
    gate->get_future().wait();
  }));
  begun->get_future().wait();  // it no longer waits
  EXPECT_GT(queue.running_for(), 0ms);
  EXPECT_TRUE(queue.post(60, [] {}));
  EXPECT_FALSE(queue.post(60, [] {}));
  EXPECT_FALSE(queue.post(1, [] {}));  // would fit, but would end the gap at once
  EXPECT_FALSE(queue.finish(10ms));
  gate->set_value();
  EXPECT_TRUE(queue.finish(kLong));
  EXPECT_TRUE(queue.post(1, [] {}));
}

TEST(TaskQueue, LeavesATaskBehindThatHangs) {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<void>>();
  const auto others = std::make_shared<std::atomic<int>>(0);
  const auto begun = std::make_shared<std::promise<void>>();
  std::future<void> end = ended->get_future();
  {
    TaskQueue queue(100);
    queue.post(1, [gate, begun, ended] {
      begun->set_value();
      gate->get_future().wait();
      ended->set_value();
    });
    queue.post(1, [others] { ++*others; });
    begun->get_future().wait();
  }
  gate->set_value();
  end.wait();
  EXPECT_EQ(*others, 0);
}

TEST(TaskQueue, GetsAnErrorInsteadOfASignalWhenAReaderHasLeft) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  const auto size = std::make_shared<ssize_t>(0);
  TaskQueue queue(100);
  queue.post(1, [size, to = ends[1]] { *size = write(to, "x", 1); });
  EXPECT_TRUE(queue.finish(kLong));
  EXPECT_EQ(*size, -1);
  close(ends[1]);
}

}  // namespace
}  // namespace trireme::launch
