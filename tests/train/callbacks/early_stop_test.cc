#include "trireme/train/callbacks/watched_metric.h"

#include <gtest/gtest.h>

#include "tests/train/callbacks/fake_run.h"
#include "tests/train/text_run.h"

namespace trireme::train {
namespace {

class EarlyStopTest : public ::testing::Test {
 protected:
  EarlyStopTest() { set_keys(callback_, {{"early_stop.patience", 2}}); }

  void evaluate(Callback& callback, double loss) {
    ++run_.metrics_.step;
    run_.metrics_.validation_loss = loss;
    callback.on_evaluate(run_);
  }

  EarlyStop callback_;
  FakeRun run_;
};

TEST_F(EarlyStopTest, EndsTheRunWhenItsPatienceIsOver) {
  for (const double loss : {3.0, 2.0, 2.5, 1.5, 1.5}) evaluate(callback_, loss);
  EXPECT_EQ(run_.stop_reason_, "");
  evaluate(callback_, 1.6);
  EXPECT_EQ(run_.stop_reason_,
            "validation_loss has not improved in 2 evaluations; its best is 1.5");
  EXPECT_TRUE(run_.for_good_);
}

TEST_F(EarlyStopTest, RemembersOverACheckpointAndEndsTheNextStartAtOnce) {
  for (const double loss : {1.0, 2.0}) evaluate(callback_, loss);
  EarlyStop resumed;
  set_keys(resumed, {{"early_stop.patience", 2}});
  resumed.restore(callback_.state());
  resumed.on_start(run_);
  EXPECT_EQ(run_.stop_reason_, "");
  evaluate(resumed, 1.5);
  EXPECT_NE(run_.stop_reason_, "");

  EarlyStop again;
  set_keys(again, {{"early_stop.patience", 2}});
  again.restore(resumed.state());
  FakeRun next;
  again.on_start(next);
  EXPECT_EQ(next.stop_reason_, run_.stop_reason_);
}

TEST_F(EarlyStopTest, IsOffWithoutPatience) {
  EXPECT_FALSE(EarlyStop().is_on());
  EXPECT_TRUE(callback_.is_on());
}

class EarlyStopRun : public TextRun {};

// The loss falls, so that its largest value is the first.
TEST_F(EarlyStopRun, EndsForGoodOnEveryRank) {
  const std::vector<Override> overrides = {{"train.steps", "20"},
                                           {"train.evaluate_interval", "2"},
                                           {"train.evaluate_sequences", "8"},
                                           {"early_stop.patience", "2"},
                                           {"early_stop.goal", "largest"}};
  for (const int ranks : {1, 2, 3}) {
    const std::string name = concat("ranks", ranks);
    std::vector<Override> mine = overrides;
    mine.push_back({"train.global_batch", "12"});
    EXPECT_EQ(run(config(name, mine), ranks), Outcome::kEnded);
    EXPECT_EQ(metrics(name).back().at("step"), 6);
    EXPECT_TRUE(checkpoint::latest(folder_ / name / "checkpoints")->string().ends_with("000006"));
    EXPECT_EQ(run(config(name, mine), ranks), Outcome::kEnded);
    EXPECT_EQ(metrics(name).back().at("step"), 6);
  }
}

}  // namespace
}  // namespace trireme::train
