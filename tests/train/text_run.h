// A small run on prepared text: what a trainer and what it reads are tested with.
#pragma once

#include <atomic>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "tests/harness/temporary_folder.h"
#include "tests/train/language_config.h"
#include "trireme/dataset/prepare.h"
#include "trireme/train/config/config.h"
#include "trireme/train/trainer.h"

namespace trireme::train {

class TextRun : public ::testing::Test {
 protected:
  // The text is without a short period, so that there is something to learn and something not to.
  TextRun() {
    std::ofstream text(folder_ / "text.txt");
    for (int64_t i = 0; i < 400; ++i) {
      text << "line " << i << " of the text says " << i * i % 97 << " and " << i * 31 % 11 << '\n';
    }
    text.close();
    dataset::prepare({.inputs = {(folder_ / "text.txt").string()},
                      .output = (folder_ / "data").string(),
                      .validation_fraction = 0.1});
  }

  // Of a run in folder_ / run.
  RunConfig config(const std::string& run, std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {{"data.path", (folder_ / "data").string()},
                                         {"output.folder", (folder_ / run).string()}});
    return parse_config(R"(
[model]
layers = 2
width = 16
heads = 2
kv_heads = 1
ffn_width = 24
sequence_length = 16
[train]
steps = 6
global_batch = 8
micro_batch = 2
[optimizer]
learning_rate = 1e-2
warmup_steps = 3
[checkpoint]
interval = 2
)",
                        "test.toml", overrides);
  }

  // Trains on `num_ranks` threads; asks to stop once step `stop_after` - 1 is done (0: never). When
  // its checkpoint is due the run ends with that, otherwise with the next step.
  static Outcome run(const RunConfig& config, int num_ranks, int64_t stop_after = 0) {
    std::atomic<bool> stop = false;
    struct Observer : TrainObserver {
      std::function<void(int64_t)> step;
      void on_step(const StepMetrics& metrics) override { step(metrics.step); }
    } observer;
    observer.step = [&](int64_t done) { stop = stop_after > 0 && done >= stop_after - 1; };
    std::atomic<Outcome> outcome = Outcome::kFinished;
    TrainObserver silent;
    harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
      Trainer trainer(config, world, world.rank() == 0 ? observer : silent);
      outcome = trainer.run(stop);
    });
    return outcome;
  }

  // The lines of metrics.jsonl.
  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(folder_ / run / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  harness::OneThread one_thread_;
  harness::TemporaryFolder folder_;
};

}  // namespace trireme::train
