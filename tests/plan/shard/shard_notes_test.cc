// Plans run: a module under a plan has the loss and the gradients of one rank.
#include "trireme/plan/shard/shard_notes.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/messages.h"
#include "tests/harness/ranks.h"
#include "tests/plan/harness.h"
#include "trireme/spmd/graph/trace.h"

namespace trireme::plan {
namespace {

namespace nn = torch::nn;
using harness::message_of;
using spmd::Annotations;
using spmd::Graph;
using testing::HasSubstr;

// Modules of two inputs that return their loss.
struct PlannedMlp : nn::Module {
  PlannedMlp() {
    fc1 = register_module("fc1", nn::Linear(8, 16));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({16})));
    fc2 = register_module("fc2", nn::Linear(16, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    return at::cross_entropy_loss(fc2(norm(at::gelu(fc1(x)))), y);
  }
  static std::vector<at::Tensor> inputs() {
    return {at::randn({8, 8}, at::kDouble), at::randint(4, {8}, at::kLong)};
  }
  nn::Linear fc1{nullptr}, fc2{nullptr};
  nn::LayerNorm norm{nullptr};
};

struct PlannedTransformer : nn::Module {
  static constexpr int64_t kWidth = 8, kHeads = 4;
  PlannedTransformer() {
    words = register_module("words", nn::Embedding(12, kWidth));
    for (const std::string name : {"q", "k", "v", "o", "up", "down"}) {
      linear.emplace(name, register_module(name, nn::Linear(name == "down" ? 16 : kWidth,
                                                            name == "up" ? 16 : kWidth)));
    }
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
    head = register_module("head", nn::Linear(nn::LinearOptions(kWidth, 12).bias(false)));
    register_parameter("tied", head->weight);
  }
  at::Tensor heads(const std::string& name, const at::Tensor& x) {
    return linear.at(name)(x).view({x.size(0), x.size(1), kHeads, -1}).transpose(1, 2);
  }
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& next) {
    at::Tensor x = words(ids);
    const at::Tensor positions = torch::arange(ids.size(1), x.options()).unsqueeze(1) / 10;
    const at::Tensor h = norm(x + positions);
    const at::Tensor a =
        at::scaled_dot_product_attention(heads("q", h), heads("k", h), heads("v", h), {}, 0, true);
    x = x + linear.at("o")(a.transpose(1, 2).flatten(2));
    x = x + linear.at("down")(at::gelu(linear.at("up")(norm(x))));
    return at::cross_entropy_loss(head(x).flatten(0, 1), next.flatten());
  }
  static std::vector<at::Tensor> inputs() {
    return {at::randint(12, {4, 4}, at::kLong), at::randint(12, {4, 4}, at::kLong)};
  }
  nn::Embedding words{nullptr};
  std::map<std::string, nn::Linear> linear;
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
};

struct PlannedUNet : nn::Module {
  PlannedUNet() {
    const auto conv = [&](const char* name, int64_t in, int64_t out) {
      return register_module(name, nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
    };
    in = conv("in", 4, 8), deep = conv("deep", 8, 8), out = conv("out", 16, 4);
    norm = register_module("norm", nn::GroupNorm(nn::GroupNormOptions(4, 8)));
    up = register_module("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(8, 8, 2).stride(2)));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor skip = at::relu(norm(in(x)));
    at::Tensor inner = deep(at::max_pool2d(skip, 2));
    inner = up(inner.relu_());
    return at::mse_loss(out(at::cat({inner, skip}, 1)), y);
  }
  static std::vector<at::Tensor> inputs() {
    return {at::randn({4, 4, 4, 4}, at::kDouble), at::randn({4, 4, 4, 4}, at::kDouble)};
  }
  nn::Conv2d in{nullptr}, deep{nullptr}, out{nullptr};
  nn::GroupNorm norm{nullptr};
  nn::ConvTranspose2d up{nullptr};
};

struct PlannedDlrm : nn::Module {
  PlannedDlrm() {
    for (int64_t t = 0; t < 3; ++t)
      tables.push_back(register_module("table" + std::to_string(t), nn::Embedding(8 + 4 * t, 8)));
    bottom = register_module("bottom", nn::Linear(4, 8));
    top = register_module("top", nn::Sequential(nn::Linear(24, 8), nn::ReLU(), nn::Linear(8, 1)));
  }
  // numbers: with the answer in front
  at::Tensor forward(const at::Tensor& numbers, const at::Tensor& ids) {
    std::vector<at::Tensor> fields = {at::relu(bottom(numbers.slice(1, 1)))};
    for (int64_t t = 0; t < 3; ++t) fields.push_back(tables[t](ids.select(1, t)));
    const at::Tensor all = at::stack(fields, 1);
    const at::Tensor pairs = at::bmm(all, all.transpose(1, 2)).flatten(1);
    const at::Tensor y = top->forward(at::cat({fields[0], pairs}, 1)).squeeze(1);
    return at::mse_loss(at::sigmoid(y), numbers.select(1, 0));
  }
  static std::vector<at::Tensor> inputs() {
    return {at::randn({8, 5}, at::kDouble), at::randint(8, {8, 3}, at::kLong)};
  }
  std::vector<nn::Embedding> tables;
  nn::Linear bottom{nullptr};
  nn::Sequential top{nullptr};
};

template <typename Net>
std::shared_ptr<Net> make_double() {
  auto net = std::make_shared<Net>();
  net->to(torch::kDouble);
  return net;
}

const std::string kNames[] = {"x", "y"};
const Annotations kInputs = {.inputs = {{kNames[0], {}}, {kNames[1], {}}}, .seed = 3};

template <typename Net>
Graph traced() {
  const auto net = spmd::made_without_memory(&make_double<Net>);
  const std::vector<at::Tensor> inputs = Net::inputs();
  return spmd::trace_step(*net, [&] {
    std::vector<at::Tensor> given;
    for (size_t i = 0; i < inputs.size(); ++i) {
      given.push_back(spmd::without_memory(inputs[i].sizes(), inputs[i].scalar_type(), &kNames[i]));
    }
    return net->forward(given[0], given[1]);
  });
}

using Numbers = std::map<std::string, at::Tensor>;

template <typename Net>
Numbers one_rank(const std::vector<at::Tensor>& inputs) {
  at::manual_seed(kInputs.seed);
  const auto net = make_double<Net>();
  const at::Tensor loss = net->forward(inputs[0], inputs[1]);
  loss.backward();
  Numbers numbers = {{"loss", loss.detach()}};
  for (const auto& item : net->named_parameters()) numbers[item.key()] = item.value().grad();
  return numbers;
}

// Two steps, so that the second one begins where the first one has ended.
template <typename Net>
Numbers under(const mesh::DeviceMesh& mesh, const Annotations& notes,
              const std::vector<at::Tensor>& inputs) {
  auto net = spmd::annotate(mesh, notes, &make_double<Net>);
  Numbers numbers;
  for (int step = 0; step < 2; ++step) {
    net->zero_grad();
    const at::Tensor loss = net.forward(inputs[0], inputs[1]);
    loss.backward();
    numbers = {{"loss", spmd::whole_of(loss)}};
    for (const auto& item : net->named_parameters())
      numbers[item.key()] = spmd::whole_of(item.value().grad());
  }
  return numbers;
}

// Any plan that there is.
ShardPlan drawn_plan(const Graph& graph, const ShardAxes& axes, harness::Draw& draw) {
  ShardPlan plan;
  const auto one_of = [&](const auto& all) {
    return all[static_cast<size_t>(draw.below(std::ssize(all)))];
  };
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind != spmd::GraphValue::Kind::kParameter) continue;
    plan.parameters.push_back(static_cast<int>(v));
    plan.splits.push_back(one_of(parameter_splits(graph.values[v].sizes, axes)));
  }
  for (const spmd::GraphNode& node : graph.nodes)
    plan.strategies.push_back(one_of(strategies_of(graph, node, axes)));
  return plan;
}

// Slow devices with fast links, so that small tensors are worth splitting.
Cluster split_worthy(int64_t ranks) {
  Cluster cluster = cluster_of("h100-sxm", 1, ranks);
  cluster.device.peak_single = 1e6;
  cluster.device.memory_rate = 1e6;
  cluster.device.link_seconds = 0;
  return cluster;
}

// Relative to the largest value above 1.
double difference(const at::Tensor& found, const at::Tensor& expected) {
  const double most = std::max(1.0, expected.abs().max().item<double>());
  return (found - expected).abs().max().item<double>() / most;
}

template <typename Net>
void expect_one_ranks_numbers() {
  const Graph graph = traced<Net>();
  at::manual_seed(1);
  const std::vector<at::Tensor> inputs = Net::inputs();
  const Numbers expected = one_rank<Net>(inputs);
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{2}, {4}, {2, 2}}) {
    ShardAxes axes;
    std::vector<mesh::Axis> mesh_axes;
    int64_t ranks = 1;
    for (size_t i = sizes.size(); i-- > 0;) {
      const char* const name = i + 1 == sizes.size() ? "tensor" : "data";
      axes.insert(axes.begin(), {name, {.ranks = sizes[i], .stride = ranks}});
      mesh_axes.insert(mesh_axes.begin(), {name, static_cast<int>(sizes[i])});
      ranks *= sizes[i];
    }
    harness::Draw draw(static_cast<uint64_t>(ranks));
    for (int n = 0; n < 4; ++n) {
      const bool is_best = n == 0;
      const ShardPlan plan =
          is_best ? plan_shards(graph, {.cluster = split_worthy(ranks), .axes = axes})
                  : drawn_plan(graph, axes, draw);
      const Annotations notes = notes_of(graph, plan, axes, kInputs);
      if (is_best) EXPECT_LT(plan.seconds, plan.whole_seconds);
      harness::run_ranks(static_cast<int>(ranks), [&](comm::Communicator& world) {
        const mesh::DeviceMesh mesh(world, mesh_axes);
        const Numbers found = under<Net>(mesh, notes, inputs);
        if (world.rank() != 0) return;
        for (const auto& [name, value] : expected) {
          EXPECT_LE(difference(found.at(name), value), 1e-10)
              << name << " of plan " << n << " on " << ranks << " ranks";
        }
      });
    }
  }
}

