#include "trireme/plan/step/learner_prediction.h"

#include <cmath>

#include <gmock/gmock.h>

#include "tests/harness/messages.h"
#include "tests/plan/harness.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

using testing::HasSubstr;

// The demo's model on bytes, in the model's order: 1,722,432 weights.
std::vector<ExchangedParameter> demo() {
  constexpr int64_t D = 192, F = 512, K = 96, V = 257;
  std::vector<ExchangedParameter> parameters = {{.elements = V * D}};
  for (int layer = 0; layer < 4; ++layer) {
    for (const int64_t elements : {D, D * D, D * K, D * K, D * D, D, F * D, F * D, F * D}) {
      parameters.push_back({.elements = elements});
    }
  }
  parameters.push_back({.elements = D});
  parameters.push_back({.elements = V * D});
  return parameters;
}

constexpr int64_t kDemoWeights = 1'722'432;

// Two hosts of one rank, as those of benchmarks/learners.py. Of each 1,526 bytes on a line that
// carries data both ways 1,448 are payload: a packet of 1,500 has 52 of headers, and every second
// one is acknowledged with 52.
constexpr double kShare = 1448.0 / 1526;
constexpr double kRate = kShare * 10e6 / 8;

Cluster slow_hosts() {
  Cluster cluster = cluster_of("cpu", 2, 1);
  cluster.device.network_rate = 10e6 / 8;
  cluster.device.network_share = kShare;
  cluster.device.network_seconds = 0.05;
  return cluster;
}

// A learner's step without a network, as measured: 12,726 tokens/s of both.
StepPrediction measured_step() {
  StepPrediction step;
  step.tokens = 16.0 * 128 / 2;
  step.seconds.compute = 2 * step.tokens / 12'726;
  return step;
}

LearnerWork diloco(parallel::WireCode code = parallel::WireCode::kFloat32) {
  return {.learners = 2, .parameters = demo(), .every = 100, .form = {.code = code}};
}

LearnerWork streaming() {
  LearnerWork outer = diloco(parallel::WireCode::kInt4);
  outer.fragments = 4;
  outer.delay = 20;
  return outer;
}

LearnerPrediction on_slow_hosts(const LearnerWork& outer) {
  return with_learners(Workload(), outer, slow_hosts(), measured_step());
}

