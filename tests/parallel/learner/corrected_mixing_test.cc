// Corrections of gossip on quadratics, whose optima and fixed points are known.
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"
#include "trireme/parallel/learner/base_graph.h"
#include "trireme/parallel/learner/mixing.h"

namespace trireme::parallel {
namespace {

constexpr int64_t kWidth = 3;
constexpr double kRate = 0.2;

// [learners, learners]
at::Tensor matrix_of(const LearnerGraph& graph, int64_t number) {
  at::Tensor matrix = at::diag(at::tensor(graph.kept(graph.round(number)), at::kDouble));
  for (const GraphEdge& edge : graph.round(number)) matrix[edge.to][edge.from] = edge.weight;
  return matrix;
}

// The loss of learner i is sum_k a_ik (x_k - b_ik)^2 / 2.
struct Quadratics {
  at::Tensor a, b;  // [learners, kWidth], a from 0.5 to 1.5
  explicit Quadratics(int n)
      : a(1 + 0.5 * at::sin(at::arange(n * kWidth, at::kDouble) * 1.7).view({n, kWidth})),
        b(2 * at::cos(at::arange(n * kWidth, at::kDouble) * 0.9 + 1).view({n, kWidth})) {}

  at::Tensor step(const at::Tensor& x) const { return x - kRate * a * (x - b); }
  // Of the sum of all losses: [kWidth].
  at::Tensor optimum() const { return (a * b).sum(0) / a.sum(0); }
  // Where x = W step(x): (1 - W (1 - rate A)) x = W rate A b, for each k.
  at::Tensor fixed_point_of_gossip(const at::Tensor& matrix) const {
    const int64_t n = a.size(0);
    at::Tensor x = at::empty({n, kWidth}, at::kDouble);
    for (int64_t k = 0; k < kWidth; ++k) {
      const at::Tensor rates = kRate * a.select(1, k);
      const at::Tensor left =
          at::eye(n, at::TensorOptions(at::kDouble)) - matrix.mm(at::diag(1 - rates));
      const at::Tensor right = matrix.mv(rates * b.select(1, k));
      x.select(1, k).copy_(at::linalg_solve(left, right));
    }
    return x;
  }
};

// All learners at once: [learners, kWidth].
struct Learners {
  Correction method;
  at::Tensor x, e;

