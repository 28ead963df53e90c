#include "trireme/train/run/inputs.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/text_run.h"

namespace trireme::train {
namespace {

class InputsTest : public TextRun {
 protected:
  RunConfig config(std::vector<Override> overrides = {}) const {
    overrides.insert(overrides.begin(), {"train.evaluate_interval", "2"});
    return TextRun::config("run", std::move(overrides));
  }

  // What preflight() on `num_ranks` says is wrong; empty: nothing.
  std::string error_of(std::vector<Override> overrides, int num_ranks = 1) const {
    RunConfig broken = config(std::move(overrides));
    return harness::message_of([&] { preflight(broken, num_ranks); });
  }

  bool has_run() const { return std::filesystem::exists(folder_ / "run"); }
};

TEST_F(InputsTest, AreWhatTheConfigNames) {
  RunConfig resolved = config();
  open_inputs(resolved, 2);
  EXPECT_EQ(resolved.parallel.data, 2);
  EXPECT_EQ(model_of(resolved).vocab_size, tasks::tokenizer_of(resolved)->vocab_size());
  EXPECT_GT(resolved.task->training().size(), 100);
  EXPECT_TRUE(has_run());
}

TEST_F(InputsTest, AnEvaluationReadsNoMoreThanThereIs) {
  for (const int64_t wanted : {2, 1'000'000}) {
    RunConfig resolved = config({{"train.evaluate_sequences", std::to_string(wanted)}});
    open_inputs(resolved, 1);
    const dataset::Source& validation = *resolved.task->validation();
    EXPECT_EQ(evaluation_samples(resolved, validation), std::min(wanted, validation.size()));
    EXPECT_GT(validation.size(), 2);
  }
  RunConfig resolved = config({{"train.evaluate_interval", "0"}});
  open_inputs(resolved, 1);
  EXPECT_EQ(resolved.task->validation(), nullptr);
  EXPECT_TRUE(all_validation(*resolved.task).empty());
}

TEST_F(InputsTest, WhatIsWrongIsNamedAndLeavesNothingBehind) {
  const auto expect = [&](const std::string& word, std::vector<Override> overrides,
                          int num_ranks = 1) {
    const std::string error = error_of(std::move(overrides), num_ranks);
    EXPECT_NE(error.find(word), std::string::npos) << error;
    EXPECT_FALSE(has_run()) << word;
  };
  expect("/nowhere/data", {{"data.path", "/nowhere/data"}});
  expect("model.vocab_size", {{"model.vocab_size", "200"}});
  expect("output.folder", {{"output.folder", (folder_ / "text.txt").string() + "/run"}});
  expect("parallel.tensor", {{"parallel.tensor", "3"}}, 3);
  std::filesystem::resize_file(folder_ / "data.bin", 100);
  expect("data.bin", {});
}

TEST_F(InputsTest, EpochsAreStepsOnceTheDataIsKnown) {
  const auto steps = [&](std::vector<Override> overrides, const DataPosition& start = {}) {
    overrides.emplace_back("train.global_batch", "8");
    RunConfig resolved = config(std::move(overrides));
    open_inputs(resolved, 2);
    set_steps(resolved, start);
    return std::pair(resolved.train.steps, resolved.task->training().size());
  };
  const auto [fixed, size] = steps({{"train.steps", "17"}});
  EXPECT_EQ(fixed, 17);
  const auto rounded_up = [](int64_t samples, int64_t batch) {
    return (samples + batch - 1) / batch;
  };
  EXPECT_EQ(steps({{"train.epochs", "3"}}).first, rounded_up(3 * size, 8));
  EXPECT_EQ(steps({{"train.epochs", "0.5"}}).first, rounded_up((size + 1) / 2, 8));
  EXPECT_EQ(steps({{"train.epochs", "1e-6"}}).first, 1);
  EXPECT_EQ(steps({{"train.epochs", "3"}, {"data.last_batch", "keep"}}).first,
            3 * rounded_up(size, 8));
  EXPECT_EQ(steps({{"train.epochs", "3"}, {"data.last_batch", "drop"}}).first, 3 * (size / 8));
  // 10 steps that read 16 samples each, from a run with another batch.
  EXPECT_EQ(steps({{"train.epochs", "3"}}, {.step = 10, .sample = 160}).first,
            10 + rounded_up(3 * size - 160, 8));
  EXPECT_EQ(steps({{"train.epochs", "1"}}, {.step = 1000, .sample = 3 * size}).first, 1000);
}

TEST_F(InputsTest, AFolderThatARunHasIsNotFree) {
  RunConfig first = config();
  open_inputs(first, 1);
  {
    const auto lock = lock_output_folder(first);
    EXPECT_NE(error_of({}).find("is being written by another program"), std::string::npos);
    EXPECT_EQ(error_of({{"output.folder", (folder_ / "other").string()}}), "");
  }
  EXPECT_EQ(error_of({}), "");
}

}  // namespace
}  // namespace trireme::train
