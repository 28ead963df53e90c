#include "trireme/comm/c10d/completion_watch.h"

#include <atomic>
#include <future>
#include <stdexcept>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace trireme::comm {
namespace {

// Done when the test says so.
class FakeC10dWork : public c10d::Work {
 public:
  void end(std::exception_ptr error = nullptr) { finish(std::move(error)); }
};

TEST(CompletionWatch, TellsOnceWhenAllWorksAreDone) {
  const auto first = c10::make_intrusive<FakeC10dWork>();
  const auto second = c10::make_intrusive<FakeC10dWork>();
  CompletionWatch watch(c10::DeviceType::CPU);
  std::promise<bool> end;  // a second call would throw in the watch's thread
  std::atomic<bool> has_ended = false;
  watch.add({first, second}, [&](bool succeeded) {
    has_ended = true;
    end.set_value(succeeded);
  });
  std::promise<bool> nothing;
  watch.add({}, [&](bool succeeded) { nothing.set_value(succeeded); });
  EXPECT_TRUE(nothing.get_future().get()) << "nothing to wait for";
  first->end();
  EXPECT_FALSE(has_ended.load());
  second->end();
  EXPECT_TRUE(end.get_future().get());
}

TEST(CompletionWatch, TellsAFailure) {
  const auto work = c10::make_intrusive<FakeC10dWork>();
  CompletionWatch watch(c10::DeviceType::CPU);
  std::promise<bool> end;
  watch.add({work}, [&](bool succeeded) { end.set_value(succeeded); });
  work->end(std::make_exception_ptr(std::runtime_error("lost")));
  EXPECT_FALSE(end.get_future().get());
}

// As NCCL's does after a kernel has failed.
class BrokenWork : public c10d::Work {
 public:
  bool isCompleted() override { throw std::runtime_error("device-side assert"); }
};

TEST(CompletionWatch, TakesAWorkThatCannotBeAskedForAFailure) {
  CompletionWatch watch(c10::DeviceType::CPU);
  std::promise<bool> end;
  watch.add({c10::make_intrusive<BrokenWork>()}, [&](bool succeeded) { end.set_value(succeeded); });
  EXPECT_FALSE(end.get_future().get());
}

TEST(CompletionWatch, TellsWhatIsDoneWhenItEnds) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> num_successes = 0;
    {
      CompletionWatch watch(c10::DeviceType::CPU);
      const auto on_end = [&](bool succeeded) { num_successes += succeeded ? 1 : 0; };
      const auto first = c10::make_intrusive<FakeC10dWork>();
      const auto last = c10::make_intrusive<FakeC10dWork>();
      watch.add({first}, on_end);
      first->end();
      last->end();
      watch.add({last}, on_end);
    }
    EXPECT_EQ(num_successes.load(), 2);
  }
}

TEST(CompletionWatch, GivesUpWhatIsNotDone) {
  std::atomic<int> num_ends = 0;
  {
    CompletionWatch watch(c10::DeviceType::CPU);
    std::promise<bool> seen;
    watch.add({c10::make_intrusive<FakeC10dWork>()}, [&](bool) { ++num_ends; });
    watch.add({}, [&](bool) { seen.set_value(true); });
    seen.get_future().wait();
  }
  EXPECT_EQ(num_ends.load(), 0);
}

}  // namespace
}  // namespace trireme::comm