  // Mixes the weights `now` and returns the trackers, if there are any.
  at::Tensor mix_weights(const at::Tensor& now, const at::Tensor& matrix) {
    const CorrectedWeights weights{now, x, e};
    const std::vector<at::Tensor> values = values_to_mix(method, weights);
    std::vector<at::Tensor> mixed;
    for (const at::Tensor& value : values) mixed.push_back(matrix.mm(value));
    e = next_correction(method, weights, mixed);
    x = mixed[0];
    return values.size() > 1 ? values[1] : at::Tensor();
  }
};

double largest(const at::Tensor& x) { return x.abs().max().item<double>(); }

std::vector<LearnerGraph> graphs_for(Correction method, int n) {
  std::vector<LearnerGraph> graphs{make_ring_graph(n), make_torus_graph(n), make_complete_graph(n)};
  if (method == Correction::kD2) {
    for (LearnerGraph& graph : graphs) graph = graph_of_d2(graph);
  } else {
    graphs.push_back(make_base_graph(n, 1));
    graphs.push_back(make_exponential_graph(n));
  }
  return graphs;
}

class CorrectedMixing : public testing::TestWithParam<std::tuple<Correction, int>> {};

TEST_P(CorrectedMixing, SettlesAtTheOptimumWherePlainGossipDoesNot) {
  const auto [method, n] = GetParam();
  const Quadratics losses(n);
  for (const LearnerGraph& graph : graphs_for(method, n)) {
    Learners corrected{method, at::zeros({n, kWidth}, at::kDouble),
                       at::zeros({n, kWidth}, at::kDouble)};
    at::Tensor plain = corrected.x;
    for (int t = 0; t < 1500; ++t) {
      const at::Tensor matrix = matrix_of(graph, t);
      plain = matrix.mm(losses.step(plain));
      corrected.mix_weights(losses.step(corrected.x), matrix);
    }
    EXPECT_LT(largest(corrected.x - losses.optimum()), 1e-10) << graph.name;
    if (graph.period() > 1) continue;
    const at::Tensor settled = losses.fixed_point_of_gossip(matrix_of(graph, 0));
    EXPECT_LT(largest(plain - settled), 1e-10) << graph.name;
    const bool is_complete =
        graph.rounds[0].size() == static_cast<size_t>(n) * (n - 1) &&
        std::abs(graph.rounds[0].empty() ? 0 : graph.rounds[0][0].weight - 1.0 / n) < 1e-9;
    if (n > 1 && !is_complete) {
      EXPECT_GT(largest(settled - losses.optimum()), 0.01) << graph.name;
    }
  }
}

TEST_P(CorrectedMixing, KeepsTheSumsOfTrackersCorrectionsAndSteps) {
  const auto [method, n] = GetParam();
  const Quadratics losses(n);
  for (const LearnerGraph& graph : graphs_for(method, n)) {
    Learners learners{method, losses.b.clone(), at::zeros({n, kWidth}, at::kDouble)};
    for (int t = 0; t < 20; ++t) {
      const at::Tensor before = learners.x;
      const at::Tensor now = losses.step(losses.step(before));  // more than one step
      const at::Tensor trackers = learners.mix_weights(now, matrix_of(graph, t));
      // Sums of n numbers up to 4, each rounded a few times per round.
      const double rounding = 1e-14 * n * (t + 1);
      EXPECT_LT(largest(learners.e.sum(0)), rounding) << graph.name;
      EXPECT_LT(largest((learners.x - now).sum(0)), rounding) << graph.name;
      if (trackers.defined()) {
        EXPECT_LT(largest((trackers - (before - now)).sum(0)), rounding) << graph.name;
      }
    }
  }
}

TEST_P(CorrectedMixing, IsTheMeanOnACompleteGraph) {
  const auto [method, n] = GetParam();
  const Quadratics losses(n);
  const at::Tensor matrix = matrix_of(make_complete_graph(n), 0);
  Learners learners{method, losses.b.clone(), at::zeros({n, kWidth}, at::kDouble)};
  at::Tensor mean = losses.b.clone();
  for (int t = 0; t < 20; ++t) {
    learners.mix_weights(losses.step(learners.x), matrix);
    mean = losses.step(mean).mean(0).expand({n, kWidth});
    EXPECT_LT(largest(learners.x - mean), 1e-13 * n) << t;
  }
}

// What equal learners mix are their weights, which mix() leaves.
TEST_P(CorrectedMixing, LearnersThatAreEqualHaveNoCorrection) {
  const auto [method, n] = GetParam();
  const at::Tensor before = at::sin(at::arange(1001, at::kFloat) * 0.37);
  const at::Tensor now = before * 1.1 - 0.01;
  const CorrectedWeights weights{now, before, at::zeros_like(now)};
  const std::vector<at::Tensor> values = values_to_mix(method, weights);
  EXPECT_TRUE(values[0].equal(now));
  EXPECT_EQ(largest(next_correction(method, weights, values)), 0);
}

INSTANTIATE_TEST_SUITE_P(Learners, CorrectedMixing,
                         testing::Combine(testing::Values(Correction::kGradientTracking,
                                                          Correction::kD2),
                                          testing::Values(1, 2, 3, 4, 6)));

// Rings of weights 1/3 have the eigenvalues 1/3 + 2/3 cos(2 pi k / n).
TEST(GraphOfD2, HasNoNegativeEigenvalue) {
  EXPECT_EQ(graph_of_d2(make_ring_graph(3)), make_ring_graph(3));
  EXPECT_EQ(graph_of_d2(make_complete_graph(5)), make_complete_graph(5));
  const LearnerGraph four = graph_of_d2(make_ring_graph(4));
  EXPECT_NEAR(four.rounds[0][0].weight, 0.25, 1e-12);
  EXPECT_NE(four.name.find("0.75"), std::string::npos) << four.name;
  const double smallest = 1.0 / 3 + 2.0 / 3 * std::cos(4 * std::acos(-1.0) / 5);
  EXPECT_NEAR(graph_of_d2(make_ring_graph(5)).rounds[0][0].weight, 1.0 / 3 / (1 - smallest), 1e-12);
  for (const int n : {2, 3, 4, 6, 9, 16}) {
    const at::Tensor matrix = matrix_of(graph_of_d2(make_torus_graph(n)), 0);
    EXPECT_GT(at::linalg_eigvalsh(matrix).min().item<double>(), -1e-9) << n;
  }
}

TEST(GraphOfD2, RefusesGraphsThatChangeOrGoOneWay) {
  const auto refusal = [](const LearnerGraph& graph) {
    return harness::message_of<ConfigError>([&] { graph_of_d2(graph); });
  };
  EXPECT_NE(refusal(make_exponential_graph(4)).find("other weights one way"), std::string::npos);
  EXPECT_NE(refusal(make_base_graph(6, 1)).find("different rounds"), std::string::npos);
}

}  // namespace
}  // namespace trireme::parallel
