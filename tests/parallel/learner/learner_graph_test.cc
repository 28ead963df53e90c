#include "trireme/parallel/learner/learner_graph.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/parallel/learner/graph_check.h"

namespace trireme::parallel {
namespace {

using harness::message_of;

TEST(LearnerGraph, MakersKeepTheMeanAndConnectEveryNumberOfLearners) {
  for (int n = 1; n <= 65; ++n) {
    for (const LearnerGraph& graph : {make_complete_graph(n), make_ring_graph(n),
                                      make_torus_graph(n), make_exponential_graph(n)}) {
      EXPECT_EQ(graph.kind, MixingKind::kDoublyStochastic) << graph.name;
      EXPECT_EQ(graph.period(), 1) << graph.name;
      check_connected(graph);
    }
  }
}

TEST(LearnerGraph, NeighboursAreThoseOfTheDefinition) {
  using Round = GraphRound;
  constexpr double kThird = 1.0 / 3;
  EXPECT_EQ(make_ring_graph(2).rounds[0], (Round{{1, 0, 0.5}, {0, 1, 0.5}}));
  EXPECT_EQ(make_ring_graph(3).rounds[0], (Round{{1, 0, kThird},
                                                 {2, 0, kThird},
                                                 {0, 1, kThird},
                                                 {2, 1, kThird},
                                                 {0, 2, kThird},
                                                 {1, 2, kThird}}));
  EXPECT_EQ(make_ring_graph(1).rounds[0], Round{});
  EXPECT_EQ(make_complete_graph(3).rounds, make_ring_graph(3).rounds);
  EXPECT_EQ(make_complete_graph(2).rounds, make_exponential_graph(2).rounds);
  const LearnerGraph torus = make_torus_graph(12);  // 3 x 4: learner 0 has 4 and 8, 1 and 3
  EXPECT_EQ(torus.name, "torus 3 x 4 of 12 learners");
  EXPECT_EQ(Round(torus.rounds[0].begin(), torus.rounds[0].begin() + 4),
            (Round{{1, 0, 0.2}, {3, 0, 0.2}, {4, 0, 0.2}, {8, 0, 0.2}}));
  EXPECT_EQ(make_torus_graph(6).rounds[0].size(), 6u * 3);  // two rows are neighbours once
  const LearnerGraph exponential = make_exponential_graph(7);
  EXPECT_EQ(Round(exponential.rounds[0].begin(), exponential.rounds[0].begin() + 3),
            (Round{{3, 0, 0.25}, {5, 0, 0.25}, {6, 0, 0.25}}));
  const LearnerGraph peers = make_one_peer_graph(4);
  ASSERT_EQ(peers.period(), 2);
  EXPECT_EQ(peers.rounds[1], (Round{{2, 0, 0.5}, {3, 1, 0.5}, {0, 2, 0.5}, {1, 3, 0.5}}));
  EXPECT_EQ(peers.round(5), peers.rounds[1]);
}

TEST(LearnerGraph, ATorusOfAPrimeNumberIsARingAndSaysSo) {
  for (const int n : {1, 2, 3, 7, 13}) {
    const LearnerGraph graph = make_torus_graph(n);
    EXPECT_EQ(graph.rounds, make_ring_graph(n).rounds);
    EXPECT_NE(graph.name.find("no torus"), std::string::npos) << graph.name;
  }
}

TEST(LearnerGraph, OnePeerGraphsAreForPowersOfTwo) {
  for (int n = 1; n <= 64; ++n) {
    if ((n & (n - 1)) == 0) {
      const GraphReport report = report_on(make_one_peer_graph(n));
      EXPECT_EQ(report.exact_after, static_cast<int>(std::log2(n)));
      EXPECT_LE(report.most_sends, 1);
      continue;
    }
    EXPECT_NE(message_of<ConfigError>([&] { make_one_peer_graph(n); }).find("base-2 graph"),
              std::string::npos);
  }
}

TEST(LearnerGraph, RefusesEdgesThatMeanNothing) {
  const auto message = [](int n, std::vector<GraphRound> rounds) {
    return message_of<ConfigError>([&] { make_graph("mine", n, std::move(rounds)); });
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_NE(message(0, {{}}).find("1 to 1024"), std::string::npos);
  EXPECT_NE(message(kMostLearners + 1, {{}}).find("1 to 1024"), std::string::npos);
  EXPECT_NE(message(2, {}).find("no round"), std::string::npos);
  EXPECT_NE(message(2, {{{0, 2, 0.5}}}).find("from 0 to 1"), std::string::npos);
  EXPECT_NE(message(2, {{{-1, 0, 0.5}}}).find("from 0 to 1"), std::string::npos);
  EXPECT_NE(message(2, {{{1, 1, 0.5}}}).find("two different"), std::string::npos);
  EXPECT_NE(message(2, {{{0, 1, 0.2}, {0, 1, 0.2}}}).find("twice"), std::string::npos);
  for (const double weight : {0.0, -0.5, kInfinity, std::nan("")}) {
    EXPECT_NE(message(2, {{{0, 1, weight}}}).find("above 0"), std::string::npos) << weight;
  }
  EXPECT_NE(message(2, {{{0, 1, 1}, {1, 0, 1}}}).find("receives"), std::string::npos);
  EXPECT_NE(message(2, {{}, {{0, 1, 1}}}).find("round 1, leaves learner 0"), std::string::npos);
}

TEST(LearnerGraph, WhatIsKeptFollowsFromWhatIsGivenOrReceived) {
  const LearnerGraph one_way = make_graph("mine", 3, {{{0, 1, 0.25}, {0, 2, 0.25}}});
  EXPECT_EQ(one_way.kind, MixingKind::kColumnStochastic);
  EXPECT_EQ(one_way.kept(one_way.rounds[0]), (std::vector<double>{0.5, 1, 1}));
  const LearnerGraph circle = make_graph("mine", 3, {{{0, 1, 0.25}, {1, 2, 0.25}, {2, 0, 0.25}}});
  EXPECT_EQ(circle.kind, MixingKind::kDoublyStochastic);
  EXPECT_EQ(circle.kept(circle.rounds[0]), (std::vector<double>(3, 0.75)));
}

TEST(LearnerGraph, FingerprintsTellGraphsApart) {
  EXPECT_EQ(make_torus_graph(7).fingerprint(), make_ring_graph(7).fingerprint());
  EXPECT_NE(make_ring_graph(8).fingerprint(), make_ring_graph(7).fingerprint());
  EXPECT_NE(make_ring_graph(8).fingerprint(), make_exponential_graph(8).fingerprint());
  EXPECT_NE(make_graph("", 2, {{{0, 1, 0.25}, {1, 0, 0.25}}}).fingerprint(),
            make_ring_graph(2).fingerprint());
}

TEST(LearnerGraph, EqualHostsAreAsExactAsTheGraphBetweenThem) {
  // Learners of a host need not be neighbours.
  const LearnerGraph graph = make_host_graph({0, 1, 2, 3, 0, 1, 2, 3}, make_one_peer_graph(4));
  EXPECT_EQ(graph.period(), 3);
  EXPECT_EQ(graph.rounds[0].size(), 8u);
  EXPECT_EQ(graph.rounds[0][0], (GraphEdge{4, 0, 0.5}));
  EXPECT_EQ(graph.rounds[1].size(), 8u);
  EXPECT_EQ(report_on(graph).exact_after, 3);
  EXPECT_EQ(make_host_graph({5, 5, 5}, make_ring_graph(1)).rounds, make_complete_graph(3).rounds);
  EXPECT_EQ(make_host_graph({2, 0, 1}, make_ring_graph(3)).rounds, make_ring_graph(3).rounds);
  EXPECT_EQ(make_host_graph({7}, make_ring_graph(1)).rounds, make_ring_graph(1).rounds);
}

TEST(LearnerGraph, UnequalHostsKeepTheMean) {
  const LearnerGraph graph = make_host_graph({0, 0, 0, 1, 2, 2}, make_ring_graph(3));
  EXPECT_EQ(graph.kind, MixingKind::kDoublyStochastic);
  const GraphReport report = report_on(graph);
  EXPECT_TRUE(report.is_connected);
  EXPECT_GT(report.contraction, 0);
  EXPECT_LT(report.contraction, 0.9);
  EXPECT_LT(errors_by_round(graph, 300).back(), rounding_of(graph, 300));
  EXPECT_NE(message_of<ConfigError>([] {
              make_host_graph({0, 0, 1}, make_ring_graph(3));
            }).find("2 hosts"),
            std::string::npos);
  EXPECT_NE(message_of<ConfigError>([] {
              make_host_graph({0, 0, 1, 1, 2, 3}, make_one_peer_graph(4));
            }).find("symmetric"),
            std::string::npos);
  EXPECT_THROW(make_host_graph({}, make_ring_graph(1)), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
