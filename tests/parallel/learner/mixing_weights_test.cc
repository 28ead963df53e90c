#include "trireme/parallel/learner/mixing_weights.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

TEST(MixingWeights, StayOneInADoublyStochasticGraph) {
  const LearnerGraph graph = make_ring_graph(5);
  LearnerWeights weights = even_weights(graph);
  for (int t = 0; t < 10; ++t) advance(weights, graph, t);
  EXPECT_EQ(weights, LearnerWeights(5, 1.0));
}

TEST(MixingWeights, KeepTheirSum) {
  // Learner i gives to (i + 2^t) and (3 i + 1), with equal weights.
  constexpr int kLearners = 7;
  std::vector<GraphRound> rounds(3);
  for (int t = 0; t < 3; ++t) {
    for (int i = 0; i < kLearners; ++i) {
      std::vector<int> to;
      for (const int j : {(i + (1 << t)) % kLearners, (3 * i + 1) % kLearners}) {
        if (j != i && (to.empty() || to[0] != j)) to.push_back(j);
      }
      for (const int j : to) {
        rounds[static_cast<size_t>(t)].push_back({i, j, 1.0 / static_cast<double>(to.size() + 1)});
      }
    }
  }
  const LearnerGraph graph = make_graph("mine", kLearners, rounds);
  ASSERT_EQ(graph.kind, MixingKind::kColumnStochastic);
  LearnerWeights weights = even_weights(graph);
  advance(weights, graph, 0);
  EXPECT_NE(weights, even_weights(graph));
  for (int t = 1; t < 60; ++t) advance(weights, graph, t);
  EXPECT_NEAR(std::accumulate(weights.begin(), weights.end(), 0.0), kLearners, 1e-13);
  for (const double weight : weights) EXPECT_GT(weight, 0);
}

}  // namespace
}  // namespace trireme::parallel
