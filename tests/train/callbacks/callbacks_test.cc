#include "trireme/train/callbacks/callbacks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include <ATen/ATen.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/train/callbacks/fake_run.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// Writes down what it hears, and may fail on one rank.
class Listener : public Callback {
 public:
  explicit Listener(std::string name = "", std::vector<std::string>* heard = nullptr)
      : name_(std::move(name)), heard_(heard) {}
  std::unique_ptr<Callback> clone() const override { return std::make_unique<Listener>(*this); }

  void on_start(RunView& run) override { hear("start", run); }
  void on_evaluate(RunView& run) override { hear("evaluate", run); }
  void on_step(RunView& run) override {
    hear("step", run);
    if (run.world().rank() == failing_rank) fail();
  }
  void on_checkpoint(RunView& run, const std::filesystem::path& checkpoint) override {
    hear(checkpoint.string(), run);
  }
  void on_stop(RunView& run) override { hear("stop", run); }

  std::vector<checkpoint::Entry> entries() const override {
    return {{.name = "sum", .local = at::zeros({2}), .layout = mesh::Layout({2}, {})}};
  }
  std::string state() const override { return "state of " + name_; }
  void restore(const std::string& state) override { restored = state; }
  verify::ProbeSink* probes(int64_t step) override {
    return step <= num_probed ? &nowhere : nullptr;
  }

  struct Nowhere : verify::ProbeSink {
    void put(const verify::ProbedBlock& /*block*/) override {}
  } nowhere;
  int64_t num_probed = 0;  // steps
  int failing_rank = -1;
  std::function<void()> fail;
  std::string restored;

 private:
  void hear(const std::string& what, RunView& run) {
    if (heard_ != nullptr && run.world().rank() == 0) heard_->push_back(name_ + " " + what);
  }

  std::string name_;
  std::vector<std::string>* heard_;
};

class CallbacksTest : public ::testing::Test {
 protected:
  Listener& add(const std::string& name) {
    auto listener = std::make_unique<Listener>(name, &heard_);
    Listener& added = *listener;
    listeners_.push_back({name, CopyBox<Callback>(std::move(listener))});
    return added;
  }

  // The error that each rank of `size` gets from an on_step().
  template <typename Expected>
  std::vector<std::string> errors(int size) {
    std::vector<std::string> messages(static_cast<size_t>(size));
    harness::run_ranks(size, [&](comm::Communicator& world) {
      std::vector<NamedCallback> mine = listeners_;
      for (size_t i = 0; i < mine.size(); ++i) {
        auto& listener = dynamic_cast<Listener&>(*mine[i].callback);
        listener.fail = dynamic_cast<Listener&>(*listeners_[i].callback).fail;
      }
      Callbacks callbacks(mine, {});
      FakeRun run(&world);
      messages[static_cast<size_t>(world.rank())] =
          harness::message_of<Expected>([&] { callbacks.call(Event::kStep, run); });
    });
    return messages;
  }

  std::vector<std::string> heard_;
  std::vector<NamedCallback> listeners_;
};

TEST_F(CallbacksTest, HearEveryEventInTheirOrder) {
  add("a");
  add("b");
  harness::run_ranks(2, [&](comm::Communicator& world) {
    std::vector<NamedCallback> mine = listeners_;
    Callbacks callbacks(mine, {});
    FakeRun run(&world);
    for (const Event event : {Event::kStart, Event::kEvaluate, Event::kStep}) {
      callbacks.call(event, run);
    }
    callbacks.call(Event::kCheckpoint, run, "path");
    callbacks.call(Event::kStop, run);
  });
  EXPECT_EQ(heard_,
            (std::vector<std::string>{"a start", "b start", "a evaluate", "b evaluate", "a step",
                                      "b step", "a path", "b path", "a stop", "b stop"}));
}

// One that is not asked would wait for probes in vain.
TEST_F(CallbacksTest, ProbesAreOneCallbacks) {
  add("a");
  add("b").num_probed = 2;
  add("c").num_probed = 1;
  Callbacks callbacks(listeners_, {});
  EXPECT_EQ(callbacks.probes(2), &dynamic_cast<Listener&>(*listeners_[1].callback).nowhere);
  EXPECT_EQ(callbacks.probes(3), nullptr);
  EXPECT_EQ(harness::message_of<ConfigError>([&] { callbacks.probes(1); }),
            "the callbacks b and c both want the probes of step 1; expected one: switch the other "
            "off");
}

