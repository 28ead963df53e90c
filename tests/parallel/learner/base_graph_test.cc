#include "trireme/parallel/learner/base_graph.h"

#include <cmath>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/learner/graph_check.h"

namespace trireme::parallel {
namespace {

TEST(BaseGraph, IsExactForEveryNumberOfLearners) {
  for (int n = 1; n <= 64; ++n) {
    for (int k = 1; k <= 4; ++k) {
      for (const LearnerGraph& graph : {make_simple_base_graph(n, k), make_base_graph(n, k)}) {
        EXPECT_EQ(graph.kind, MixingKind::kDoublyStochastic) << graph.name;
        const GraphReport report = report_on(graph);
        // Not before its last round, or that round would be of no use.
        EXPECT_EQ(report.exact_after, n == 1 ? 0 : graph.period()) << graph.name;
        EXPECT_LE(report.most_sends, k) << graph.name;
        // Takezawa et al. 2023, theorem 1
        if (n > 1) {
          EXPECT_LE(graph.period(), 2 * std::log(n) / std::log(k + 1) + 2) << graph.name;
        }
      }
      EXPECT_LE(make_base_graph(n, k).period(), make_simple_base_graph(n, k).period());
    }
  }
}

TEST(BaseGraph, OfPowersIsTheHypercube) {
  const LearnerGraph graph = make_base_graph(8, 1);
  EXPECT_EQ(graph.period(), 3);
  for (int bit = 0; bit < 3; ++bit) {
    for (const GraphEdge& edge : graph.rounds[static_cast<size_t>(bit)]) {
      EXPECT_EQ(edge.from ^ edge.to, 1 << bit);
      EXPECT_EQ(edge.weight, 0.5);
    }
  }
  EXPECT_EQ(make_base_graph(5, 4).rounds, make_complete_graph(5).rounds);
  EXPECT_EQ(make_base_graph(5, 100).rounds, make_complete_graph(5).rounds);
}

TEST(BaseGraph, OfFiveLearnersExchangesBetweenFourAndOne) {
  // 5 = 4 + 1: two rounds average four learners, one exchanges with the fifth with weight 4/5, and
  // two average again.
  const LearnerGraph graph = make_simple_base_graph(5, 1);
  EXPECT_EQ(graph.name, "simple base-2 graph of 5 learners");
  ASSERT_EQ(graph.period(), 5);
  EXPECT_EQ(graph.rounds[2], (GraphRound{{4, 0, 0.8}, {0, 4, 0.8}}));
}

TEST(BaseGraph, TakesFewerRoundsThanTheSimpleOneWhereItCan) {
  // 6 = 2 * 3: the simple graph takes 4 + 2 apart, the other two threes.
  const int simple = make_simple_base_graph(6, 1).period(), base = make_base_graph(6, 1).period();
  EXPECT_EQ(simple, 5);
  EXPECT_EQ(base, 4);
}

TEST(BaseGraph, OfManyLearnersStaysWithinItsPeers) {
  const LearnerGraph graph = make_base_graph(1000, 2);
  EXPECT_EQ(errors_by_round(graph, 0).front(), 1 - 1.0 / 1000);
  EXPECT_EQ(report_on(graph).exact_after, graph.period());
}

TEST(BaseGraph, RefusesNoPeersAndNoLearners) {
  EXPECT_THROW(make_base_graph(4, 0), ConfigError);
  EXPECT_THROW(make_simple_base_graph(4, -1), ConfigError);
  EXPECT_THROW(make_base_graph(0, 1), ConfigError);
  EXPECT_THROW(make_base_graph(kMostLearners + 1, 1), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
