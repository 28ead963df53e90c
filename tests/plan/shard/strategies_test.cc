#include "trireme/plan/shard/strategies.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "trireme/plan/shard/shard_seconds.h"

namespace trireme::plan {
namespace {

using spmd::Graph;
using spmd::GraphNode;
using spmd::GraphValue;

const ShardAxes kTwo = {{"data", {.ranks = 2, .stride = 4}}, {"tensor", {.ranks = 4, .stride = 1}}};
const ShardAxes kOne = {{"tensor", {.ranks = 4, .stride = 1}}};

GraphValue value(std::vector<int64_t> sizes) {
  return {.kind = GraphValue::Kind::kResult, .sizes = std::move(sizes)};
}

// [rows, inner] x [inner, columns]
Graph product(int64_t rows, int64_t inner, int64_t columns) {
  Graph graph;
  graph.values = {value({rows, inner}), value({inner, columns}), value({rows, columns})};
  GraphNode node{.name = "aten::mm",
                 .work = spmd::WorkKind::kProduct,
                 .inputs = {0, 1},
                 .outputs = {2},
                 .output_forms = {0}};
  node.form.inputs = {{0, 2}, {2, 1}};
  node.form.outputs = {{0, 1}};
  node.form.contracted = 1U << 2;
  node.form.linear = {0b01, 0b10};
  graph.nodes = {node};
  return graph;
}

bool has(const std::vector<NodeStrategy>& all, const NodeStrategy& one) {
  return std::ranges::find(all, one) != all.end();
}

TEST(Strategies, OfAProductAreRowsColumnsInnerAndSums) {
  const Graph graph = product(8, 12, 16);
  const auto all = strategies_of(graph, graph.nodes[0], kOne);
  const auto of = [](AxisSplit a, AxisSplit b, AxisSplit c) {
    return NodeStrategy{.inputs = {{a, kReplicated}, {b, kReplicated}},
                        .outputs = {{c, kReplicated}}};
  };
  EXPECT_EQ(all.size(), 6u);
  EXPECT_EQ(all.front(), of(kReplicated, kReplicated, kReplicated));
  EXPECT_TRUE(has(all, of(0, kReplicated, 0)));
  EXPECT_TRUE(has(all, of(kReplicated, 1, 1)));
  EXPECT_TRUE(has(all, of(1, 0, kPartial)));
  EXPECT_TRUE(has(all, of(kPartial, kReplicated, kPartial)));
  EXPECT_TRUE(has(all, of(kReplicated, kPartial, kPartial)));
}

// The rows of [8, 12] are runs of the 96 elements that it is viewed as; its columns are not.
TEST(Strategies, LeaveOutWhatAViewMakesNoBlocks) {
  Graph graph;
  graph.values = {value({8, 12}), value({96})};
  GraphNode node{.name = "aten::view",
                 .work = spmd::WorkKind::kView,
                 .inputs = {0},
                 .outputs = {1},
                 .output_forms = {0}};
  node.form.inputs = {{0, 1}};
  node.form.outputs = {{0}};
  node.form.joined.push_back({.is_output = true, .dim = 0, .factor = 1, .period = 12});
  graph.nodes = {node};
  const auto all = strategies_of(graph, graph.nodes[0], kOne);
  EXPECT_EQ(all.size(), 2u);
  EXPECT_TRUE(has(all, {.inputs = {{0, kReplicated}}, .outputs = {{0, kReplicated}}}));
}

TEST(Strategies, HaveEqualBlocksOnly) {
  const Graph graph = product(6, 12, 16);  // 6 rows: by 2, not by 4 or 8
  for (const NodeStrategy& each : strategies_of(graph, graph.nodes[0], kTwo)) {
    EXPECT_NE(each.inputs[0][1], 0);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(divides(kTwo, each.inputs[i], graph.values[i].sizes));
  }
  EXPECT_EQ(parameter_splits({8, 6}, kTwo).size(), 6u);
  EXPECT_EQ(parameter_splits({8}, kOne).size(), 2u);
  EXPECT_EQ(block_sizes(kTwo, {0, 0}, {16, 3}), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(num_blocks(kTwo, {0, kPartial}), 2);
  EXPECT_EQ(to_string(kTwo, {kPartial, 1}), "[data: partial, tensor: sharded(1)]");
}

TEST(ShardSeconds, OfBlocksAreFewerThanOfTheWhole) {
  const Graph graph = product(4096, 4096, 4096);
  const Cluster cluster{.device = device_named("h100-sxm"), .nodes = 1, .devices_per_node = 8};
  const auto all = strategies_of(graph, graph.nodes[0], kTwo);
  const double whole = node_seconds(cluster, graph, graph.nodes[0], kTwo, all.front());
  for (const NodeStrategy& each : all) {
    const double seconds = node_seconds(cluster, graph, graph.nodes[0], kTwo, each);
    EXPECT_LE(seconds, whole);
    EXPECT_GE(seconds, whole / 8);
  }
}

TEST(ShardSeconds, OfMovesAreThoseOfTheirCollectives) {
  const Cluster cluster{.device = device_named("h100-sxm"), .nodes = 2, .devices_per_node = 4};
  const GraphValue tensor = value({1024, 1024});
  const double bytes = tensor.bytes();
  const Group data = kTwo[0].group, inner = kTwo[1].group;
  const auto move = [&](Split from, Split to) {
    return move_cost(cluster, kTwo, tensor, from, to);
  };
  EXPECT_EQ(move(kWhole, {0, 1}).seconds, 0);
  EXPECT_EQ(move({kPartial, kReplicated}, kWhole).seconds,
            all_reduce_seconds(cluster, data, bytes));
  EXPECT_EQ(move({kPartial, kReplicated}, {1, kReplicated}).seconds,
            reduce_scatter_seconds(cluster, data, bytes));
  // The other axis has cut the block already.
  EXPECT_EQ(move({0, kPartial}, {0, kReplicated}).seconds,
            all_reduce_seconds(cluster, inner, bytes / 2));
  EXPECT_EQ(move({0, kPartial}, {0, kReplicated}).bytes, 2 * 0.75 * bytes / 2);
  EXPECT_EQ(move({kReplicated, 0}, {kReplicated, 1}).seconds,
            all_to_all_seconds(cluster, inner, bytes / 4));
  // Both split one dimension: the inner blocks are whole in between.
  EXPECT_EQ(move({0, 0}, {kReplicated, 0}).seconds, all_gather_seconds(cluster, inner, bytes / 2) +
                                                        all_gather_seconds(cluster, data, bytes));
}

}  // namespace
}  // namespace trireme::plan
