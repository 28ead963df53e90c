#include "trireme/train/parallel/run_layout.h"

#include <cstdlib>
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

// docs/reference/layouts.md between its markers.
std::string table_of(const std::vector<LayoutRule>& rules) {
  std::ostringstream out;
  std::string line = "|---|---|---|";
  out << "| |";
  for (const AxisKey& key : kAxisKeys) {
    out << " " << key.axis << " |";
    line += "---|";
  }
  out << " why | instead |\n" << line << "\n";
  for (const LayoutRule& rule : rules) {
    out << "| " << rule.feature << " |";
    for (const AxisKey& key : kAxisKeys) {
      out << (std::ranges::count(rule.axes, key.axis) > 0 ? " no |" : " yes |");
    }
    out << " " << rule.reason << " | " << rule.remedy << " |\n";
  }
  return out.str();
}

std::string table_of_axes() {
  std::ostringstream out;
  out << "| axis | divides | its ranks compute on | and hold |\n|---|---|---|---|\n";
  for (const mesh::AxisKind& kind : mesh::kAxisKinds) {
    out << "| " << kind.name << " | " << kind.divides << " | ";
    switch (kind.tokens) {
      case mesh::Tokens::kOtherSamples: out << "other samples"; break;
      case mesh::Tokens::kOtherParts: out << "other tokens of the same samples"; break;
      case mesh::Tokens::kSame: out << "the same samples"; break;
    }
    switch (kind.weights) {
      case mesh::Weights::kSame: out << " | the same weights"; break;
      case mesh::Weights::kParts: out << " | parts of some weights"; break;
      case mesh::Weights::kOther: out << " | other weights"; break;
    }
    out << (kind.shares_states ? ", among which ZeRO divides their states |\n" : " |\n");
  }
  return out.str();
}

void expect_in_docs(const std::string& name, const std::string& expected) {
  std::ifstream file(TRIREME_LAYOUTS_DOC);
  std::stringstream text;
  text << file.rdbuf();
  const std::string begin = "<!-- " + name + " -->\n", end = "<!-- /" + name + " -->";
  const size_t from = text.str().find(begin), to = text.str().find(end);
  ASSERT_NE(from, std::string::npos);
  ASSERT_NE(to, std::string::npos);
  std::string page = text.str();
  if (std::getenv("TRIREME_WRITE_DOCS") != nullptr) {
    page.replace(from + begin.size(), to - from - begin.size(), expected);
    std::ofstream(TRIREME_LAYOUTS_DOC) << page;
    return;
  }
  EXPECT_EQ(page.substr(from + begin.size(), to - from - begin.size()), expected)
      << "run this test with TRIREME_WRITE_DOCS=1";
}

TEST(Layout, TheDocsHaveTheAxes) { expect_in_docs("axes", table_of_axes()); }

TEST(Layout, TheDocsHaveTheRules) { expect_in_docs("rules", table_of(layout_rules())); }

}  // namespace
}  // namespace trireme::train