TEST(ShardNotes, RunAnMlp) { expect_one_ranks_numbers<PlannedMlp>(); }
TEST(ShardNotes, RunATransformer) { expect_one_ranks_numbers<PlannedTransformer>(); }
TEST(ShardNotes, RunAUNet) { expect_one_ranks_numbers<PlannedUNet>(); }
TEST(ShardNotes, RunADlrm) { expect_one_ranks_numbers<PlannedDlrm>(); }

const ShardAxes kPair = {{"tensor", {.ranks = 2, .stride = 1}}};

// What moves is what the plan says.
TEST(ShardNotes, MoveThePlansBytes) {
  const Graph graph = traced<PlannedTransformer>();
  const ShardPlan plan = plan_shards(graph, {.cluster = split_worthy(2), .axes = kPair});
  const Annotations notes = notes_of(graph, plan, kPair, kInputs);
  double planned = 0;
  for (const ShardMove& move : plan.moves) planned += move.bytes;
  harness::run_ranks(2, [&](comm::Communicator& world) {
    const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
    const std::vector<at::Tensor> inputs = PlannedTransformer::inputs();
    auto net = spmd::annotate(mesh, notes, &make_double<PlannedTransformer>);
    net.forward(inputs[0], inputs[1]).backward();
    double moved = 0;
    for (const spmd::Move& move : net.report()) moved += move.bytes;
    if (world.rank() == 0) EXPECT_NEAR(moved, planned, 1e-9 * planned);
  });
}