// Each of 300 steps, of whose exchanges the last has not arrived.
TEST(Learners, SendTheMeasuredBytes) {
  EXPECT_EQ(on_slow_hosts(diloco()).round_bytes, 4 * kDemoWeights + 4 * 8);
  EXPECT_EQ(std::lround(on_slow_hosts(diloco()).round_bytes / 100), 68'898);
  EXPECT_EQ(std::lround(on_slow_hosts(diloco(parallel::WireCode::kInt8)).round_bytes / 100),
            17'494);
  const LearnerWork outer = streaming();
  const double last = sent_bytes(Workload(), outer, 3);
  EXPECT_EQ(std::lround((3 * on_slow_hosts(outer).round_bytes - last) / 300), 8'163);
}

// docs/guide/learners.md: what the packets of the quickest took, as the machine had other work.
TEST(Learners, ExchangeAsFastAsMeasuredWithinThreePercent) {
  EXPECT_NEAR(on_slow_hosts(diloco()).exchange_seconds, 5.93, 0.03 * 5.93);
  // Hidden behind the steps, as measured.
  EXPECT_NEAR(on_slow_hosts(streaming()).all.tokens_per_second(), 12'761, 0.03 * 12'761);
}

TEST(Learners, ADelayHidesAnExchange) {
  LearnerWork outer = diloco();
  const LearnerPrediction blocking = on_slow_hosts(outer);
  EXPECT_NEAR(blocking.exchange_seconds, 0.1 + 4 * kDemoWeights / kRate, 1e-9);
  EXPECT_EQ(blocking.exposed_seconds, blocking.exchange_seconds);
  EXPECT_NEAR(blocking.all.seconds.outer, blocking.exposed_seconds / 100, 1e-12);
  EXPECT_NEAR(blocking.round_trips, 1, 1e-9);
  outer.delay = 20;
  const double behind = 20 * measured_step().step_seconds();
  EXPECT_NEAR(on_slow_hosts(outer).exposed_seconds, blocking.exchange_seconds - behind, 1e-9);
  outer.delay = 99;
  EXPECT_EQ(on_slow_hosts(outer).exposed_seconds, 0);
  EXPECT_EQ(on_slow_hosts(streaming()).exposed_seconds, 0);
  EXPECT_NEAR(on_slow_hosts(streaming()).round_trips, 4, 1e-9);
}

TEST(Learners, AreAddedUp) {
  StepPrediction inner = measured_step();
  inner.num_devices = 3;
  inner.model_flops = 5;
  inner.hardware_flops = 7;
  LearnerWork outer = diloco();
  outer.learners = 4;
  Workload work;
  work.axes.data = 3;
  const LearnerPrediction all = with_learners(work, outer, cluster_of("cpu", 4, 3), inner);
  EXPECT_EQ(all.all.num_devices, 12);
  EXPECT_EQ(all.all.tokens, 4 * inner.tokens);
  EXPECT_EQ(all.all.model_flops, 20);
  EXPECT_EQ(all.all.hardware_flops, 28);
  EXPECT_EQ(all.inner.step_seconds(), inner.step_seconds());
}

// What a rank has of the weights in common with others is sent once, and notes by each rank.
TEST(Learners, RanksOfALearnerShareItsBytes) {
  LearnerWork outer = diloco();
  Workload work;
  const auto bytes = [&](int64_t notes_of_rank) {
    const double notes = 8.0 * static_cast<double>(notes_of_rank * work.axes.num_ranks());
    return sent_bytes(work, outer, 0) - notes;
  };
  work.axes.data = 2;
  EXPECT_EQ(bytes(4), 4 * kDemoWeights);
  work.zero = 3;
  work.axes.shard = 2;
  EXPECT_EQ(bytes(4), 4 * kDemoWeights);
  work.axes.tensor = 2;
  for (ExchangedParameter& each : outer.parameters) each.is_cut = each.elements > 192;
  EXPECT_EQ(bytes(6), 4 * (kDemoWeights + 9 * 192));  // norms by each tensor rank
  work.zero = 0;
  work.axes.shard = 1;
  EXPECT_EQ(bytes(6), 4 * kDemoWeights);
  outer.num_states = 2;
  EXPECT_EQ(bytes(6), 3 * 4 * kDemoWeights);
  outer.num_states = 0;
  outer.form.code = parallel::WireCode::kInt8;
  // Four shares of the norms, and two of each tensor rank's part.
  const int64_t norms = 9 * 192, part = (kDemoWeights - norms) / 4;
  EXPECT_EQ(bytes(6), kDemoWeights + 4 * 4 * ((norms / 4 + 255) / 256) +
                          4.0 * 4 * static_cast<double>((part + 255) / 256));
}

TEST(Learners, ExpertsAreSentByEachRank) {
  LearnerWork outer = diloco();
  outer.parameters = {{.elements = 1000}, {.elements = 4000, .is_expert = true}};
  Workload work;
  work.axes.data = 4;
  work.axes.expert = 2;
  EXPECT_EQ(sent_bytes(work, outer, 0), 4.0 * (1000 + 2 * 4000) + 8 * 6 * 4);
}

TEST(Learners, FrozenWeightsStay) {
  LearnerWork outer = diloco();
  outer.fragments = 2;
  outer.every = 10;
  outer.parameters = {{.elements = 1000, .is_trained = false}, {.elements = 1000}};
  EXPECT_EQ(sent_bytes(Workload(), outer, 0), 32);
  EXPECT_EQ(sent_bytes(Workload(), outer, 1), 4032);
}

TEST(Learners, ManySumPartsOrSendCodesToAll) {
  LearnerWork outer = diloco();
  outer.learners = 4;
  EXPECT_EQ(sent_bytes(Workload(), outer, 0), 2 * 3 * kDemoWeights + 3 * 32);
  Cluster cluster = slow_hosts();
  cluster.nodes = 4;
  const LearnerPrediction parts = with_learners(Workload(), outer, cluster, measured_step());
  EXPECT_NEAR(parts.exchange_seconds, 2 * 0.75 * 4 * kDemoWeights / kRate + 3 * 0.05, 1e-6);
  EXPECT_NEAR(parts.round_trips, 1.5, 1e-9);
  outer.form.code = parallel::WireCode::kInt8;
  const int64_t coded = kDemoWeights + 4 * 6729;
  EXPECT_EQ(sent_bytes(Workload(), outer, 0), 3 * coded + 3 * 32);
  const double all = with_learners(Workload(), outer, cluster, measured_step()).exchange_seconds;
  EXPECT_NEAR(all, 3 * static_cast<double>(coded) / kRate + 0.1, 1e-6);
}

TEST(Learners, OfAGraphExchangeWithTheirNeighbours) {
  LearnerWork outer = diloco();
  outer.learners = 4;
  outer.graph = parallel::make_ring_graph(4);
  const double whole = 4.0 * kDemoWeights;
  EXPECT_EQ(sent_bytes(Workload(), outer, 0), 2 * whole + 3 * 2 * 8);
  Cluster cluster = slow_hosts();
  cluster.nodes = 4;
  const auto seconds = [&] {
    return with_learners(Workload(), outer, cluster, measured_step()).exchange_seconds;
  };
  EXPECT_NEAR(seconds(), 2 * whole / kRate + 0.1, 1e-6);
  outer.graph = parallel::make_one_peer_graph(4);
  EXPECT_EQ(sent_bytes(Workload(), outer, 0), whole + 3 * 2 * 8);
  EXPECT_NEAR(seconds(), whole / kRate + 0.1, 1e-6);
  // Two learners on each of two nodes: in both rounds some neighbours are on the other node.
  cluster.nodes = 2;
  cluster.devices_per_node = 2;
  cluster.device.link_rate = 1e9;
  cluster.device.link_share = 1;
  EXPECT_NEAR(seconds(), whole / kRate + 0.1, 1e-6);
  EXPECT_THAT(nodes_of_learners(cluster, 4), testing::ElementsAre(0, 0, 1, 1));
}

TEST(Learners, LieOnNodesAndSites) {
  const Cluster cluster = cluster_of("a100-80gb", 4, 8);
  EXPECT_EQ(cluster_of_learner(cluster, 1).num_devices(), 32);
  EXPECT_EQ(cluster_of_learner(cluster, 2).nodes, 2);
  EXPECT_EQ(cluster_of_learner(cluster, 16).num_devices(), 2);
  for (const int64_t learners : {0, 3, 6, 64}) {
    EXPECT_THAT(harness::message_of<ConfigError>([&] { cluster_of_learner(cluster, learners); }),
                HasSubstr("on 4 nodes of 8 devices"))
        << learners;
  }
  Cluster sites = cluster;
  sites.site_nodes = 2;
  sites.site_rate = 1e6;
  sites.site_seconds = 0.1;
  LearnerWork outer = diloco();
  Workload work;
  work.axes.data = 16;
  const auto seconds = [&](const Cluster& on) {
    return with_learners(work, outer, on, measured_step()).exchange_seconds;
  };
  EXPECT_NEAR(seconds(sites), 4.0 * kDemoWeights / 16 / 1e6 + 0.2, 1e-9);
  EXPECT_LT(seconds(cluster), 0.01);
  // A fragment lies on one of two stages, whose ranks send it.
  outer.every = 4;
  outer.fragments = 2;
  const double together = seconds(sites);
  work.axes.data = 8;
  work.axes.pipeline = 2;
  EXPECT_NEAR(seconds(sites) - 0.4, 2 * (together - 0.4), 1e-4);
}

}  // namespace
}  // namespace trireme::plan
