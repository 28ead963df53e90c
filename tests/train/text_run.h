// A small run on prepared text: what a trainer and what it reads are tested with.
#pragma once

#include <atomic>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

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

  // Trains on `num_ranks` threads.
  static Outcome train(const RunConfig& config, int num_ranks) {
    const std::atomic<bool> stop = false;
    std::atomic<Outcome> outcome = Outcome::kFinished;
    TrainObserver silent;
    harness::run_ranks(num_ranks, [&](comm::Communicator& world) {
      at::set_num_threads(1);
      outcome = Trainer(config, world, silent).run(stop);
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

  harness::TemporaryFolder folder_;
};

}  // namespace trireme::train