TEST_F(CallbacksTest, AnErrorOnOneRankIsEveryRanksWithNameAndType) {
  for (const int size : {1, 2, 3, 4}) {
    listeners_.clear();
    add("fine");
    Listener& bad = add("bad");
    bad.failing_rank = size - 1;
    bad.fail = [] { throw std::runtime_error("no such animal"); };
    const std::string expected =
        concat("the callback bad failed on rank ", size - 1, " in on_step: no such animal");
    EXPECT_EQ(errors<InternalError>(size),
              std::vector<std::string>(static_cast<size_t>(size), expected));
    bad.fail = [] { static_cast<void>(std::filesystem::file_size("/nowhere/at/all")); };
    for (const std::string& message : errors<Error>(size)) {
      EXPECT_NE(message.find("/nowhere/at/all"), std::string::npos);
    }
    bad.fail = [] { throw ConfigError("a wrong key"); };
    for (const std::string& message : errors<ConfigError>(size)) {
      EXPECT_EQ(message,
                concat("the callback bad failed on rank ", size - 1, " in on_step: a wrong key"));
    }
    bad.fail = [] { throw CheckpointError("a bad file"); };
    for (const std::string& message : errors<CheckpointError>(size)) {
      EXPECT_NE(message.find("a bad file"), std::string::npos);
    }
  }
}

// Such as an upload on rank 0, which the others know nothing of.
TEST_F(CallbacksTest, OneThatTakesLongerThanTheTimeoutIsWaitedFor) {
  add("slow");
  std::atomic<int> num_waits = 0;
  harness::run_ranks(3,
                     [&](comm::Communicator& world) {
                       std::vector<NamedCallback> mine = listeners_;
                       auto& listener = dynamic_cast<Listener&>(*mine[0].callback);
                       listener.failing_rank = 1;
                       listener.fail = [] { std::this_thread::sleep_for(std::chrono::seconds(5)); };
                       Callbacks callbacks(
                           mine, {},
                           [&](const std::string& name, std::span<const int> ranks, auto) {
                             EXPECT_EQ(name, "slow");
                             EXPECT_TRUE(std::ranges::equal(ranks, std::vector<int>{1}));
                             ++num_waits;
                           });
                       FakeRun run(&world);
                       callbacks.call(Event::kStep, run);
                     },
                     {.timeout = std::chrono::seconds(2)});
  EXPECT_GT(num_waits, 0);
}

// Its own collectives and those that wait for it do not mix.
TEST_F(CallbacksTest, OneMayCommunicate) {
  add("talker");
  harness::run_ranks(3, [&](comm::Communicator& world) {
    std::vector<NamedCallback> mine = listeners_;
    auto& listener = dynamic_cast<Listener&>(*mine[0].callback);
    listener.failing_rank = world.rank();
    listener.fail = [&] {
      if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      at::Tensor sum = at::ones({1});
      world.all_reduce(sum)->wait();
      EXPECT_EQ(sum.item<float>(), 3);
    };
    Callbacks callbacks(mine, {});
    FakeRun run(&world);
    for (int i = 0; i < 3; ++i) callbacks.call(Event::kStep, run);
  });
}

TEST_F(CallbacksTest, LaterOnesAreNotCalledAfterAnError) {
  Listener& bad = add("bad");
  bad.failing_rank = 0;
  bad.fail = [] { throw Error("x"); };
  add("later");
  errors<Error>(2);
  EXPECT_EQ(heard_, std::vector<std::string>{"bad step"});
}

TEST_F(CallbacksTest, RequestsOfAnyRankAreEveryRanks) {
  for (const int size : {1, 2, 3, 4}) {
    harness::run_ranks(size, [&](comm::Communicator& world) {
      CallbackRequests none;
      agree(world, none);
      EXPECT_FALSE(none.stop || none.checkpoint);
      CallbackRequests requests;
      if (world.rank() == size - 1) requests.stop = {"enough", true};
      if (world.rank() == 0) requests.checkpoint = true;
      agree(world, requests);
      ASSERT_TRUE(requests.stop);
      EXPECT_EQ(requests.stop->reason, "enough");
      EXPECT_TRUE(requests.stop->for_good);
      EXPECT_TRUE(requests.checkpoint);
    });
  }
}

TEST_F(CallbacksTest, ACheckpointKeepsEachOnesStateUnderItsName) {
  const Listener& a = add("a");
  const Listener& b = add("b");
  Callbacks callbacks(listeners_, {});
  EXPECT_EQ(callbacks.states(),
            (std::map<std::string, std::string>{{"a", "state of a"}, {"b", "state of b"}}));
  const auto entries = callbacks.entries();
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name, "callback.a.sum");
  EXPECT_EQ(entries[1].name, "callback.b.sum");

  // A checkpoint of a program with "b" and "gone".
  const std::map<std::string, std::string> saved = {{"b", "B"}, {"gone", "C"}};
  const Callbacks::Wanted wanted = callbacks.wanted(saved);
  ASSERT_EQ(wanted.entries.size(), 1U);
  EXPECT_EQ(wanted.entries[0].name, "callback.b.sum");
  EXPECT_EQ(wanted.ignored, std::vector<std::string>{"callback.gone."});
  callbacks.restore(saved);
  EXPECT_EQ(a.restored, "");
  EXPECT_EQ(b.restored, "B");
}

}  // namespace
}  // namespace trireme::train