TEST(ShardNotes, KeepGivenSplits) {
  const Graph graph = traced<PlannedMlp>();
  Annotations given = kInputs;
  given.parameters = {{"fc1.*", spmd::split(0, "tensor")}};
  const ShardPlan plan = plan_shards(
      graph,
      {.cluster = split_worthy(2), .axes = kPair, .fixed = fixed_splits(graph, kPair, given)});
  for (size_t i = 0; i < plan.parameters.size(); ++i) {
    if (graph.values[plan.parameters[i]].name.starts_with("fc1.")) EXPECT_EQ(plan.splits[i][0], 0);
  }
  const Annotations notes = notes_of(graph, plan, kPair, given);
  EXPECT_EQ(notes.parameters[0].name, "fc1.*");
  for (size_t i = 1; i < notes.parameters.size(); ++i)
    EXPECT_FALSE(notes.parameters[i].name.starts_with("fc1."));
  given.parameters[0].splits = spmd::split(0, "tensor", {0, 1, 16});
  EXPECT_THAT(message_of<ConfigError>([&] { fixed_splits(graph, kPair, given); }),
              HasSubstr("a split with cuts"));
}

// The same module with other operators at the same place, or with more of them.
struct Changed : PlannedMlp {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    return at::cross_entropy_loss(fc2(norm(at::silu(fc1(x)))), y);
  }
};
struct Longer : PlannedMlp {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    return at::cross_entropy_loss(fc2(norm(at::gelu(fc1(x * 2)))), y);
  }
};

template <typename Net>
std::string refusal_of(const Annotations& notes) {
  return message_of<ConfigError>([&] {
    harness::run_ranks(2, [&](comm::Communicator& world) {
      const mesh::DeviceMesh mesh(world, {{"tensor", 2}});
      under<Net>(mesh, notes, Net::inputs());
    });
  });
}

TEST(ShardNotes, RefuseAStepThatLeavesThePlan) {
  const Graph graph = traced<PlannedMlp>();
  const ShardPlan plan = plan_shards(graph, {.cluster = split_worthy(2), .axes = kPair});
  const Annotations notes = notes_of(graph, plan, kPair, kInputs);
  ASSERT_FALSE(notes.step.arguments.empty());
  for (const std::string& refusal : {refusal_of<Changed>(notes), refusal_of<Longer>(notes)}) {
    EXPECT_THAT(refusal, HasSubstr("plan again for this model"));
    EXPECT_THAT(refusal, Not(HasSubstr("\n")));
  }
}

}  // namespace
}  // namespace trireme::plan
