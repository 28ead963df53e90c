#include "trireme/plan/shard/shard_plan.h"

#include <map>

#include <ATen/ATen.h>
#include <torch/nn.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/plan/harness.h"
#include "trireme/base/error.h"
#include "trireme/model/llama/plain_llama.h"
#include "trireme/plan/shard/memory_price.h"
#include "trireme/plan/shard/shard_problem.h"
#include "trireme/spmd/graph/trace.h"

namespace trireme::plan {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using spmd::Graph;
using spmd::made_without_memory;
using spmd::trace_step;
using spmd::without_memory;
using testing::HasSubstr;

ShardAxes one_axis(int64_t ranks) { return {{"tensor", {.ranks = ranks, .stride = 1}}}; }
ShardAxes two_axes(int64_t outer, int64_t inner) {
  return {{"data", {.ranks = outer, .stride = inner}}, {"tensor", {.ranks = inner, .stride = 1}}};
}

// head_width: 128 as Llama 3 8B
Graph llama(int64_t layers, int64_t sequences, int64_t head_width = 128) {
  const model::ModelConfig config{.layers = layers,
                                  .width = 4096,
                                  .heads = 32,
                                  .kv_heads = 8,
                                  .ffn_width = 14336,
                                  .sequence_length = 8192,
                                  .vocab_size = 128256,
                                  .attention = {.head_width = head_width}};
  const auto net = made_without_memory(
      [&] { return std::make_shared<model::PlainLlama>(config, at::kBFloat16); });
  return trace_step(*net, [&] {
    return net->loss(without_memory({sequences, 8192}, at::kLong),
                     without_memory({sequences, 8192}, at::kLong));
  });
}

std::map<std::string, Split> splits_of(const Graph& graph, const ShardPlan& plan) {
  std::map<std::string, Split> splits;
  for (size_t i = 0; i < plan.parameters.size(); ++i)
    splits[graph.values[plan.parameters[i]].name] = plan.splits[i];
  return splits;
}

void expect_consistent(const ShardPlan& plan) {
  double moves = 0;
  for (const ShardMove& move : plan.moves) {
    moves += move.seconds;
    EXPECT_NE(move.from, move.to);
    EXPECT_FALSE(move.why.empty());
  }
  EXPECT_NEAR(moves, plan.move_seconds, 1e-9);
  EXPECT_LE(plan.bound_seconds, plan.seconds);
  EXPECT_LE(plan.seconds, plan.whole_seconds);
}

// Into heads and feed-forward by columns, out of them by rows. Where all heads together are as wide
// as the residual stream, columns move as many bytes there as rows, by way of a stream that is
// split by its width; where they are wider, rows are better.
TEST(ShardPlan, FindsMegatronsSplitOfALlama) {
  for (const int64_t head_width : {128, 256}) {
    const Graph graph = llama(4, 1, head_width);
    const ShardPlan plan =
        plan_shards(graph, {.cluster = cluster_of("h100-sxm", 1, 8), .axes = one_axis(8)});
    expect_consistent(plan);
    EXPECT_LT(plan.gap(), 1e-6);
    for (const auto& [name, split] : splits_of(graph, plan)) {
      for (const char* column : {"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"}) {
        if (name.find(column) != name.npos) EXPECT_EQ(split[0], 0) << name;
      }
      if (name.find("down_proj") != name.npos) EXPECT_EQ(split[0], 1) << name;
      if (name.find("o_proj") == name.npos) continue;
      if (head_width == 256) EXPECT_EQ(split[0], 1) << name;
      EXPECT_GE(split[0], 0) << name;
    }
  }
}

// 16 bytes of states are read and written, of the parts that a rank has.
TEST(ShardPlan, SaysWhatTheUpdatesOfItsPartsTake) {
  const Graph graph = llama(1, 1);
  const Cluster cluster = cluster_of("h100-sxm", 1, 8);
  const ShardPlan plan = plan_shards(graph, {.cluster = cluster, .axes = one_axis(8)});
  double numbers = 0;
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    const double whole = graph.values[plan.parameters[i]].numel();
    numbers += plan.splits[i] == kWhole ? whole : whole / 8;
  }
  const double seconds = 2 * 16 * numbers / cluster.device.elementwise_rate(4);
  EXPECT_NEAR(plan.update_seconds, seconds, 1e-9 * seconds);
  EXPECT_LT(plan.update_seconds, plan.seconds);
}

