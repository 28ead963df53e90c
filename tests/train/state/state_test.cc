#include "trireme/train/state/state.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

TEST(RunState, SurvivesItsText) {
  const RunState state{.step = 7,
                       .next_sample = 56,
                       .optimizer_steps = 6,
                       .config = "[train]\nsteps = 7\n",
                       .loss_scale = 1024,
                       .loss_scale_steps = 3,
                       .bad_steps = {.mean_norm = 0.5, .num_good = 12, .num_skipped = 2},
                       .bad_samples = 7,
                       .noise = {.squared_gradient = 0.25, .trace = 3, .weight = 0.5},
                       .data = {.checksums = {{"index", "0123456789abcdef"},
                                              {"tokens", "fedcba9876543210"},
                                              {"tokenizer", "00112233445566ff"}},
                                .counts = {{"num_documents", 5}, {"num_tokens", 1 << 20}}},
                       .validation = {.checksums = {{"samples", "8899aabbccddeeff"}},
                                      .counts = {{"num_samples", 1 << 10}}}};
  const RunState again = parse_state(to_json(state), "here");
  EXPECT_EQ(again.step, 7);
  EXPECT_EQ(again.next_sample, 56);
  EXPECT_EQ(again.optimizer_steps, 6);
  EXPECT_EQ(again.config, state.config);
  EXPECT_EQ(again.loss_scale, 1024);
  EXPECT_EQ(again.loss_scale_steps, 3);
  EXPECT_EQ(again.bad_steps.mean_norm, 0.5);
  EXPECT_EQ(again.bad_steps.num_good, 12);
  EXPECT_EQ(again.bad_steps.num_skipped, 2);
  EXPECT_EQ(again.bad_samples, 7);
  EXPECT_EQ(again.noise.squared_gradient, 0.25);
  EXPECT_EQ(again.noise.trace, 3);
  EXPECT_EQ(again.noise.weight, 0.5);
  EXPECT_EQ(again.data, state.data);
  EXPECT_EQ(again.validation, state.validation);
}

TEST(RunState, UnknownDataOfEarlierVersionsIsUnknown) {
  const RunState state = parse_state(
      R"({"step": 7, "next_sample": 56, "optimizer_steps": 6, "config": "", "data": {"index": "",
          "tokens": "", "tokenizer": "", "num_documents": 0, "num_tokens": 0}})",
      "here");
  EXPECT_FALSE(state.data.is_known());
}

TEST(RunState, OfEarlierVersionsIsReadable) {
  const RunState state =
      parse_state(R"({"step": 7, "next_sample": 56, "optimizer_steps": 6, "config": ""})", "here");
  EXPECT_EQ(state.step, 7);
  EXPECT_FALSE(state.data.is_known());
  EXPECT_FALSE(state.validation.is_known());
}

TEST(RunState, WhatIsNotARunsStateIsRefusedWithThePath) {
  for (const char* text : {"{}", "nonsense", R"({"step": "one"})", R"({"step": 1, "data": 3})"}) {
    try {
      parse_state(text, "some/step-000010");
      FAIL() << text;
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("some/step-000010"), std::string::npos)
          << error.what();
    }
  }
}

TEST(RunState, EntriesHoldEveryParameterAndItsOptimizerStateWithLayouts) {
  const std::vector<parallel::Shard> shards = {
      {.name = "a.weight", .weights = at::zeros({3, 2}), .layout = {{3, 2}, {{"shard", 1}}}},
      {.name = "b.weight",
       .weights = at::zeros({2}),
       .layout = {{5}, {{"shard", 2}}, {mesh::Placement::sharded(0, {0, 2, 5})}}},
      {.name = "c.frozen",
       .weights = at::zeros({4}),
       .layout = {{4}, {{"shard", 1}}},
       .is_trained = false}};
  const Optimizer optimizer(shards, {});
  const auto entries = checkpoint_entries(shards, optimizer);
  ASSERT_EQ(entries.size(), 7u);
  EXPECT_EQ(entries[0].name, "a.weight");
  EXPECT_TRUE(entries[0].local.is_alias_of(shards[0].weights));
  EXPECT_EQ(entries[3].name, "optimizer.exp_avg.a.weight");
  EXPECT_EQ(entries[6].name, "optimizer.exp_avg_sq.b.weight");
  for (const auto& entry : entries) {
    EXPECT_EQ(entry.layout.local_box(0).size, entry.local.sizes().vec());
  }
}

}  // namespace
}  // namespace trireme::train
