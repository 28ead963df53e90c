#include "trireme/train/parallel/share_balance.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/train/points_run.h"

namespace trireme::train {
namespace {

using Sizes = std::vector<int64_t>;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::vector<ShareTime> ranks_of(const Sizes& shares, const std::vector<double>& seconds) {
  std::vector<ShareTime> ranks;
  for (size_t i = 0; i < shares.size(); ++i) {
    ranks.push_back({.share = shares[i], .seconds = seconds[i], .most = kNoLimit});
  }
  return ranks;
}

// The slowest rank's time under the best of all shares of `sum` samples, by trying them all.
double best_time(const std::vector<double>& seconds_per_sample, int64_t sum, size_t rank = 0) {
  if (rank + 1 == seconds_per_sample.size()) return seconds_per_sample[rank] * sum;
  const auto ranks_after = static_cast<int64_t>(seconds_per_sample.size() - rank) - 1;
  double best = std::numeric_limits<double>::max();
  for (int64_t share = 1; share <= sum - ranks_after; ++share) {
    best = std::min(best, std::max(seconds_per_sample[rank] * share,
                                   best_time(seconds_per_sample, sum - share, rank + 1)));
  }
  return best;
}

TEST(BetterShares, TakeTheSlowestRankTheLeastTime) {
  std::mt19937_64 random(0);
  for (int i = 0; i < 200; ++i) {
    Sizes shares(2 + random() % 3);
    std::vector<double> rates, seconds;
    for (int64_t& share : shares) {
      share = 1 + static_cast<int64_t>(random() % 5);
      rates.push_back(1.0 + static_cast<double>(random() % 7));
      seconds.push_back(rates.back() * static_cast<double>(share));
    }
    const int64_t sum = std::reduce(shares.begin(), shares.end());
    const double now = std::ranges::max(seconds), best = best_time(rates, sum);
    const auto better = better_shares(ranks_of(shares, seconds), /*threshold=*/0);
    ASSERT_EQ(better.has_value(), best < now);
    if (!better) continue;
    EXPECT_EQ(std::reduce(better->begin(), better->end()), sum);
    double slowest = 0;
    for (size_t rank = 0; rank < rates.size(); ++rank) {
      EXPECT_GE((*better)[rank], 1);
      slowest = std::max(slowest, rates[rank] * static_cast<double>((*better)[rank]));
    }
    EXPECT_DOUBLE_EQ(slowest, best);
  }
}

TEST(BetterShares, StayWhereTheyGainLittle) {
  EXPECT_FALSE(better_shares(ranks_of({40, 40}, {1.0, 1.06}), 0.05));
  EXPECT_EQ(better_shares(ranks_of({40, 40}, {1.0, 1.3}), 0.05), (Sizes{45, 35}));
}

// A rank takes some time whatever its share. The shares come to rest where times are equal.
TEST(BetterShares, ComeToRestAtEqualTimes) {
  Sizes shares = {32, 32};
  const auto seconds = [&] {
    return std::vector{1.0 + 0.02 * static_cast<double>(shares[0]),
                       0.2 + 0.08 * static_cast<double>(shares[1])};
  };
  for (int i = 0; i < 6; ++i) {
    shares = better_shares(ranks_of(shares, seconds()), 0.05).value_or(shares);
  }
  EXPECT_LT(std::abs(seconds()[0] - seconds()[1]), 0.05 * seconds()[0] + 0.08);
}

TEST(BetterShares, KeepToMemory) {
  std::vector<ShareTime> ranks = ranks_of({4, 4}, {1, 3});
  ranks[0].most = 5;
  EXPECT_EQ(better_shares(ranks, 0.05), (Sizes{5, 3}));
  ranks[0].most = 4;
  EXPECT_FALSE(better_shares(ranks, 0.05));
}

TEST(BetterShares, GiveARankWithoutASampleOne) {
  EXPECT_EQ(better_shares(ranks_of({0, 8}, {0.1, 4}), 0.05), (Sizes{7, 1}));
  EXPECT_FALSE(better_shares(ranks_of({0, 1}, {1, 4}), 0.05));  // there are not enough
}

class ShareBalanceRun : public PointsRun {
 protected:
  // Reading a point takes rank r times[r] milliseconds.
  void run_unequal(const RunConfig& config, const std::vector<int>& times) {
    struct Observer : TrainObserver {
      std::vector<std::string> findings;
      void on_finding(const std::string& line) override { findings.push_back(line); }
    } observer;
    TrainObserver silent;
    const std::atomic<bool> stop = false;
    harness::run_ranks(static_cast<int>(times.size()), [&](comm::Communicator& world) {
      point_time = std::chrono::milliseconds(times[static_cast<size_t>(world.rank())]);
      Trainer(config, world, world.rank() == 0 ? observer : silent).run(stop);
    });
    findings_ = observer.findings;
  }
  Sizes shares_of(const std::string& run, size_t step) const {
    return metrics(run).at(step).at("micro_batches").get<Sizes>();
  }
};

TEST_F(ShareBalanceRun, GivesTheSlowerRankLessAndIsRepeatedWithTheSameBits) {
  const std::vector<Override> common = {{"data.workers", "0"},
                                        {"train.micro_batch", "4"},
                                        {"train.evaluate_interval", "0"},
                                        {"optimizer.schedule", "constant"}};
  const auto with = [&](const std::string& name, std::vector<Override> overrides) {
    overrides.insert(overrides.begin(), common.begin(), common.end());
    return config(name, overrides);
  };
  const std::vector<Override> measured = {{"train.shares_interval", "3"}};
  run(with("one", {{"train.micro_batch", "8"}}), 1);
  run_unequal(with("two", measured), {2, 20});
  EXPECT_EQ(shares_of("two", 2), (Sizes{4, 4}));
  EXPECT_GT(shares_of("two", 3)[0], shares_of("two", 3)[1]);
  expect_same("two", "one", 1e-10);
  EXPECT_THAT(findings_, ::testing::Contains(
                             ::testing::HasSubstr("decided shares of the data ranks 4+4 -> ")));
  const std::string record = (folder_ / "two" / "shares.jsonl").string();
  run_unequal(with("again", {{"train.shares", record}}), {0, 0});
  expect_same("again", "two", 0);
  // A resume goes on with the shares, and measures again.
  run_unequal(with("parts", {{"train.shares_interval", "3"}, {"train.steps", "4"}}), {2, 20});
  const Sizes before = shares_of("parts", 3);
  run_unequal(with("parts", measured), {2, 20});
  EXPECT_EQ(shares_of("parts", 4), before);
  expect_same("parts", "one", 1e-10);
}

// Pipelines of two: a data rank is as slow as its slowest stage, here so slow that another program
// on the same cores does not hide it.
TEST_F(ShareBalanceRun, MeasuresADataRankByItsSlowestRank) {
  const std::vector<Override> overrides = {
      {"data.workers", "0"}, {"train.micro_batch", "4"},     {"train.evaluate_interval", "0"},
      {"train.steps", "4"},  {"train.shares_interval", "2"}, {"parallel.pipeline", "2"},
      {"parallel.zero", "2"}};
  run_unequal(config("pipelines", overrides), {60, 1, 1, 1});
  const Sizes shares = shares_of("pipelines", 3);
  EXPECT_EQ(shares.size(), 2U);
  EXPECT_LT(shares[0], shares[1]);
}

TEST_F(ShareBalanceRun, RefusesWhatNeedsEqualShares) {
  const auto refused = [&](std::vector<Override> overrides) {
    overrides.emplace_back("train.shares_interval", "2");
    return refusal(std::move(overrides), 2);
  };
  EXPECT_THAT(refused({{"train.reproducible", "true"}}),
              ::testing::HasSubstr("train.shares_interval with train.reproducible"));
  EXPECT_THAT(refused({{"train.measure_noise", "true"}}),
              ::testing::HasSubstr("train.shares_interval with train.measure_noise"));
  EXPECT_THAT(refused({{"data.skip_bad_samples", "5"}}),
              ::testing::HasSubstr("train.shares_interval with data.skip_bad_samples"));
  EXPECT_THAT(refused({{"train.global_batch", "9"}, {"train.uneven_batches", "true"}}),
              ::testing::HasSubstr("train.shares_interval measures ranks that read their whole"));
  EXPECT_THAT(refused({{"train.shares", "none.jsonl"}}),
              ::testing::HasSubstr("train.shares_interval with train.shares"));
  EXPECT_THAT(refused({{"points.batch_norm", "true"}}),
              ::testing::HasSubstr("train.shares_interval with a model with batch norms"));
}

}  // namespace
}  // namespace trireme::train
