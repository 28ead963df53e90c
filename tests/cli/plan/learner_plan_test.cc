#include "trireme/cli/plan/learner_plan.h"

#include <gmock/gmock.h>

#include "tests/harness/messages.h"
#include "tests/train/language_config.h"
#include "trireme/base/error.h"
#include "trireme/cli/plan/cluster_file.h"
#include "trireme/cli/plan/layout_search.h"

namespace trireme::cli {
namespace {

using testing::HasSubstr;

// The demo's model on bytes.
train::RunConfig demo_run(const std::vector<train::Override>& overrides) {
  return train::parse_config(R"(
[model]
layers = 4
width = 192
heads = 6
kv_heads = 3
ffn_width = 512
sequence_length = 128
vocab_size = 257
[train]
global_batch = 16
micro_batch = 2
[parallel]
learners = 2
[outer]
every = 100
)",
                             "run.toml", overrides);
}

plan::Cluster hosts(int64_t nodes, int64_t devices_per_node) {
  plan::ClusterFile file;
  file.cluster.nodes = nodes;
  file.cluster.devices_per_node = devices_per_node;
  file.network = {.node_gb_per_second = 0.00125, .node_share = 0.95, .node_microseconds = 50'000};
  return plan::make_cluster(file);
}

RunPrediction predict(const std::vector<train::Override>& overrides, const plan::Cluster& cluster) {
  train::RunConfig config = demo_run(overrides);
  const plan::Workload work = resolve_on(config, cluster.num_devices());
  return predict_run(config, work, cluster, runtime_stages(config));
}

// benchmarks/results/2026-11-30-learners.md, by `outer_bytes`
TEST(LearnerPlan, AConfigsBytesAreTheMeasuredOnes) {
  EXPECT_EQ(predict({}, hosts(2, 1)).learners->round_bytes, 6'889'760);
  EXPECT_EQ(predict({{"outer.wire", "int8"}}, hosts(2, 1)).learners->round_bytes, 1'749'380);
  EXPECT_EQ(predict({{"outer.wire", "int4"}, {"outer.fragments", "4"}, {"outer.delay", "20"}},
                    hosts(2, 1))
                .learners->round_bytes,
            888'268);
  // Two tensor ranks send as much, and notes of two groups of weights each.
  EXPECT_EQ(predict({{"parallel.tensor", "2"}, {"model.kv_heads", "6"}}, hosts(2, 2))
                .learners->round_bytes,
            predict({{"model.kv_heads", "6"}}, hosts(2, 1)).learners->round_bytes - 32 + 2 * 48);
}

TEST(LearnerPlan, AStepIsThatOfALearnerWithItsPartOfTheBatch) {
  const RunPrediction run = predict({}, hosts(2, 1));
  train::RunConfig half = demo_run({{"parallel.learners", "1"}, {"train.global_batch", "8"}});
  half.outer = {};
  const plan::Workload work = resolve_on(half, 1);
  const plan::StepPrediction alone = predict_step(work, hosts(1, 1), runtime_stages(half));
  EXPECT_EQ(run.learners->inner.step_seconds(), alone.step_seconds());
  EXPECT_EQ(run.step.tokens, 2 * alone.tokens);
  EXPECT_GT(run.step.seconds.outer, 0.058);
  EXPECT_EQ(run.step.num_devices, 2);
  // The common weights and their momentum; the fragment that travels, and what messages lose.
  EXPECT_EQ(run.step.memory.outer, 8.0 * 1'722'432);
  EXPECT_EQ(run.step.memory.total() - alone.memory.total(), run.step.memory.outer);
  const RunPrediction coded = predict(
      {{"outer.wire", "int4"}, {"outer.fragments", "4"}, {"outer.delay", "20"}}, hosts(2, 1));
  EXPECT_EQ(coded.step.memory.outer, (8 + 4 + 8 / 4.0) * 1'722'432);
  const RunPrediction sharded = predict({{"parallel.zero", "1"}}, hosts(2, 2));
  EXPECT_EQ(sharded.step.memory.outer, 8.0 * 1'722'432 / 2);
}

TEST(LearnerPlan, GraphsAndAveragedStatesCount) {
  const auto bytes = [](const std::vector<train::Override>& overrides) {
    return predict(overrides, hosts(2, 1)).learners->round_bytes;
  };
  EXPECT_EQ(bytes({{"outer.method", "gossip"}, {"outer.graph", "base-2"}}), 6'889'728 + 16);
  EXPECT_EQ(bytes({{"outer.method", "push-sum"}, {"outer.graph", "exponential"}}), 6'889'728 + 16);
  EXPECT_EQ(bytes({{"outer.method", "average"}, {"outer.states", "average"}}), 3 * 6'889'728 + 32);
}

TEST(LearnerPlan, MethodsThatTheCostModelDoesNotKnowAreRefused) {
  const std::vector<std::vector<train::Override>> unknown{
      {{"outer.method", "gradient-tracking"}},
      {{"outer.method", "d2"}},
      {{"outer.method", "decoupled"}, {"parallel.servers", "1"}}};
  for (const auto& overrides : unknown) {
    const std::string words = "outer.method is \"" + overrides[0].second + "\", which the cost";
    EXPECT_THAT(harness::message_of<ConfigError>([&] { predict(overrides, hosts(2, 2)); }),
                HasSubstr(words));
    EXPECT_THAT(harness::message_of<ConfigError>(
                    [&] { search_layouts(demo_run(overrides), hosts(2, 2), {}); }),
                HasSubstr(words));
  }
}

TEST(LearnerPlan, WhatTheCostModelDoesNotKnowIsRefused) {
  const auto refusal = [](const std::vector<train::Override>& overrides) {
    return harness::message_of<ConfigError>([&] { predict(overrides, hosts(2, 1)); });
  };
  EXPECT_THAT(refusal({{"outer.meeting", "127.0.0.1:29400"}}), HasSubstr("runs of their own"));
  const train::RunConfig of_hosts = demo_run({{"parallel.learners", "hosts"}});
  EXPECT_THAT(harness::message_of<ConfigError>([&] { search_layouts(of_hosts, hosts(2, 1), {}); }),
              HasSubstr("give their number"));
}

TEST(LearnerPlan, ASearchPlansEachLearner) {
  const train::RunConfig run = demo_run({{"train.micro_batch", "1"}});
  const plan::SearchResult found = search_layouts(run, hosts(2, 2), {.num_best = 20});
  ASSERT_FALSE(found.best.empty());
  for (const plan::Plan& plan : found.best) {
    EXPECT_EQ(plan.work.axes.num_ranks(), 2);
    EXPECT_EQ(plan.step.num_devices, 4);
    EXPECT_GT(plan.step.seconds.outer, 0);
    train::RunConfig config = with_layout(run, plan.work);
    EXPECT_NO_THROW(resolve_on(config, 4)) << describe(plan.work);
  }
  EXPECT_THAT(harness::message_of<ConfigError>(
                  [&] { search_layouts(run, hosts(2, 2), {.most_devices = 1}); }),
              HasSubstr("a device for each learner"));
  EXPECT_THAT(harness::message_of<ConfigError>([&] {
                predict({{"train.global_batch", "24"}}, hosts(3, 2));
              }),
              HasSubstr("on 3 nodes of 2 devices"));
}

}  // namespace
}  // namespace trireme::cli
