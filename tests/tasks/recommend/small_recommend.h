// A small recommendation model in a folder of its own, with clicks and pairs: what its tests train.
#pragma once

#include <string>
#include <vector>

#include "tests/harness/messages.h"
#include "tests/tasks/recommend/feature_folder.h"
#include "tests/train/small_run.h"
#include "trireme/base/error.h"
#include "trireme/tasks/tasks.h"
#include "trireme/train/config/config.h"
#include "trireme/train/run/inputs.h"

namespace trireme::tasks {

using Overrides = std::vector<train::Override>;

class SmallRecommend : public train::SmallRun {
 protected:
  SmallRecommend() {
    harness::write_label_folder(folder_ / "clicks", 2);
    harness::write_pair_folder(folder_ / "pairs");
  }

  // `own`: what the tests of one file share; `overrides` come last.
  train::RunConfig small_config(const std::string& run, const std::string& data, Overrides own,
                                const Overrides& overrides) const {
    own.insert(own.begin(), {{"data.path", (folder_ / data).string()},
                             {"output.folder", (folder_ / run).string()}});
    own.insert(own.end(), overrides.begin(), overrides.end());
    return train::parse_config(R"(
[task]
name = "recommend"
[model]
width = 6
bottom = "7"
top = "9,5"
temperature = 0.2
[tables]
learning_rate = 0.1
[train]
global_batch = 16
micro_batch = 4
precision = "fp64"
evaluate_sequences = 41
[optimizer]
name = "adamw"
learning_rate = 1e-2
warmup_steps = 1
[checkpoint]
interval = 2
)",
                               "test.toml", all_tasks(), own);
  }

  // All that two runs computed but grad_norm, which leaves out tables on servers.
  void expect_same_results(const std::string& actual, const std::string& expected,
                           double relative) const {
    SmallRun::expect_same(
        actual, expected, relative,
        {"loss", "validation_loss", "normalised_entropy", "accuracy", "batch_accuracy",
         "validation_normalised_entropy", "validation_auc", "validation_recall_at_10"});
  }
  void expect_same(const std::string& actual, const std::string& expected, double relative) const {
    expect_same_results(actual, expected, relative);
    SmallRun::expect_same(actual, expected, relative, {"grad_norm"});
  }

  // The error of a run that does not begin. make: returns its config
  template <typename Make>
  static std::string refusal_of(const Make& make, int num_ranks) {
    return harness::message_of<ConfigError>([&] {
      train::RunConfig broken = make();
      train::open_inputs(broken, num_ranks);
    });
  }
};

}  // namespace trireme::tasks
