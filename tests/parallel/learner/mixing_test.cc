#include "trireme/parallel/learner/mixing.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/harness/gradients.h"
#include "tests/harness/messages.h"
#include "tests/harness/one_thread.h"
#include "tests/harness/ranks.h"
#include "trireme/parallel/learner/base_graph.h"
#include "trireme/parallel/learner/graph_check.h"

namespace trireme::parallel {
namespace {

using comm::Communicator;

// Learner i gives a third to each of two others in even rounds, half to one in odd rounds, but
// learner 0 gives nothing then.
LearnerGraph directed_graph(int n) {
  std::vector<GraphRound> rounds(2);
  for (int i = 0; i < n; ++i) {
    if (n > 1) rounds[0].push_back({i, (i + 1) % n, 1.0 / 3});
    if (n > 2) rounds[0].push_back({i, (i + 2) % n, 1.0 / 3});
    if (i > 0) rounds[1].push_back({i, i - 1, 0.5});
  }
  return make_graph("directed", n, rounds);
}

std::vector<LearnerGraph> graphs_of(int n) {
  std::vector<LearnerGraph> graphs{make_complete_graph(n),       make_ring_graph(n),
                                   make_exponential_graph(n),    make_base_graph(n, 1),
                                   make_simple_base_graph(n, 2), directed_graph(n)};
  if ((n & (n - 1)) == 0) graphs.push_back(make_one_peer_graph(n));
  return graphs;
}

at::Tensor value_of(int learner, int64_t count, at::ScalarType dtype) {
  return harness::values({count}, 0.37 + 0.11 * learner, 1 + learner, dtype);
}

// Mixing matrices on all learners' values at once, in fp64: [learners, count]
at::Tensor mixed_by_matrix(const LearnerGraph& graph, int num_rounds, int64_t count) {
  std::vector<at::Tensor> rows;
  for (int i = 0; i < graph.num_learners; ++i) rows.push_back(value_of(i, count, at::kDouble));
  at::Tensor values = at::stack(rows);
  LearnerWeights weights = even_weights(graph);
  for (int t = 0; t < num_rounds; ++t) {
    const std::vector<double> kept = graph.kept(graph.round(t));
    at::Tensor matrix = at::diag(at::tensor(kept, at::kDouble));
    for (const GraphEdge& edge : graph.round(t)) matrix[edge.to][edge.from] += edge.weight;
    const at::Tensor before = at::tensor(weights, at::kDouble).view({-1, 1});
    advance(weights, graph, t);
    values = matrix.mm(values * before) / at::tensor(weights, at::kDouble).view({-1, 1});
  }
  return values;
}

class Mixing : public testing::TestWithParam<int> {
  harness::OneThread one_thread_;
};

TEST_P(Mixing, IsTheProductWithTheMixingMatrices) {
  constexpr int64_t kCount = 37;
  constexpr int kRounds = 7;
  for (const LearnerGraph& graph : graphs_of(GetParam())) {
    const at::Tensor expected = mixed_by_matrix(graph, kRounds, kCount);
    harness::run_ranks(GetParam(), [&](Communicator& group) {
      for (const auto dtype : {at::kDouble, at::kFloat}) {
        const at::Tensor x = value_of(group.rank(), kCount, dtype);
        LearnerWeights weights = even_weights(graph);
        for (int t = 0; t < kRounds; ++t) mix(x, graph, t, weights, group);
        // Each round: one rounding for each received value's difference, product and sum.
        const double rounding =
            (dtype == at::kDouble ? 0x1p-53 : 0x1p-24) * 3 * (GetParam() + 1) * (kRounds + 1) * 2;
        harness::assert_close(x.to(at::kDouble), expected[group.rank()], 0, rounding * GetParam(),
                              graph.name);
      }
    });
  }
}

TEST_P(Mixing, LeavesEqualLearnersBitForBit) {
  // Numbers of every size, where w x + (1 - w) x is often not x.
  const at::Tensor same =
      harness::values({10007}, 0.71, 3, at::kFloat) * at::exp(harness::values({10007}, 1.3, 60));
  const at::Tensor start = same.to(at::kFloat);
  for (const LearnerGraph& graph : graphs_of(GetParam())) {
    harness::run_ranks(GetParam(), [&](Communicator& group) {
      const at::Tensor x = start.clone();
      LearnerWeights weights = even_weights(graph);
      for (int t = 0; t < 5; ++t) mix(x, graph, t, weights, group);
      harness::assert_same_bits(x, start, graph.name);
    });
  }
}

TEST_P(Mixing, KeepsTheMassOfPushSum) {
  const int n = GetParam();
  constexpr int64_t kCount = 64;
  constexpr int kRounds = 60;
  const LearnerGraph graph = directed_graph(n);
  harness::run_ranks(n, [&](Communicator& group) {
    const at::Tensor x = value_of(group.rank(), kCount, at::kDouble);
    LearnerWeights weights = even_weights(graph);
    at::Tensor before = x.clone();
    group.all_reduce(before)->wait();
    for (int t = 0; t < kRounds; ++t) mix(x, graph, t, weights, group);
    at::Tensor after = x * weights[static_cast<size_t>(group.rank())];
    group.all_reduce(after)->wait();
    // Values up to n; roundings are as likely up as down.
    harness::assert_close(after, before, 0, 1e-14 * n * n, "sum");
    const double error = errors_by_round(graph, kRounds).back();  // of values up to 1
    harness::assert_close(x, before / n, 0, error * n * n + 1e-13, "mean");
  });
}

TEST_P(Mixing, SendsWhatTheGraphSays) {
  constexpr int64_t kCount = 1000;
  for (const LearnerGraph& graph : graphs_of(GetParam())) {
    harness::run_ranks(GetParam(), [&](Communicator& inner) {
      harness::CountingCommunicator group(inner);
      LearnerWeights weights = even_weights(graph);
      for (int t = 0; t < graph.period(); ++t) {
        const GraphRound& round = graph.round(t);
        group.ledger().clear();
        mix(value_of(group.rank(), kCount, at::kFloat), graph, t, weights, group);
        const int64_t bytes = kCount * static_cast<int64_t>(sizeof(float));
        EXPECT_EQ(group.ledger().of("world", "send").bytes, sent_bytes(round, group.rank(), bytes));
        EXPECT_EQ(group.ledger().of("world", "recv").bytes,
                  received_bytes(round, group.rank(), bytes));
        EXPECT_EQ(group.ledger().of("world").bytes, sent_bytes(round, group.rank(), bytes) +
                                                        received_bytes(round, group.rank(), bytes));
      }
    });
  }
}

TEST_P(Mixing, DoesNotBlockOnLargeTensors) {
  // Larger than what a send may leave behind before its recv.
  constexpr int64_t kCount = (1 << 20) + 3;
  for (const LearnerGraph& graph : {make_complete_graph(GetParam()), make_ring_graph(GetParam())}) {
    harness::run_ranks(GetParam(), [&](Communicator& group) {
      const at::Tensor x = at::full({kCount}, group.rank(), at::kFloat);
      LearnerWeights weights = even_weights(graph);
      mix(x, graph, 0, weights, group);
      double expected = 0;
      for (const GraphEdge& edge : graph.rounds[0]) {
        if (edge.to == group.rank()) expected += edge.weight * (edge.from - group.rank());
      }
      EXPECT_NEAR(x[kCount - 1].item<float>(), group.rank() + expected, 1e-5);
      EXPECT_TRUE(x.eq(x[0]).all().item<bool>());
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Learners, Mixing, testing::Values(1, 2, 3, 4, 5, 8));

TEST(MixingOfProcesses, IsExactWithABaseGraph) {
  const auto statuses = harness::fork_ranks(3, [](Communicator& group) {
    const LearnerGraph graph = make_base_graph(3, 1);
    const at::Tensor x = at::full({200001}, 3.0 * group.rank(), at::kDouble);
    LearnerWeights weights = even_weights(graph);
    for (int t = 0; t < graph.period(); ++t) mix(x, graph, t, weights, group);
    harness::assert_close(x, at::full_like(x, 3.0), 0, 1e-14, "mean");
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0, 0, 0}));
}

TEST(MixingErrors, RefusesOtherGroupsAndTensors) {
  harness::run_ranks(2, [](Communicator& group) {
    const auto message = [&](const at::Tensor& x, int num_learners) {
      const LearnerGraph graph = make_ring_graph(num_learners);
      LearnerWeights weights = even_weights(graph);
      return harness::message_of<ConfigError>([&] { mix(x, graph, 0, weights, group); });
    };
    EXPECT_NE(message(at::zeros({4}), 3).find("world has 2"), std::string::npos);
    EXPECT_NE(message(at::zeros({4}, at::kHalf), 2).find("Half"), std::string::npos);
    EXPECT_NE(message(at::zeros({2, 2}), 2).find("2 dimensions"), std::string::npos);
    EXPECT_NE(message(at::zeros({4, 2}).select(1, 0), 2).find("contiguous"), std::string::npos);
  });
}

TEST(MixingErrors, ChangesNothingWhenAPeerIsGone) {
  const at::Tensor start = at::ones({5});
  const at::Tensor x = start.clone();
  const LearnerGraph graph = directed_graph(2);
  LearnerWeights weights = even_weights(graph);
  EXPECT_THROW(harness::run_ranks(2,
                                  [&](Communicator& group) {
                                    if (group.rank() == 1) throw ConfigError("gone");
                                    mix(x, graph, 1, weights, group);
                                  }),
               Error);
  harness::assert_same_bits(x, start, "x");
  EXPECT_EQ(weights, even_weights(graph));
}

}  // namespace
}  // namespace trireme::parallel
