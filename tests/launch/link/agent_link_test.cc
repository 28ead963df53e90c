#include "trireme/launch/link/link_ends.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

constexpr std::chrono::seconds kLong{60};

// The two ends in one process.
class Ends {
 public:
  Ends() { agent_->close_child(); }
  WorkerLink& agent() { return *agent_; }
  AgentLink& worker() { return worker_; }
  void end_agent() { agent_.reset(); }
  void send_raw(std::string_view packet) {
    ASSERT_EQ(write(agent_->descriptor(), packet.data(), packet.size()),
              static_cast<ssize_t>(packet.size()));
  }

 private:
  std::unique_ptr<WorkerLink> agent_ = std::make_unique<WorkerLink>();
  AgentLink worker_{dup(agent_->child_descriptor())};
};

Join join_of(int64_t epoch) { return {.epoch = epoch, .job = "job"}; }

TEST(AgentLink, WaitsForTheNextEpoch) {
  Ends ends;
  EXPECT_EQ(ends.worker().wait_join(1, std::chrono::milliseconds(1)), std::nullopt);
  ends.agent().send(join_of(1));
  ends.agent().send(join_of(2));
  EXPECT_EQ(ends.worker().wait_join(1, kLong), join_of(2));
  EXPECT_EQ(ends.worker().wait_join(2, std::chrono::milliseconds(1)), std::nullopt);
}

TEST(AgentLink, IgnoresAnEpochThatWasLeftBeforeItBegan) {
  Ends ends;
  ends.agent().send(join_of(2));
  ends.agent().send(Leave{2, "another one died"});
  // Only a leave that has been read can make it ignore the join before it.
  while (!ends.worker().newest_leave()) std::this_thread::yield();
  ends.agent().send(join_of(3));
  EXPECT_EQ(ends.worker().wait_join(1, kLong), join_of(3));
  EXPECT_EQ(ends.worker().newest_leave(), (Leave{2, "another one died"}));
}

TEST(AgentLink, CallsBackInTheReadingThread) {
  Ends ends;
  std::promise<std::string> reason;
  ends.worker().on_leave(2, [&](const std::string& text) { reason.set_value(text); });
  ends.agent().send(Leave{1, "of an older epoch"});
  ends.agent().send(Leave{2, "rank 2 was killed"});
  ends.agent().send(Leave{3, "not called twice"});
  EXPECT_EQ(reason.get_future().get(), "rank 2 was killed");
}

TEST(AgentLink, CallsBackAtOnceWhenTheEpochIsLeftAlready) {
  Ends ends;
  ends.agent().send(Leave{2, "too late"});
  ends.agent().send(join_of(3));
  ASSERT_TRUE(ends.worker().wait_join(2, kLong));
  std::string reason;
  ends.worker().on_leave(2, [&](const std::string& text) { reason = text; });
  EXPECT_EQ(reason, "too late");
  reason.clear();
  ends.worker().on_leave(3, [&](const std::string& text) { reason = text; });
  EXPECT_EQ(reason, "");
}

TEST(AgentLink, KnowsWhichEpochHasToBeFinished) {
  Ends ends;
  EXPECT_FALSE(ends.worker().has_to_finish(1));
  ends.agent().send(Finish{2, "host b joins"});
  ends.agent().send(join_of(3));
  ASSERT_TRUE(ends.worker().wait_join(2, kLong));  // so both have been read
  EXPECT_TRUE(ends.worker().has_to_finish(1));
  EXPECT_TRUE(ends.worker().has_to_finish(2));
  EXPECT_FALSE(ends.worker().has_to_finish(3));
}

TEST(AgentLink, TakesACallbackBackOnlyWhenItHasReturned) {
  Ends ends;
  std::promise<void> began;
  std::promise<void> may_end;
  std::atomic<bool> ended = false;
  ends.worker().on_leave(1, [&](const std::string&) {
    began.set_value();
    may_end.get_future().wait();
    ended = true;
  });
  ends.agent().send(Leave{1, "now"});
  began.get_future().wait();
  auto taken = std::async(std::launch::async, [&] {
    ends.worker().on_leave(1, nullptr);
    return ended.load();
  });
  may_end.set_value();
  EXPECT_TRUE(taken.get());
}

TEST(AgentLink, TellsThatTheAgentIsGone) {
  std::promise<std::string> reason;
  Ends ends;
  ends.worker().on_leave(1, [&](const std::string& text) { reason.set_value(text); });
  ends.end_agent();
  EXPECT_EQ(reason.get_future().get(), "the agent of this host is gone");
  EXPECT_THROW(ends.worker().wait_join(0, kLong), CommError);
  EXPECT_FALSE(ends.worker().send(Spare{1}));
}

TEST(AgentLink, EndsAtAPacketThatIsNoMessage) {
  std::promise<std::string> reason;
  Ends ends;
  ends.worker().on_leave(1, [&](const std::string& text) { reason.set_value(text); });
  ends.send_raw(R"({"message":"jump"})");
  EXPECT_EQ(reason.get_future().get(),
            R"(the link to the agent: message is "jump"; expected "join", "leave" or "finish")");
  EXPECT_THROW(ends.worker().wait_join(0, kLong), ConfigError);
}

TEST(AgentLink, SendsFromAnyThread) {
  Ends ends;
  std::thread other([&] { EXPECT_TRUE(ends.worker().send(StepDone{1, 7}, kLong)); });
  other.join();
  EXPECT_TRUE(ends.worker().send(Left{1, 7, "lost"}, kLong));
  EXPECT_EQ(ends.agent().receive(), ToAgent(StepDone{1, 7}));
  EXPECT_EQ(ends.agent().receive(), ToAgent(Left{1, 7, "lost"}));
}

}  // namespace
}  // namespace trireme::launch
