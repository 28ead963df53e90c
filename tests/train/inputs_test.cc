#include "trireme/train/inputs.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/dataset/prepare.h"

namespace trireme::train {
namespace {

class InputsTest : public ::testing::Test {
 protected:
  InputsTest() {
    std::ofstream text(folder_ / "text.txt");
    for (int line = 0; line < 200; ++line) text << "line " << line << " of the text\n";
    text.close();
    dataset::prepare({.inputs = {(folder_ / "text.txt").string()},
                      .output = (folder_ / "data").string(),
                      .validation_fraction = 0.1});
  }

  RunConfig config(std::vector<Override> overrides = {}) {
    overrides.insert(overrides.begin(), {{"data.path", (folder_ / "data").string()},
                                         {"output.folder", (folder_ / "run").string()}});
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
evaluate_interval = 2
)",
                        "test.toml", overrides);
  }

  // What preflight() on `num_ranks` says is wrong; empty: nothing.
  std::string error_of(std::vector<Override> overrides, int num_ranks = 1) {
    RunConfig broken = config(std::move(overrides));
    try {
      preflight(broken, num_ranks);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  bool has_run() const { return std::filesystem::exists(folder_ / "run"); }

  harness::TemporaryFolder folder_;
};

TEST_F(InputsTest, AreWhatTheConfigNames) {
  RunConfig resolved = config();
  const Inputs inputs = open_inputs(resolved, 2);
  EXPECT_EQ(resolved.parallel.data, 2);
  EXPECT_EQ(resolved.model.vocab_size, inputs.tokenizer->vocab_size());
  EXPECT_GT(inputs.training->sampler.num_sequences(), 100);
  EXPECT_TRUE(has_run());
}

TEST_F(InputsTest, AnEvaluationReadsNoMoreThanThereIs) {
  for (const int64_t wanted : {2, 1'000'000}) {
    RunConfig resolved = config({{"train.evaluate_sequences", std::to_string(wanted)}});
    const Inputs inputs = open_inputs(resolved, 1);
    const int64_t there = inputs.validation->sampler.num_sequences();
    EXPECT_EQ(inputs.evaluation_sequences, std::min(wanted, there));
    EXPECT_GT(there, 2);
  }
  RunConfig resolved = config({{"train.evaluate_interval", "0"}});
  EXPECT_EQ(open_inputs(resolved, 1).validation, nullptr);
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

}  // namespace
}  // namespace trireme::train
