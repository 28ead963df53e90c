#include "trireme/comm/background_work.h"

#include <atomic>
#include <future>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

const std::function<void()> kNoAbort = [] {};

TEST(WorkQueue, BackgroundCollectivesRunInTheOrderOfTheirCalls) {
  std::vector<int> order;
  std::vector<WorkPtr> works;
  WorkQueue queue(kNoAbort);
  for (int i = 0; i < 20; ++i) {
    works.push_back(queue.collectives().run_in_background([&order, i] { order.push_back(i); }));
  }
  const WorkPtr last = queue.collectives().run([&order] { order.push_back(20); });
  EXPECT_TRUE(last->poll());
  for (int i = 0; i <= 20; ++i) EXPECT_EQ(order[i], i);
}

TEST(WorkQueue, MessagesRunSideBySideAndDoNotWaitForCollectives) {
  WorkQueue queue(kNoAbort);
  std::promise<void> first, second, collective;
  const WorkPtr blocked =
      queue.collectives().run_in_background([&] { collective.get_future().wait(); });
  // Each waits for the one issued after it.
  const WorkPtr a = queue.run_beside([&] { return first.get_future().wait(), 7; }, true);
  const WorkPtr b = queue.run_beside(
      [&] {
        second.get_future().wait();
        first.set_value();
        return 8;
      },
      true);
  const WorkPtr c = queue.run_beside([&] { return second.set_value(), 9; }, true);
  a->wait();
  b->wait();
  EXPECT_TRUE(c->wait_for(std::chrono::minutes(1)));
  EXPECT_EQ(a->source(), 7);
  EXPECT_EQ(c->source(), 9);
  EXPECT_FALSE(blocked->poll());
  EXPECT_FALSE(blocked->wait_for(std::chrono::milliseconds(1)));
  collective.set_value();
  blocked->wait();
}

TEST(WorkQueue, WhatAnOperationThrowsIsThrownByItsWait) {
  WorkQueue queue(kNoAbort);
  const auto fails = []() -> int { throw std::runtime_error("leak"); };
  EXPECT_THROW(queue.collectives().run(fails), std::runtime_error);
  EXPECT_THROW(queue.run_beside(fails, false), std::runtime_error);
  EXPECT_THROW(queue.collectives().run_in_background(fails)->wait(), std::runtime_error);
  EXPECT_THROW(queue.run_beside(fails, true)->wait_for(std::chrono::minutes(1)),
               std::runtime_error);
}

TEST(WorkQueue, LeavingABusyQueueAbortsAndAnIdleOneDoesNot) {
  std::atomic<int> aborts = 0;
  WorkPtr work;
  {
    std::promise<void> stop;
    WorkQueue queue([&] {
      ++aborts;
      stop.set_value();
    });
    work = queue.run_beside(
        [&]() -> int {
          stop.get_future().wait();
          throw std::runtime_error("aborted");
        },
        true);
  }
  EXPECT_EQ(aborts.load(), 1);
  EXPECT_THROW(work->wait(), std::runtime_error);
  {
    WorkQueue queue([&] { ++aborts; });
    work = queue.collectives().run_in_background([] {});
    work->wait();
  }
  work->abort();  // of a group that is gone
  EXPECT_EQ(aborts.load(), 1);
}

}  // namespace
}  // namespace trireme::comm
