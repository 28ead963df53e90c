#include "trireme/cli/bench/bench_graph.h"

#include <algorithm>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

using ::testing::HasSubstr;

TEST(BenchGraph, ShowsRowsKindSpeedAndErrors) {
  const std::string text = show_graph(check_graph({.graph = "ring", .num_learners = 6}));
  EXPECT_THAT(text, HasSubstr("graph   ring of 6 learners\n"));
  EXPECT_THAT(text, HasSubstr("doubly stochastic"));
  // The second eigenvalue of the ring: 1/3 + 2/3 cos(pi / 3).
  EXPECT_THAT(text, HasSubstr("1 round shrinks a disagreement to 0.6667 of it, gap 0.3333"));
  EXPECT_THAT(text, HasSubstr("   0 0.333 0.333     .     .     . 0.333\n"));
  EXPECT_THAT(text, HasSubstr("    0   0.833333\n    1   0.166667\n"));
  const std::string exact = show_graph(check_graph({.graph = "one-peer", .num_learners = 4}));
  EXPECT_THAT(exact, HasSubstr("exact   after 2 rounds"));
  EXPECT_THAT(exact, HasSubstr("    2   exact\n"));
}

TEST(BenchGraph, EveryLineFitsInEightyColumns) {
  for (const std::string graph :
       {"complete", "ring", "torus", "exponential", "base-2", "base-5", "host"}) {
    for (const int n : {1, 2, 3, 4, 12, 13, 40, 64, 65}) {
      std::istringstream text(show_graph(check_graph({.graph = graph, .num_learners = n})));
      for (std::string line; std::getline(text, line);) {
        EXPECT_LE(line.size(), 80U) << graph << " " << n << ": " << line;
      }
    }
  }
}

TEST(BenchGraph, TheJsonHasEveryEdge) {
  const auto all = nlohmann::json::parse(
      graph_json(check_graph({.graph = "host", .num_learners = 6, .num_hosts = 2})));
  EXPECT_EQ(all["learners"], 6);
  EXPECT_EQ(all["connected"], true);
  EXPECT_EQ(all["errors"].size(), 9U);
  ASSERT_GE(all["rounds"].size(), 2U);
  EXPECT_EQ(all["rounds"][0]["edges"].size(), 12U) << "three learners of each host average";
  for (const auto& round : all["rounds"]) {
    double sum = 0;
    for (const double kept : round["kept"]) sum += kept;
    for (const auto& edge : round["edges"]) sum += edge["weight"].get<double>();
    EXPECT_NEAR(sum, 6, 1e-12);
  }
}

TEST(BenchGraph, RefusesWhatIsNoGraph) {
  const auto refusal = [](const GraphCase& what) {
    return harness::message_of<ConfigError>([&] { check_graph(what); });
  };
  EXPECT_THAT(refusal({.graph = "rings"}), HasSubstr("expected complete, ring"));
  EXPECT_THAT(refusal({.graph = "one-peer", .num_learners = 6}), HasSubstr("base-2"));
  EXPECT_THAT(refusal({.graph = "host", .num_learners = 6, .num_hosts = 4}),
              HasSubstr("--hosts is 4, which does not divide the 6 learners"));
}

}  // namespace
}  // namespace trireme::cli