TEST(ShardPlan, IsExactForEightBillionParametersOnTwoAxes) {
  const Graph graph = llama(32, 8);
  const ShardPlan plan =
      plan_shards(graph, {.cluster = cluster_of("h100-sxm", 8, 8), .axes = two_axes(8, 8)});
  expect_consistent(plan);
  EXPECT_LT(plan.gap(), 1e-6);
  EXPECT_LT(plan.num_kinds, 500);
  EXPECT_GT(plan.num_variables, 3000);
}

TEST(ShardPlan, KeepsABoundOfMemoryWithAnOptimalityGap) {
  const Graph graph = llama(8, 8);
  ShardOptions options{.cluster = cluster_of("h100-sxm", 8, 8), .axes = two_axes(8, 8)};
  const ShardPlan free = plan_shards(graph, options);
  options.memory_bytes = 0.9 * free.kept_bytes;
  const ShardPlan plan = plan_shards(graph, options);
  expect_consistent(plan);
  EXPECT_LE(plan.kept_bytes, options.memory_bytes);
  EXPECT_GE(plan.seconds, free.seconds);
  EXPECT_LE(plan.gap(), 0.01);
  options.memory_bytes = 1e6;
  try {
    plan_shards(graph, options);
    FAIL() << "1 MB holds no Llama";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("GiB of a rank at any split"));
  }
}

// Two levels: convolutions, pooling, transposed convolutions, and what skips the inner level.
struct UNetImpl : nn::Module {
  explicit UNetImpl(int64_t width) {
    const auto conv = [&](const char* name, int64_t in, int64_t out, int64_t size) {
      return register_module(
          name, nn::Conv2d(nn::Conv2dOptions(in, out, size).padding(size / 2).bias(false)));
    };
    down = conv("down", 3, width, 3);
    deep = conv("deep", width, 4 * width, 3);
    deeper = conv("deeper", 4 * width, width, 3);
    up = register_module(
        "up",
        nn::ConvTranspose2d(nn::ConvTranspose2dOptions(width, width, 2).stride(2).bias(false)));
    out = conv("out", 2 * width, 3, 1);
  }
  at::Tensor forward(const at::Tensor& image) {
    const at::Tensor skip = torch::relu(down(image));
    const at::Tensor x = torch::relu(deeper(torch::relu(deep(torch::max_pool2d(skip, 2)))));
    return out(torch::cat({up(x), skip}, 1));
  }
  nn::Conv2d down{nullptr}, deep{nullptr}, deeper{nullptr}, out{nullptr};
  nn::ConvTranspose2d up{nullptr};
};
TORCH_MODULE(UNet);

Graph unet(int64_t width, int64_t images, int64_t size) {
  UNet net = made_without_memory([&] { return UNet(width); });
  return trace_step(*net, [&] {
    const at::Tensor image = without_memory({images, 3, size, size}, at::kFloat);
    return F::mse_loss(net(image), without_memory({images, 3, size, size}, at::kFloat));
  });
}

TEST(ShardPlan, SplitsAUNetByBatchOrByChannels) {
  const ShardOptions options{.cluster = cluster_of("h100-sxm", 1, 8), .axes = one_axis(8)};
  const Graph many = unet(64, 64, 256);  // many images: weights are less than they are
  const ShardPlan by_batch = plan_shards(many, options);
  expect_consistent(by_batch);
  for (size_t n = 0; n < many.nodes.size(); ++n) {
    if (many.nodes[n].name != "aten::convolution") continue;
    EXPECT_EQ(by_batch.strategies[n].inputs[0][0], 0) << many.nodes[n].module;
  }
  const Graph one = unet(512, 1, 64);  // one image cannot be split
  const ShardPlan by_channels = plan_shards(one, options);
  const auto splits = splits_of(one, by_channels);
  EXPECT_EQ(splits.at("deep.weight")[0], 0);
  EXPECT_EQ(splits.at("deeper.weight")[0], 1);
}

