#include "trireme/comm/c10d/c10d_work.h"

#include <atomic>
#include <condition_variable>
#include <future>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

// Done when the test says so.
class FakeWork : public Work {
 public:
  void finish(std::string error = "") {
    const std::lock_guard lock(mutex_);
    done_ = true;
    error_ = std::move(error);
    changed_.notify_all();
  }
  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    if (!error_.empty()) throw CommError(error_);
  }
  bool wait_for(std::chrono::milliseconds limit) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [this] { return done_; })) return false;
    if (!error_.empty()) throw CommError(error_);
    return true;
  }
  bool poll() override {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  void abort() override { finish("aborted"); }
  int source() const override { return 3; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::string error_;
};

struct Issued {
  explicit Issued(const std::shared_ptr<C10dWatcher>& watcher, std::function<void()> epilogue = {},
                  at::Tensor result = at::arange(3))
      : output(std::move(result)),
        work(c10::make_intrusive<C10dWork>(
            0, C10dWork::Description{c10d::OpType::ALLREDUCE, nullptr, {}, {output}, 7}, watcher)) {
    work->start(fake, std::move(epilogue));
  }
  std::shared_ptr<FakeWork> fake = std::make_shared<FakeWork>();
  at::Tensor output;
  c10::intrusive_ptr<C10dWork> work;
};

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

TEST_F(C10dWorks, CompleteTheFutureOfALaterOneWhileAnEarlierOneStillRuns) {
  Issued first(watcher);
  Issued second(watcher);
  const auto first_future = first.work->getFuture();
  const auto second_future = second.work->getFuture();
  second.fake->finish();
  second_future->waitAndThrow();
  EXPECT_FALSE(first_future->completed());
  first.fake->finish();
  first_future->waitAndThrow();
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

TEST_F(C10dWorks, FailWhenTheirWatcherEndsBeforeThem) {
  Issued watched(watcher);
  Issued late(watcher);
  const auto future = watched.work->getFuture();
  watcher.reset();
  EXPECT_ERROR(c10::DistBackendError, future->waitAndThrow(), "shut down");
  EXPECT_ERROR(c10::DistBackendError, late.work->getFuture()->waitAndThrow(), "shut down");
}

TEST_F(C10dWorks, KeepTheOutcomeOfAnEndThatCameBeforeTheWatchers) {
  Issued issued(watcher);
  issued.fake->finish();
  watcher.reset();
  issued.work->getFuture()->waitAndThrow();
  EXPECT_TRUE(issued.work->isSuccess());
}

// The end of a tensor that Python made needs the interpreter's lock, whose holder may be about to
// have a work watched.
TEST_F(C10dWorks, LetOthersBeWatchedWhileTheirTensorsEnd) {
  std::promise<void> ending, may_end;
  int64_t value = 0;
  const auto end = [&](void*) {
    ending.set_value();
    may_end.get_future().wait();
  };
  std::shared_ptr<FakeWork> operation;
  {
    const Issued issued(watcher, {}, at::from_blob(&value, {1}, end, at::kLong));
    issued.work->getFuture();
    operation = issued.fake;
  }
  operation->finish();  // the watcher alone holds the work, and with it the tensor
  ending.get_future().wait();
  const Issued other(watcher);
  auto asked = std::async(std::launch::async, [&] { return other.work->getFuture(); });
  EXPECT_EQ(asked.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  may_end.set_value();
  const auto future = asked.get();
  other.fake->finish();
  future->waitAndThrow();
}

TEST_F(C10dWorks, PassAnAbortOn) {
  Issued issued(watcher);
  issued.work->abort();
  EXPECT_ERROR(c10::DistBackendError, issued.work->wait(kNoTimeout), "aborted");
}

}  // namespace
}  // namespace trireme::comm
