// Reads that wait for something that never comes do not keep a run from ending.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/train/points_run.h"
#include "trireme/base/error.h"
#include "trireme/train/trainer.h"

namespace trireme::train {
namespace {

enum class Death { kSilence, kDamage };

// Answers so many reads of other threads than that of its constructor, then none until cancelled,
// or with an error.
class DyingStore {
 public:
  explicit DyingStore(int num_answers, Death death = Death::kSilence)
      : death_(death), num_left_(num_answers) {}

  void answer() {
    std::unique_lock lock(mutex_);
    if (std::this_thread::get_id() == owner_ || num_left_-- > 0) return;
    TRIREME_CHECK(death_ == Death::kSilence, "a point is damaged");
    is_waited_for_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_cancelled_; });
    throw CommError("the read was cancelled");
  }
  void cancel() {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    changed_.notify_all();
  }
  void await_reader() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_waited_for_; });
  }
  bool has_answered_a_step() {
    const std::lock_guard lock(mutex_);
    return num_left_ <= 4;
  }

 private:
  const Death death_;
  const std::thread::id owner_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_left_;
  bool is_waited_for_ = false;
  bool is_cancelled_ = false;
};

std::shared_ptr<DyingStore> store_of_points;  // of the points that are made now

class StoredPoints : public Points {
 public:
  dataset::NamedTensors get(int64_t index, std::optional<RandomKey> key) const override {
    store_->answer();
    return Points::get(index, key);
  }
  void cancel() const { store_->cancel(); }

 private:
  std::shared_ptr<DyingStore> store_ = store_of_points;
};

class StoredPointsTask : public PointsTask {
 public:
  std::unique_ptr<Task> clone() const override { return std::make_unique<StoredPointsTask>(*this); }
  const dataset::Source& training() const override { return stored_; }
  void cancel_reads() const override { stored_.cancel(); }

 private:
  StoredPoints stored_;
};

constexpr TaskKind kStoredTasks[] = {{"stored", "points of a store", []() -> std::unique_ptr<Task> {
                                        return std::make_unique<StoredPointsTask>();
                                      }}};

class CancelledReads : public SmallRun {
 protected:
  // Of 8 points a step, which a thread reads far ahead.
  RunConfig config() const {
    const std::vector<Override> overrides = {{"output.folder", (folder_ / "run").string()}};
    return parse_config(R"(
[train]
steps = 6
global_batch = 8
micro_batch = 2
evaluate_interval = 0
[data]
workers = 1
ahead = 100
)",
                        "test.toml", kStoredTasks, overrides);
  }
  // Runs a trainer on the thread of one rank. beside: on another thread meanwhile
  void train(
      const std::function<bool()>& stop,
      const std::function<void(const Trainer&)>& beside = [](const Trainer&) {}) {
    harness::run_ranks(1, [&](comm::Communicator& world) {
      store_of_points = std::make_shared<DyingStore>(12);
      TrainObserver observer;
      Trainer trainer(config(), world, observer);
      const std::jthread other([&] { beside(trainer); });
      trainer.run(stop);
    });
  }
};

TEST_F(CancelledReads, AStoppedRunEndsAlthoughAReaderWaits) {
  train([] {
    if (!store_of_points->has_answered_a_step()) return false;
    store_of_points->await_reader();
    return true;
  });
}

TEST_F(CancelledReads, ARunThatFailsEndsAlthoughAReaderWaits) {
  const auto fail = []() -> bool {
    if (!store_of_points->has_answered_a_step()) return false;
    store_of_points->await_reader();
    throw CommError("a peer is lost");
  };
  EXPECT_THROW(train(fail), CommError);
}

// One of two ranks waits for a sample that never comes, and the other one fails meanwhile.
TEST_F(CancelledReads, ARankThatWaitsForDataSeesTheLossOfAPeer) {
  std::mutex making;
  std::string lost;
  const auto run = [&] {
    harness::run_ranks(2, [&](comm::Communicator& world) {
      const bool waits = world.rank() == 0;
      const RunConfig own = [&] {
        const std::lock_guard lock(making);
        store_of_points =
            std::make_shared<DyingStore>(12, waits ? Death::kSilence : Death::kDamage);
        return config();
      }();
      TrainObserver observer;
      Trainer trainer(own, world, observer);
      try {
        trainer.run([] { return false; });
      } catch (const CommError& error) {
        if (waits) lost = error.what();
        throw;
      }
    });
  };
  EXPECT_EQ(harness::message_of<ConfigError>(run), "a point is damaged");
  EXPECT_NE(lost.find("while waiting for data: "), std::string::npos) << lost;
}

TEST_F(CancelledReads, ARankThatHasToLeaveWaitsForNoRead) {
  const auto leave = [](const Trainer& trainer) {
    store_of_points->await_reader();
    trainer.cancel_reads();
  };
  EXPECT_THROW(train([] { return false; }, leave), CommError);
}

}  // namespace
}  // namespace trireme::train
