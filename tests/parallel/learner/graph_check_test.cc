#include "trireme/parallel/learner/graph_check.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"

namespace trireme::parallel {
namespace {

TEST(GraphCheck, ErrorsAreTheLargestDistanceFromTheMean) {
  const std::vector<double> errors = errors_by_round(make_ring_graph(4), 2);
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(errors[0], 0.75);
  // A learner's own value and two neighbours' with 1/3 each; the fourth is 1/4 away.
  EXPECT_NEAR(errors[1], 0.25, 1e-15);
  // The matrix squared has 3/9 on its diagonal and 2/9 beside it.
  EXPECT_NEAR(errors[2], 1.0 / 3 - 0.25, 1e-15);
}

TEST(GraphCheck, OnePeerRoundsAreNotExactForOtherNumbers) {
  // What the maker refuses, as rounds of a user's own.
  for (const int n : {3, 5, 6, 12}) {
    std::vector<GraphRound> rounds;
    for (int distance = 1; distance < n; distance *= 2) {
      rounds.emplace_back();
      for (int to = 0; to < n; ++to) rounds.back().push_back({(to + n - distance) % n, to, 0.5});
    }
    const GraphReport report = report_on(make_graph("mine", n, rounds));
    EXPECT_EQ(report.exact_after, -1);
    EXPECT_GT(report.errors.back(), 0.04);
    EXPECT_LT(report.errors.back(), 0.17);
    EXPECT_GT(report.contraction, 0);
  }
}

TEST(GraphCheck, ContractionIsTheSecondEigenvalue) {
  for (const int n : {4, 5, 9, 16}) {
    const double expected = (1 + 2 * std::cos(2 * std::numbers::pi / n)) / 3;
    EXPECT_NEAR(report_on(make_ring_graph(n)).contraction, expected, 1e-9) << n;
  }
  // A circle in one direction has complex eigenvalues: |1 + exp(2 pi i / n)| / 2.
  for (const int n : {3, 6}) {
    GraphRound round;
    for (int to = 0; to < n; ++to) round.push_back({(to + 1) % n, to, 0.5});
    EXPECT_NEAR(report_on(make_graph("mine", n, {round})).contraction,
                std::cos(std::numbers::pi / n), 1e-9);
  }
  EXPECT_EQ(report_on(make_complete_graph(6)).contraction, 0);
}

TEST(GraphCheck, PushSumReachesTheMeanOfADirectedGraph) {
  const LearnerGraph graph =
      make_graph("mine", 3, {{{0, 1, 0.5}, {1, 2, 0.25}, {2, 0, 0.3}, {1, 0, 0.25}}});
  ASSERT_EQ(graph.kind, MixingKind::kColumnStochastic);
  const GraphReport report = report_on(graph);
  EXPECT_TRUE(report.is_connected);
  EXPECT_LT(report.contraction, 1);
  const std::vector<double> errors = errors_by_round(graph, 200);
  EXPECT_LT(errors.back(), 10 * rounding_of(graph, 200));
}

TEST(GraphCheck, ADirectedGraphMayBeExact) {
  // Learner 1 gives half to learner 0, which gives half of what it then has back, and so on.
  const LearnerGraph graph = make_graph("mine", 2, {{{0, 1, 0.5}, {1, 0, 0.5}}, {{0, 1, 0.25}}});
  EXPECT_EQ(graph.kind, MixingKind::kColumnStochastic);
  const GraphReport report = report_on(graph);
  EXPECT_EQ(report.exact_after, 1);
  EXPECT_LT(report.errors[2], rounding_of(graph, 2));
}

TEST(GraphCheck, NamesLearnersThatNeverHearOfEachOther) {
  const auto message = [](const LearnerGraph& graph) {
    return harness::message_of<ConfigError>([&] { check_connected(graph); });
  };
  const LearnerGraph apart =
      make_graph("mine", 4, {{{0, 1, 0.5}, {1, 0, 0.5}}, {{2, 3, 0.5}, {3, 2, 0.5}}});
  EXPECT_NE(message(apart).find("learner 0 never reaches learner 2"), std::string::npos);
  EXPECT_EQ(report_on(apart).contraction, 1);
  EXPECT_FALSE(report_on(apart).is_connected);
  const LearnerGraph one_way = make_graph("mine", 2, {{{0, 1, 0.5}}});
  EXPECT_NE(message(one_way).find("learner 1 never reaches learner 0"), std::string::npos);
  EXPECT_EQ(message(make_ring_graph(3)), "");
}

TEST(GraphCheck, CountsWhatLearnersSend) {
  const LearnerGraph graph = make_graph("mine", 3, {{{0, 1, 0.25}, {0, 2, 0.25}}, {{1, 0, 0.5}}});
  EXPECT_EQ(sent_bytes(graph.rounds[0], 0, 100), 200);
  EXPECT_EQ(sent_bytes(graph.rounds[0], 1, 100), 0);
  EXPECT_EQ(received_bytes(graph.rounds[0], 2, 100), 100);
  const GraphReport report = report_on(graph);
  EXPECT_EQ(report.most_sends, 2);
  EXPECT_EQ(report.mean_sends, 0.5);
}

}  // namespace
}  // namespace trireme::parallel
