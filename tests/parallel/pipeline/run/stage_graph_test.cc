#include "trireme/parallel/pipeline/run/stage_graph.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

PipelineStage stage(const char* name, std::vector<std::string> inputs,
                    std::vector<std::string> outputs) {
  return {.name = name, .inputs = std::move(inputs), .outputs = std::move(outputs), .forward = {}};
}

TEST(StageGraph, KnowsWhoReadsWhat) {
  const StageGraph graph({stage("a", {"tokens"}, {"x", "skip"}), stage("b", {"x"}, {"y"}),
                          stage("c", {"skip", "y", "x", "targets"}, {"loss"})},
                         {"tokens", "targets"});
  EXPECT_EQ(graph.edges(), (std::vector<StageEdge>{{0, 1}, {0, 2}, {1, 2}}));
  EXPECT_EQ(graph.readers({0, 0}), (std::vector<StagePort>{{1, 0}, {2, 2}}));
  EXPECT_EQ(graph.inputs_between({0, 2}), (std::vector<StagePort>{{2, 0}, {2, 2}}));
  EXPECT_EQ(graph.source({2, 1}), (StagePort{1, 0}));
  EXPECT_TRUE(graph.is_fed({2, 3}));
  EXPECT_FALSE(graph.is_fed({2, 0}));
  EXPECT_TRUE(graph.readers({2, 0}).empty());
}

void expect_refused(std::vector<PipelineStage> stages, std::vector<std::string> fed,
                    const std::vector<std::string>& words) {
  try {
    const StageGraph graph(std::move(stages), std::move(fed));
    FAIL() << "accepted; expected " << words.front();
  } catch (const ConfigError& error) {
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(StageGraph, WrongEdgesAreRefused) {
  expect_refused({stage("a", {"x"}, {})}, {}, {"stage 0 (a)", "\"x\"", "nobody feeds"});
  expect_refused({stage("a", {"y"}, {"x"}), stage("b", {"x"}, {"y"})}, {}, {"(a)", "\"y\""});
  expect_refused({stage("a", {}, {"x"}), stage("b", {}, {"x"})}, {}, {"stage 1 (b)", "\"x\""});
  expect_refused({stage("a", {}, {"x"})}, {"x"}, {"\"x\"", "elsewhere"});
  expect_refused({stage("a", {"x", "x"}, {})}, {"x"}, {"\"x\"", "twice"});
  expect_refused({}, {"x", "x"}, {"fed twice"});
}

}  // namespace
}  // namespace trireme::parallel
