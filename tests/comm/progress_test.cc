#include "trireme/comm/background_work.h"

#include <atomic>
#include <future>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TEST(Progress, RunsBackgroundWorkInOrderOnOneOtherThread) {
  Progress progress(std::make_shared<AbortSwitch>([] {}));
  std::vector<int> order;
  std::vector<WorkPtr> works;
  for (int i = 0; i < 100; ++i) {
    works.push_back(progress.run_in_background([&order, i] {
      EXPECT_EQ(order.size(), static_cast<size_t>(i));
      order.push_back(i);
    }));
  }
  for (const WorkPtr& work : works) work->wait();
  EXPECT_EQ(order.size(), 100U);
}

TEST(Progress, ForegroundRunsInTheCallersThreadAfterAllBackgroundWork) {
  Progress progress(std::make_shared<AbortSwitch>([] {}));
  std::promise<void> gate;
  int background = 0;
  const WorkPtr first = progress.run_in_background([&] { gate.get_future().wait(); });
  const WorkPtr second = progress.run_in_background([&] { ++background; });
  EXPECT_FALSE(first->poll());
  std::thread opener([&] { gate.set_value(); });
  const auto caller = std::this_thread::get_id();
  const WorkPtr done = progress.run([&] {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(background, 1);
  });
  EXPECT_TRUE(done->poll());
  done->wait();
  EXPECT_TRUE(first->poll());
  opener.join();
}

TEST(Progress, WaitThrowsWhatTheOperationThrewEachTime) {
  Progress progress(std::make_shared<AbortSwitch>([] {}));
  const WorkPtr bad = progress.run_in_background([] { throw CommError("lost"); });
  const WorkPtr good = progress.run_in_background([] {});
  EXPECT_ERROR(CommError, bad->wait(), "lost");
  EXPECT_ERROR(CommError, bad->wait(), "lost");
  EXPECT_TRUE(bad->poll());
  EXPECT_NO_THROW(good->wait());
  EXPECT_ERROR(CommError, progress.run([] { throw CommError("here"); }), "here");
}

TEST(Progress, DestructorAbortsWhatRunsAndWhatWaits) {
  std::atomic<bool> aborted = false;
  WorkPtr running, waiting;
  {
    Progress progress(std::make_shared<AbortSwitch>([&] { aborted.store(true); }));
    const auto until_aborted = [&] {
      while (!aborted.load()) std::this_thread::yield();
      throw CommError("aborted");
    };
    running = progress.run_in_background(until_aborted);
    waiting = progress.run_in_background(until_aborted);
  }
  EXPECT_ERROR(CommError, running->wait(), "aborted");
  EXPECT_ERROR(CommError, waiting->wait(), "aborted");
}

TEST(Progress, LeavingAfterFinishedWorkIsNoAbort) {
  for (int i = 0; i < 1000; ++i) {
    std::atomic<bool> aborted = false;
    {
      Progress progress(std::make_shared<AbortSwitch>([&] { aborted.store(true); }));
      progress.run_in_background([] {})->wait();
    }
    ASSERT_FALSE(aborted.load()) << "round " << i;
  }
}

}  // namespace
}  // namespace trireme::comm