// Tables, two small networks, products of all pairs.
struct DlrmImpl : nn::Module {
  explicit DlrmImpl(const std::vector<int64_t>& rows) {
    for (const int64_t count : rows) {
      tables.push_back(register_module(concat("table", tables.size()), nn::Embedding(count, 64)));
    }
    bottom = register_module("bottom", nn::Sequential(nn::Linear(13, 64), nn::ReLU()));
    const auto fields = std::ssize(rows) + 1;
    top = register_module(
        "top", nn::Sequential(nn::Linear(64 + fields * fields, 64), nn::ReLU(), nn::Linear(64, 1)));
  }
  at::Tensor forward(const at::Tensor& numbers, const std::vector<at::Tensor>& ids) {
    std::vector<at::Tensor> fields = {bottom->forward(numbers)};
    for (size_t t = 0; t < ids.size(); ++t) fields.push_back(tables[t](ids[t]));
    const at::Tensor all = torch::stack(fields, 1);
    const at::Tensor pairs = torch::bmm(all, all.transpose(1, 2)).flatten(1);
    return top->forward(torch::cat({fields[0], pairs}, 1)).squeeze(1);
  }
  std::vector<nn::Embedding> tables;
  nn::Sequential bottom{nullptr}, top{nullptr};
};
TORCH_MODULE(Dlrm);

TEST(ShardPlan, PlacesTheTablesOfADlrm) {
  const std::vector<int64_t> rows = {1 << 20, 1 << 18, 64};
  Dlrm net = made_without_memory([&] { return Dlrm(rows); });
  constexpr int64_t kSamples = 8192;
  const Graph graph = trace_step(*net, [&] {
    std::vector<at::Tensor> ids(rows.size());
    for (at::Tensor& each : ids) each = without_memory({kSamples}, at::kLong);
    const at::Tensor y = net(without_memory({kSamples, 13}, at::kFloat), ids);
    return F::mse_loss(y, without_memory({kSamples}, at::kFloat));
  });
  const ShardPlan plan =
      plan_shards(graph, {.cluster = cluster_of("h100-sxm", 1, 8), .axes = one_axis(8)});
  expect_consistent(plan);
  EXPECT_LT(plan.gap(), 1e-6);
  const auto splits = splits_of(graph, plan);
  // Large tables in blocks, whose gradients then need no sum; the rest by samples.
  EXPECT_GE(splits.at("table0.weight")[0], 0);
  EXPECT_GE(splits.at("table1.weight")[0], 0);
  EXPECT_EQ(splits.at("top.0.weight")[0], kReplicated);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].name != "aten::bmm" || graph.nodes[n].is_backward) continue;
    EXPECT_EQ(plan.strategies[n].outputs[0][0], 0);
  }
}

// The best of all choices, by enumeration.
TEST(ShardPlan, IsTheBestOfAllPlansOfASmallModule) {
  for (const int64_t samples : {2, 8, 64}) {
    nn::Linear net =
        made_without_memory([] { return nn::Linear(nn::LinearOptions(8, 4).bias(false)); });
    const Graph graph = trace_step(*net, [&] {
      return net(without_memory({samples, 8}, at::kFloat)).sum();
    });
    const ShardOptions options{.cluster = cluster_of("cpu", 1, 2), .axes = one_axis(2)};
    const ShardProblem problem(graph, options);
    const MinSum all = problem.min_sum(0);
    double least = 1e9;
    std::vector<int> choices(all.variables.size(), 0);
    double count = 1;
    for (int v = 0; v < problem.num_variables(); ++v)
      count *= static_cast<double>(problem.kind(v).strategies.size());
    ASSERT_LT(count, 2e7);
    while (true) {
      least = std::min(least, all.cost_of(choices));
      size_t v = 0;
      while (v < choices.size() && ++choices[v] == all.tables[all.variables[v]].rows)
        choices[v++] = 0;
      if (v == choices.size()) break;
    }
    EXPECT_NEAR(plan_shards(graph, options).seconds, least, 1e-12) << samples;
    EXPECT_NEAR(choose_within(problem, 0).seconds, least, 1e-12);
  }
}

}  // namespace
}  // namespace trireme::plan
