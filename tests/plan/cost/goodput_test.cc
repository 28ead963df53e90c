#include "trireme/plan/cost/goodput.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

constexpr double kDay = 86400;

// Runs intervals with failures at random times and counts: an independent reference.
double simulated_goodput(const FailureModel& model, int num_intervals) {
  std::mt19937_64 random(7);
  std::exponential_distribution<double> life(1 / model.mtbf_seconds());
  double wall = 0, next_failure = life(random);
  // Passes `seconds` without a failure, or up to the failure.
  const auto lives_through = [&](double seconds) {
    const bool lives = next_failure > seconds;
    wall += lives ? seconds : next_failure;
    next_failure = lives ? next_failure - seconds : life(random);
    return lives;
  };
  for (int i = 0; i < num_intervals; ++i) {
    while (!lives_through(model.interval_seconds + model.save_seconds)) {
      while (!lives_through(model.recovery_seconds)) {
      }
    }
  }
  return num_intervals * model.interval_seconds / wall;
}

TEST(Goodput, IsWhatASimulationFinds) {
  // The relative error of the mean of n intervals is at most a few 1/sqrt(n).
  constexpr int kIntervals = 200'000;
  for (const double mtbf_days : {10.0, 100.0, 1000.0}) {
    for (const double recovery : {0.0, 10.0, 900.0}) {
      const FailureModel model{.num_devices = 1024,
                               .device_mtbf_seconds = mtbf_days * kDay,
                               .interval_seconds = 600,
                               .save_seconds = 20,
                               .recovery_seconds = recovery};
      EXPECT_NEAR(goodput_of(model) / simulated_goodput(model, kIntervals), 1, 0.02)
          << mtbf_days << " " << recovery;
    }
  }
}

TEST(Goodput, IsNearlyOneWithoutFailuresAndZeroWithNothingElse) {
  FailureModel model{.num_devices = 1,
                     .device_mtbf_seconds = 1e15,
                     .interval_seconds = 90,
                     .save_seconds = 10,
                     .recovery_seconds = 5};
  EXPECT_NEAR(goodput_of(model), 0.9, 1e-9);
  model.device_mtbf_seconds = 1e-3;
  EXPECT_EQ(goodput_of(model), 0);
}

TEST(Goodput, TheBestIntervalIsBetterThanItsNeighbours) {
  for (const double save : {1.0, 30.0, 600.0}) {
    FailureModel model{.num_devices = 1024,
                       .device_mtbf_seconds = 100 * kDay,
                       .save_seconds = save,
                       .recovery_seconds = 60};
    const double best = best_interval_seconds(model);
    const auto goodput_at = [&](double interval) {
      model.interval_seconds = interval;
      return goodput_of(model);
    };
    EXPECT_GT(goodput_at(best), goodput_at(best * 1.1)) << save;
    EXPECT_GT(goodput_at(best), goodput_at(best / 1.1)) << save;
    // Young's is the first term.
    EXPECT_NEAR(best / std::sqrt(2 * save * model.mtbf_seconds()), 1, 0.2) << save;
  }
  EXPECT_EQ(best_interval_seconds({.device_mtbf_seconds = 1024, .save_seconds = 5}), 1);
  EXPECT_EQ(best_interval_seconds({.device_mtbf_seconds = 1024, .save_seconds = 0}), 0);
}

TEST(Goodput, RefusesNumbersWithoutAMeaning) {
  const FailureModel good{.device_mtbf_seconds = 1e6, .interval_seconds = 60};
  EXPECT_NO_THROW(goodput_of(good));
  const auto refuses = [&](auto change) {
    FailureModel model = good;
    change(model);
    EXPECT_THROW(goodput_of(model), ConfigError);
  };
  refuses([](FailureModel& model) { model.num_devices = 0; });
  refuses([](FailureModel& model) { model.device_mtbf_seconds = 0; });
  refuses([](FailureModel& model) { model.interval_seconds = 0; });
  refuses([](FailureModel& model) { model.save_seconds = -1; });
  refuses([](FailureModel& model) { model.recovery_seconds = std::nan(""); });
  refuses([](FailureModel& model) {
    model.device_mtbf_seconds = std::numeric_limits<double>::infinity();
  });
}

}  // namespace
}  // namespace trireme::plan
