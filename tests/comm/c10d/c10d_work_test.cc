#include "trireme/comm/c10d/c10d_work.h"

#include <atomic>
#include <future>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tests/comm/c10d/fake_work.h"
#include "tests/comm/errors.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

class C10dWorks : public testing::Test {
 protected:
  std::shared_ptr<C10dWatcher> watcher = std::make_shared<C10dWatcher>();
};

TEST_F(C10dWorks, AreSeenDoneWhenTheOperationIs) {
  Issued issued(watcher);
  EXPECT_FALSE(issued.work->isCompleted());
  issued.fake->finish();
  EXPECT_TRUE(issued.work->isCompleted());
  EXPECT_TRUE(issued.work->isSuccess());
  EXPECT_TRUE(issued.work->wait(kNoTimeout));
  EXPECT_EQ(issued.work->sourceRank(), 3);
  EXPECT_EQ(issued.work->getSequencenumber(), 7U);
  EXPECT_TRUE(issued.work->result().at(0).is_same(issued.output));
}

TEST_F(C10dWorks, CompleteTheirFutureThoughNobodyWaits) {
  Issued issued(watcher);
  const auto future = issued.work->getFuture();
  EXPECT_FALSE(future->completed());
  issued.fake->finish();
  future->waitAndThrow();
  EXPECT_TRUE(future->value().toTensorVector().at(0).is_same(issued.output));
}

TEST_F(C10dWorks, GiveACompletedFutureAfterTheEndAndAlwaysTheSame) {
  Issued issued(watcher);
  issued.fake->finish();
  issued.work->wait(kNoTimeout);
  const auto future = issued.work->getFuture();
  EXPECT_TRUE(future->completed());
  EXPECT_EQ(future, issued.work->getFuture());
}

TEST_F(C10dWorks, RunTheirEpilogueOnceBeforeAnyoneSeesTheEnd) {
  std::atomic<int> runs = 0;
  Issued issued(watcher, [&] { ++runs; });
  const auto future = issued.work->getFuture();
  std::vector<std::future<void>> waits;
  for (int i = 0; i < 8; ++i) {
    waits.push_back(std::async(std::launch::async, [&] {
      issued.work->wait(kNoTimeout);
      EXPECT_EQ(runs, 1);
    }));
  }
  EXPECT_EQ(runs, 0);
  issued.fake->finish();
  for (auto& wait : waits) wait.get();
  future->waitAndThrow();
  EXPECT_EQ(runs, 1);
}

TEST_F(C10dWorks, LetACallbackOfTheFutureWaitForTheWork) {
  Issued issued(watcher);
  const auto future = issued.work->getFuture();
  std::promise<bool> waited;
  future->addCallback([&](auto&) { waited.set_value(issued.work->wait(kNoTimeout)); });
  issued.fake->finish();
  EXPECT_TRUE(waited.get_future().get());
}

TEST_F(C10dWorks, FailAsTorchsOwnTypeInWaitAndInTheFuture) {
  int runs = 0;
  Issued issued(watcher, [&] { ++runs; });
  const auto future = issued.work->getFuture();
  issued.fake->finish("rank 1 died");
  EXPECT_ERROR(c10::DistBackendError, issued.work->wait(kNoTimeout), "rank 1 died");
  EXPECT_ERROR(c10::DistBackendError, future->waitAndThrow(), "rank 1 died");
  EXPECT_FALSE(issued.work->isSuccess());
  EXPECT_EQ(runs, 0);
}

TEST_F(C10dWorks, WaitNoLongerThanAskedAndGoOn) {
  Issued issued(watcher);
  EXPECT_ERROR(c10::DistBackendError, issued.work->wait(std::chrono::milliseconds(5)),
               "[trireme] Operation timed out! ALLREDUCE #7 is not done after 0.005 s");
  EXPECT_FALSE(issued.work->isCompleted());
  issued.fake->finish();
  EXPECT_TRUE(issued.work->wait(std::chrono::minutes(1)));
}

TEST_F(C10dWorks, PassAnAbortOn) {
  Issued issued(watcher);
  issued.work->abort();
  EXPECT_ERROR(c10::DistBackendError, issued.work->wait(kNoTimeout), "aborted");
}

}  // namespace
}  // namespace trireme::comm
