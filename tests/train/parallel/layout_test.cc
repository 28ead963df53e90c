#include "trireme/train/parallel/layout.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/train/language_config.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

RunConfig layout_config(const std::vector<Override>& overrides, int num_ranks) {
  RunConfig config = parse_config("[model]\nlayers = 6\nvocab_size = 512\n", "test", overrides);
  resolve(config, num_ranks);
  return config;
}

TEST(Layout, StagesAreAsEvenAsTheirCost) {
  const RunConfig config = layout_config({{"parallel.pipeline", "2"}}, 2);
  const PipelineLayout layout = pipeline_layout(config);
  EXPECT_EQ(layout.layers, (std::vector<int>{3, 3}));
  // A head of 40 layers' cost leaves the last stage one layer.
  RunConfig wide = config;
  model_of(wide).vocab_size = 1 << 17;
  EXPECT_EQ(pipeline_layout(wide).layers, (std::vector<int>{5, 1}));
}

TEST(Layout, StagesByHandAreTakenAsTheyAre) {
  const RunConfig config =
      layout_config({{"parallel.pipeline", "3"}, {"parallel.stage_layers", "1,4,1"}}, 3);
  const PipelineLayout layout = pipeline_layout(config);
  EXPECT_EQ(layout.layers, (std::vector<int>{1, 4, 1}));
  EXPECT_EQ(layout.part(1).first_layer, 1);
  EXPECT_EQ(layout.part(1).num_layers, 4);
  EXPECT_FALSE(layout.part(1).embeds);
  EXPECT_TRUE(layout.part(0).embeds);
  EXPECT_TRUE(layout.part(2).has_head);
}

TEST(Layout, AVShapedScheduleHasTheFirstAndTheLastStageOnOneRank) {
  const RunConfig config =
      layout_config({{"parallel.pipeline", "2"}, {"parallel.schedule", "zero-bubble-v"}}, 2);
  EXPECT_EQ(pipeline_layout(config).rank_of_stage, (std::vector<int>{0, 1, 1, 0}));
}

TEST(Layout, IsDescribedByTheAxesThatDoSomething) {
  EXPECT_EQ(describe_layout(layout_config({}, 2)), "data 2");
  EXPECT_EQ(describe_layout(layout_config({{"parallel.tensor", "2"},
                                           {"parallel.sequence_parallel", "true"},
                                           {"parallel.pipeline", "2"}},
                                          4)),
            "data 1 x tensor 2 (sequence parallel) x pipeline 2 (1f1b, layers 3+3)");
}

TEST(Layout, KnowsWhenATensorGroupLiesOnSeveralHosts) {
  const std::vector<std::string> hosts = {"a", "a", "a", "a", "b", "b", "b", "b"};
  EXPECT_FALSE(tensor_crosses_hosts(hosts, 1));
  EXPECT_FALSE(tensor_crosses_hosts(hosts, 2));
  EXPECT_FALSE(tensor_crosses_hosts(hosts, 4));
  EXPECT_TRUE(tensor_crosses_hosts(hosts, 8));
  EXPECT_TRUE(tensor_crosses_hosts(std::vector<std::string>{"a", "a", "a", "b", "b", "b"}, 2));
}

// docs/layouts.md between its markers.
std::string table_of(const std::vector<LayoutRule>& rules) {
  const std::vector<std::string> axes = {"tensor", "context", "expert", "pipeline"};
  std::ostringstream out;
  out << "| | tensor | context | expert | pipeline | why | instead "
         "|\n|---|---|---|---|---|---|---|\n";
  for (const LayoutRule& rule : rules) {
    out << "| " << rule.feature << " |";
    for (const std::string& axis : axes) {
      out << (std::ranges::count(rule.axes, axis) > 0 ? " no |" : " yes |");
    }
    out << " " << rule.reason << " | " << rule.remedy << " |\n";
  }
  return out.str();
}

TEST(Layout, TheDocsHaveTheRules) {
  std::ifstream file(TRIREME_LAYOUTS_DOC);
  std::stringstream text;
  text << file.rdbuf();
  const std::string begin = "<!-- rules -->\n", end = "<!-- /rules -->";
  const size_t from = text.str().find(begin), to = text.str().find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  const std::string expected = table_of(layout_rules());
  EXPECT_EQ(text.str().substr(from + begin.size(), to - from - begin.size()), expected)
      << "docs/layouts.md should have between its markers:\n"
      << expected;
}

}  // namespace
}  // namespace trireme::train
