#include "trireme/cli/plan/shard_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

using testing::HasSubstr;

plan::Cluster cpus(int64_t nodes, int64_t devices) {
  return {.device = plan::device_named("cpu"), .nodes = nodes, .devices_per_node = devices};
}

std::string axes_error(std::string_view axes, const plan::Cluster& cluster) {
  try {
    parse_shard_axes(axes, cluster);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ShardReport, LeavesTheNumbersOfBlocksOut) {
  EXPECT_EQ(general_path("model.layers.17.mlp"), "model.layers.*.mlp");
  EXPECT_EQ(general_path("0.weight"), "*.weight");
  EXPECT_EQ(general_path("conv2d.w1"), "conv2d.w1");
  EXPECT_EQ(general_path("table.3"), "table.*");
  EXPECT_EQ(general_path(""), "");
}

TEST(ShardReport, ReadsAxes) {
  const plan::ShardAxes whole = parse_shard_axes("", cpus(2, 4));
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_EQ(whole[0].name, "data");
  EXPECT_EQ(whole[0].group.ranks, 2);
  EXPECT_EQ(whole[0].group.stride, 4);
  EXPECT_EQ(whole[1].group.ranks, 4);
  EXPECT_EQ(whole[1].group.stride, 1);
  EXPECT_EQ(parse_shard_axes("", cpus(1, 4)).size(), 1u);
  EXPECT_EQ(parse_shard_axes("a=8", cpus(2, 4))[0].group.ranks, 8);
  for (const char* bad :
       {"a", "=4", "a=", "a=1", "a=x", "a=4x", "a=2,,b=2", "a=99999999999999999999"})
    EXPECT_THAT(axes_error(bad, cpus(2, 4)), HasSubstr("expected a name and a size")) << bad;
  EXPECT_THAT(axes_error("a=2,b=2,c=2", cpus(2, 4)), HasSubstr("expected 1 or 2"));
  EXPECT_THAT(axes_error("", cpus(1, 1)), HasSubstr("expected 1 or 2"));
  EXPECT_THAT(axes_error("a=4,b=4", cpus(2, 4)), HasSubstr("8 devices"));
}

TEST(ShardReport, CountsEqualBlocks) {
  spmd::Graph graph;
  plan::ShardPlan plan;
  for (int layer = 0; layer < 3; ++layer) {
    graph.values.push_back({.kind = spmd::GraphValue::Kind::kParameter,
                            .name = concat("layers.", layer, ".weight"),
                            .sizes = {8, 4}});
    graph.nodes.push_back({.name = "aten::mm", .module = concat("layers.", layer)});
    plan.parameters.push_back(layer);
    plan.splits.push_back({1, plan::kReplicated});
    plan.gains.push_back(0.5);
    plan.moves.push_back({.value = layer,
                          .node = layer,
                          .from = {1, plan::kReplicated},
                          .to = plan::kWhole,
                          .bytes = 1 << 20,
                          .seconds = 0.25,
                          .why = "dimension 1 must be whole on tensor"});
  }
  plan.seconds = plan.bound_seconds = 2;
  const plan::ShardAxes axes = {{"tensor", {.ranks = 4, .stride = 1}}};
  const std::string text = show(graph, plan, axes);
  EXPECT_THAT(text, HasSubstr("layers.*.weight [8, 4] x 3"));
  EXPECT_THAT(text, HasSubstr("[tensor: sharded(1)]; whole on every rank: 1.500 s slower"));
  EXPECT_THAT(text, HasSubstr("aten::mm in layers.* x 3: tensor: sharded(1) -> replicated"));
  EXPECT_THAT(text, HasSubstr("0.750 s"));
  EXPECT_THAT(text, HasSubstr("gap 0.000 %"));
  const nlohmann::json json = to_json(graph, plan, axes);
  EXPECT_EQ(json["redistributions"].size(), 3u);
  EXPECT_EQ(json["parameters"][2]["name"], "layers.2.weight");
  EXPECT_EQ(json["redistributions"][1]["to"], "[tensor: replicated]");
}

}  // namespace
}  // namespace trireme::cli
