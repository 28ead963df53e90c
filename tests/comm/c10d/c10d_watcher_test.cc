#include "trireme/comm/c10d/c10d_work.h"

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "tests/comm/c10d/fake_work.h"
#include "tests/comm/errors.h"

namespace trireme::comm {
namespace {

class WatchedWorks : public testing::Test {
 protected:
  std::shared_ptr<C10dWatcher> watcher = std::make_shared<C10dWatcher>();
};

TEST_F(WatchedWorks, CompleteTheFutureOfALaterOneWhileAnEarlierOneStillRuns) {
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

TEST_F(WatchedWorks, FailWhenTheirWatcherEndsBeforeThem) {
  Issued watched(watcher);
  Issued late(watcher);
  const auto future = watched.work->getFuture();
  watcher.reset();
  EXPECT_ERROR(c10::DistBackendError, future->waitAndThrow(), "shut down");
  EXPECT_ERROR(c10::DistBackendError, late.work->getFuture()->waitAndThrow(), "shut down");
}

TEST_F(WatchedWorks, KeepTheOutcomeOfAnEndThatCameBeforeTheWatchers) {
  Issued issued(watcher);
  issued.fake->finish();
  watcher.reset();
  issued.work->getFuture()->waitAndThrow();
  EXPECT_TRUE(issued.work->isSuccess());
}

// The end of a tensor that Python made needs the interpreter's lock, whose holder may be about to
// have a work watched.
TEST_F(WatchedWorks, LetOthersBeWatchedWhileTheirTensorsEnd) {
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

// What a hook of DDP does when it reduces in several steps, here `depth` of them.
void complete_after_nested(const std::shared_ptr<C10dWatcher>& watcher, int depth,
                           const std::shared_ptr<std::promise<void>>& end) {
  const Issued issued(watcher);
  const auto future = issued.work->getFuture();
  future->addCallback([watcher, depth, end](auto&) {
    if (depth == 0) return end->set_value();
    const auto below = std::make_shared<std::promise<void>>();
    complete_after_nested(watcher, depth - 1, below);
    below->get_future().wait();
    end->set_value();
  });
  issued.fake->finish();
}

TEST_F(WatchedWorks, LetCallbacksWaitForTheFuturesOfWorksThatTheyIssue) {
  const auto end = std::make_shared<std::promise<void>>();
  complete_after_nested(watcher, 4, end);
  ASSERT_EQ(end->get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
}

TEST_F(WatchedWorks, LetACallbackWaitForTheFutureOfAWorkThatEndsWithIts) {
  const Issued first(watcher), second(watcher);
  const auto end = std::make_shared<std::promise<void>>();
  const auto other = second.work->getFuture();
  first.work->getFuture()->addCallback([other, end](auto&) {
    other->wait();
    end->set_value();
  });
  second.fake->finish();
  first.fake->finish();
  ASSERT_EQ(end->get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
}

TEST_F(WatchedWorks, CompleteManyWhoseCallbacksAllWait) {
  constexpr int kWorks = 20;
  const auto may_end = std::make_shared<std::promise<void>>();
  const auto gate = may_end->get_future().share();
  std::atomic<int> begun = 0;
  std::vector<Issued> issued;
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> children;
  for (int i = 0; i < kWorks; ++i) {
    issued.emplace_back(watcher);
    children.push_back(issued.back().work->getFuture()->then(
        [gate, &begun](auto&) {
          if (++begun == kWorks) begun.notify_all();
          gate.wait();
          return c10::IValue();
        },
        c10::NoneType::get()));
  }
  for (const Issued& each : issued) each.fake->finish();
  for (int now = begun; now < kWorks; now = begun) begun.wait(now);
  may_end->set_value();
  for (const auto& child : children) child->waitAndThrow();
}

TEST_F(WatchedWorks, EndThoughACallbackGivesUpTheLastReference) {
  auto end = std::make_shared<std::promise<void>>();
  const auto ended = end->get_future();
  {
    const Issued issued(watcher);
    issued.work->getFuture()->addCallback(
        [last = std::make_shared<std::shared_ptr<C10dWatcher>>(std::move(watcher)), end](auto&) {
          last->reset();
          end->set_value();
        });
    issued.fake->finish();
  }
  ended.wait();
}

}  // namespace
}  // namespace trireme::comm
