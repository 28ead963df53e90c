#include "trireme/parallel/learner/graph_file.h"

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"
#include "trireme/parallel/learner/base_graph.h"

namespace trireme::parallel {
namespace {

constexpr const char* kText =
    "# three learners\n\nlearners 3\r\nround\n0 1 1/3\n 1 0\t1/3  # back\nround\n1 2 0.5\n2 1 5e-1";

TEST(GraphFile, ReadsRoundsWithCommentsAndFractions) {
  const LearnerGraph graph = parse_graph(kText, "mine");
  EXPECT_EQ(graph.name, "mine");
  EXPECT_EQ(graph.num_learners, 3);
  EXPECT_EQ(graph.kind, MixingKind::kDoublyStochastic);
  EXPECT_EQ(graph.rounds, (std::vector<GraphRound>{{{1, 0, 1.0 / 3}, {0, 1, 1.0 / 3}},
                                                   {{2, 1, 0.5}, {1, 2, 0.5}}}));
}

TEST(GraphFile, WritesWhatItReads) {
  for (const LearnerGraph& graph : {make_base_graph(13, 2), make_torus_graph(12)}) {
    EXPECT_EQ(parse_graph(to_text(graph), graph.name), graph);
  }
  const harness::TemporaryFolder folder;
  write_file_atomically(folder.path() / "graph", kText);
  EXPECT_EQ(read_graph(folder.path() / "graph").rounds, parse_graph(kText, "").rounds);
  EXPECT_THROW(read_graph(folder.path() / "none"), Error);
}

TEST(GraphFile, RefusesOtherTextWithItsLine) {
  const auto message = [](const std::string& text) {
    return harness::message_of<ConfigError>([&] { parse_graph(text, "mine"); });
  };
  const auto refuses = [&](const std::string& text, const std::string& words) {
    EXPECT_NE(message(text).find(words), std::string::npos) << text << " -> " << message(text);
  };
  refuses("", "no line \"learners N\"");
  refuses("round\n", "line 1, is \"round\"");
  refuses("learners 0\nround\n", "1 to 1024");
  refuses("learners 99999999999\nround\n", "1 to 1024");
  refuses("learners 2 3\n", "1 to 1024");
  refuses("learners 2\n0 1 0.5\n", "\"round\" before");
  refuses("learners 2\n", "no round");
  for (const char* edge : {"0 1", "0 1 0.5 2", "0 1 x", "0 1 1/0", "0 1 1/2/3", "0.0 1 0.5",
                           "0 1 0.5x", "0 1 +0.5", "rounds"}) {
    refuses(concat("learners 2\nround\n", edge, "\n"), "line 3");
  }
  refuses("learners 2\nround\n0 1 nan\n", "above 0");
  refuses("learners 2\nround\n0 1 -1/2\n", "above 0");
  refuses("learners 2\nround\n0 1 1e999\n", "line 3");
  refuses("learners 2\nround\n0 2 0.5\n", "from 0 to 1");
  refuses("learners 2\nround\n0 1 0.5\n", "not connected");
  std::string rounds = "learners 2\n";
  for (int i = 0; i <= kMostGraphRounds; ++i) rounds += "round\n";
  refuses(rounds, "at most 1024 rounds");
}

}  // namespace
}  // namespace trireme::parallel
