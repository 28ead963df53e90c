#include "trireme/comm/background_work.h"

#include <exception>
#include <thread>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;

std::shared_ptr<AbortSwitch> no_abort() {
  return std::make_shared<AbortSwitch>([] {});
}

TEST(PendingWork, WaitReturnsOnceAnotherThreadHasFinishedIt) {
  PendingWork work(no_abort());
  EXPECT_FALSE(work.poll());
  EXPECT_EQ(work.source(), -1);
  std::thread other([&] { work.finish(nullptr, 3); });
  work.wait();
  EXPECT_TRUE(work.poll());
  EXPECT_EQ(work.source(), 3);
  other.join();
}

TEST(PendingWork, WaitWithALimitSaysWhetherItIsDone) {
  PendingWork work(no_abort());
  EXPECT_FALSE(work.wait_for(milliseconds(1)));
  work.finish(nullptr);
  EXPECT_TRUE(work.wait_for(milliseconds(0)));
}

TEST(PendingWork, EveryWaitThrowsWhatItFinishedWith) {
  PendingWork work(no_abort());
  work.finish(std::make_exception_ptr(CommError("lost")));
  EXPECT_TRUE(work.poll());
  EXPECT_ERROR(CommError, work.wait(), "lost");
  EXPECT_ERROR(CommError, work.wait_for(milliseconds(0)), "lost");
}

TEST(PendingWork, AbortReachesTheGroupUntilItGoes) {
  int aborts = 0;
  const auto abort = std::make_shared<AbortSwitch>([&] { ++aborts; });
  PendingWork work(abort);
  work.abort();
  EXPECT_EQ(aborts, 1);
  abort->disconnect();
  work.abort();
  EXPECT_EQ(aborts, 1);
}

TEST(DoneWork, IsDone) {
  const WorkPtr work = done_work();
  work->wait();
  work->abort();
  EXPECT_TRUE(work->poll());
  EXPECT_TRUE(work->wait_for(milliseconds(0)));
  EXPECT_EQ(work->source(), -1);
}

}  // namespace
}  // namespace trireme::comm
