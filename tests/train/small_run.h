// A small run in a folder of its own: what tests train with.
#pragma once

#include <atomic>
#include <cmath>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/fake_device.h"
#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/train/config/config.h"
#include "trireme/train/trainer.h"

namespace trireme::train {

class SmallRun : public ::testing::Test {
 protected:
  // Trains on `num_ranks` threads; asks to stop once step `stop_after` - 1 is done (0: never). When
  // its checkpoint is due the run ends with that, otherwise with the next step.
  Outcome run(const RunConfig& config, int num_ranks, int64_t stop_after = 0,
              bool on_devices = false) {
    std::atomic<bool> stop = false;
    struct Observer : TrainObserver {
      std::function<void(int64_t)> step;
      std::vector<std::string> findings;
      void on_step(const StepMetrics& metrics) override { step(metrics.step); }
      void on_finding(const std::string& line) override { findings.push_back(line); }
    } observer;
    observer.step = [&](int64_t done) { stop = stop_after > 0 && done >= stop_after - 1; };
    std::atomic<Outcome> outcome = Outcome::kFinished;
    TrainObserver silent;
    const auto train = [&](comm::Communicator& world, at::Device device) {
      RunConfig mine = config;
      mine.device = device;
      Trainer trainer(mine, world, world.rank() == 0 ? observer : silent);
      outcome = trainer.run(stop);
    };
    if (on_devices) {
      harness::run_device_ranks(num_ranks, train);
    } else {
      harness::run_ranks(num_ranks, [&](comm::Communicator& world) { train(world, at::kCPU); });
    }
    findings_ = observer.findings;
    return outcome;
  }
  // The same with a fake device for each rank.
  Outcome run_on_devices(const RunConfig& config, int num_ranks, int64_t stop_after = 0) {
    return run(config, num_ranks, stop_after, /*on_devices=*/true);
  }

  // Trains to the end; what the start told of a resumed run.
  static std::vector<std::string> notes_of(const RunConfig& config, int num_ranks = 2) {
    struct Observer : TrainObserver {
      std::vector<std::string> notes;
      void on_start(const RunConfig&, const RunSummary& summary) override {
        notes = summary.resume_notes;
      }
    } observer;
    TrainObserver silent;
    const std::atomic<bool> stop = false;
    harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
      Trainer(config, world, world.rank() == 0 ? observer : silent).run(stop);
    });
    return observer.notes;
  }

  // The lines of metrics.jsonl of the run in folder_ / run.
  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(folder_ / run / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  // Compares what two runs computed, step by step. relative: 0: the same bits.
  void expect_same(const std::string& actual, const std::string& expected, double relative,
                   const std::vector<std::string>& keys) const {
    const auto a = metrics(actual), b = metrics(expected);
    ASSERT_EQ(a.size(), b.size()) << actual;
    ASSERT_FALSE(b.empty()) << expected;
    for (size_t i = 0; i < a.size(); ++i) {
      for (const std::string& key : keys) {
        if (!b[i].contains(key)) continue;
        ASSERT_TRUE(a[i].contains(key)) << actual << " step " << i + 1 << " " << key;
        const double value = b[i][key].get<double>();
        EXPECT_NEAR(a[i][key].get<double>(), value, relative * std::abs(value))
            << actual << " step " << i + 1 << " " << key;
      }
    }
  }

  harness::OneThread one_thread_;
  harness::TemporaryFolder folder_;
  std::vector<std::string> findings_;  // what the last run told its user
};

}  // namespace trireme::train
