#include "trireme/spmd/graph/trace.h"

#include <set>

#include <ATen/ATen.h>
#include <torch/nn.h>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/spmd/dispatch.h"
#include "trireme/spmd/graph/result_sizes.h"

namespace trireme::spmd {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

// Every kind of layer whose results' sizes libtorch does not know without memory.
struct NetImpl : nn::Module {
  explicit NetImpl(int64_t width = 8) {
    table = register_module("table", nn::Embedding(11, width));
    first = register_module("first", nn::Linear(width, 2 * width));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({2 * width})));
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 4, 3).stride(2).padding(1)));
    batch_norm = register_module("batch_norm", nn::BatchNorm2d(4));
    group_norm = register_module("group_norm", nn::GroupNorm(nn::GroupNormOptions(2, 4)));
    up = register_module(
        "up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 2, 3).stride(2).output_padding(1)));
    last = register_module("last", nn::Linear(2, 5));
  }
  // ids [B, 8] -> [B, 5]
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = torch::gelu(norm(first(table(ids))));  // [B, 8, 16]
    x = at::rms_norm(x, {x.size(-1)}, {}, 1e-5);
    const at::Tensor heads = x.view({x.size(0), 8, 4, -1}).transpose(1, 2);
    x = at::scaled_dot_product_attention(heads, heads, heads, {}, 0, true);
    x = x.transpose(1, 2).reshape({ids.size(0), 2, 8, -1});
    x = torch::relu(batch_norm(conv(x)));
    x = group_norm(torch::dropout(x, 0.1, is_training()));
    x = up(torch::max_pool2d(x, 2, 1));
    return last(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }
  nn::Embedding table{nullptr};
  nn::Linear first{nullptr}, last{nullptr};
  nn::LayerNorm norm{nullptr};
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d batch_norm{nullptr};
  nn::GroupNorm group_norm{nullptr};
  nn::ConvTranspose2d up{nullptr};
};
TORCH_MODULE(Net);

Graph graph_of(int64_t width = 8, int64_t samples = 6) {
  Net net = made_without_memory([&] { return Net(width); });
  return trace_step(*net, [&] {
    const at::Tensor logits = net(without_memory({samples, 8}, at::kLong));
    return F::cross_entropy(logits, without_memory({samples}, at::kLong));
  });
}

template <typename Function>
std::string refusal_of(const Function& function) {
  try {
    function();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Trace, HasTheGradientOfEveryParameterInItsSizes) {
  const Graph graph = graph_of();
  Net net;
  EXPECT_EQ(graph.gradients.size(), net->parameters().size());
  for (const Graph::Gradient& each : graph.gradients) {
    const GraphValue& parameter = graph.values[each.parameter];
    EXPECT_EQ(parameter.kind, GraphValue::Kind::kParameter);
    EXPECT_EQ(graph.values[each.gradient].sizes, parameter.sizes) << parameter.name;
    EXPECT_EQ(net->named_parameters()[parameter.name].sizes().vec(), parameter.sizes);
  }
}

// Each result of the forward has the sizes that it has with memory.
TEST(Trace, HasTheSizesOfARunWithMemory) {
  const Graph graph = graph_of(8, 6);
  std::set<std::vector<int64_t>> sizes;
  for (const GraphValue& value : graph.values) sizes.insert(value.sizes);
  Net net;
  const at::Tensor ids = at::zeros({6, 8}, at::kLong);
  const at::Tensor logits = net(ids);
  EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{6, 5}));
  const at::Tensor image = net->conv(at::zeros({6, 2, 8, 8}));
  EXPECT_TRUE(sizes.contains(image.sizes().vec())) << image.sizes();
  const at::Tensor up = net->up(torch::max_pool2d(image, 2, 1));
  EXPECT_TRUE(sizes.contains(up.sizes().vec())) << up.sizes();
  const std::string product = "aten::addmm";
  EXPECT_TRUE(std::ranges::any_of(graph.nodes, [&](const GraphNode& node) {
    return node.name == product && graph.values[node.outputs[0]].sizes == logits.sizes().vec();
  }));
}

TEST(Trace, KnowsTheModuleOfAnOperatorInForwardAndBackward) {
  const Graph graph = graph_of();
  std::set<std::string> forward, backward;
  for (const GraphNode& node : graph.nodes) {
    if (node.name == "aten::convolution") forward.insert(node.module);
    if (node.name == "aten::convolution_backward") backward.insert(node.module);
  }
  EXPECT_EQ(forward, (std::set<std::string>{"conv", "up"}));
  EXPECT_EQ(backward, forward);
}

TEST(Trace, IsTheSameForTheSameModule) {
  const Graph graph = graph_of();
  EXPECT_GT(graph.nodes.size(), 60u);
  EXPECT_EQ(first_difference(graph, graph_of()), "");
  EXPECT_NE(first_difference(graph, graph_of(16)).find("[11, 16]"), std::string::npos)
      << first_difference(graph, graph_of(16));
  EXPECT_EQ(graph.values.size(), graph_of(16).values.size());
}

TEST(Trace, RefusesAModuleThatChanges) {
  nn::Linear net = made_without_memory([] { return nn::Linear(4, 4); });
  int calls = 0;
  const std::string error = refusal_of([&] {
    trace_step(*net, [&] {
      const at::Tensor y = net(without_memory({2, 4}, at::kFloat));
      return calls++ == 0 ? y.sum() : y.exp().sum();
    });
  });
  EXPECT_NE(error.find("two steps of the module differ at operator"), std::string::npos) << error;
  EXPECT_NE(error.find("aten::exp"), std::string::npos) << error;
}

TEST(Trace, RefusesWhatReadsValues) {
  nn::Sequential net = made_without_memory([] { return nn::Sequential(nn::Linear(4, 4)); });
  const auto traced = [&](const auto& use) {
    return refusal_of([&] {
      trace_step(*net, [&] { return use(net->forward(without_memory({2, 4}, at::kFloat))); });
    });
  };
  const std::string item =
      traced([](const at::Tensor& y) { return y * (y.sum().item<float>() > 0 ? 1 : 2); });
  EXPECT_NE(item.find("item() near 0"), std::string::npos) << item;
  const std::string mask = traced([](const at::Tensor& y) { return y.masked_select(y > 0).sum(); });
  EXPECT_NE(mask.find("cannot be traced without memory"), std::string::npos) << mask;
  EXPECT_EQ(mask.find('\n'), std::string::npos);
  const std::string vector = traced([](const at::Tensor& y) { return y; });
  EXPECT_NE(vector.find("expected a scalar"), std::string::npos) << vector;
  nn::Linear with_memory(4, 4);
  const std::string memory = refusal_of([&] {
    trace_step(*with_memory, [&] { return with_memory(without_memory({2, 4}, at::kFloat)).sum(); });
  });
  EXPECT_NE(memory.find("made_without_memory()"), std::string::npos) << memory;
}

TEST(Trace, TakesNoMemoryForParameters) {
  const nn::Linear net = made_without_memory([] { return nn::Linear(1 << 20, 1 << 20); });
  EXPECT_EQ(net->weight.numel(), int64_t{1} << 40);
  EXPECT_FALSE(net->weight.has_storage());
}

TEST(Trace, NamesOperatorsWithoutARule) {
  nn::Linear net = made_without_memory([] { return nn::Linear(4, 4); });
  const Graph graph = trace_step(*net, [&] {
    return at::polygamma(2, net(without_memory({4, 4}, at::kFloat))).sum();
  });
  const std::vector<std::string> names = without_rule(graph);
  EXPECT_EQ(names, std::vector<std::string>{"aten::polygamma"});
}

// Against what the operators give with memory.
TEST(ResultSizes, AreThoseOfTheOperators) {
  struct Sink final : OperatorSink {
    void run(const c10::OperatorHandle& op, torch::jit::Stack& stack, const Rule*) override {
      const OperatorCall call(op, stack);
      const MakeResultSizes make = result_sizes_of(call.name());
      std::vector<ResultSizes> expected;
      if (make) expected = make(call);
      const size_t count = op.schema().returns().size();
      const std::string name = call.name();
      {
        const OnBlocks on_blocks;
        op.callBoxed(&stack);
      }
      if (!make) return;
      seen.insert(name);
      ASSERT_EQ(expected.size(), count) << name;
      for (size_t i = 0; i < count; ++i) {
        const at::Tensor& found = torch::jit::peek(stack, i, count).toTensor();
        ASSERT_EQ(found.defined(), expected[i].is_defined) << name << " " << i;
        if (!found.defined()) continue;
        EXPECT_EQ(found.sizes().vec(), expected[i].sizes) << name << " " << i;
        EXPECT_EQ(found.scalar_type(), expected[i].dtype) << name << " " << i;
      }
    }
    std::set<std::string> seen;
  };
  Sink sink;
  Net net;
  {
    const ToSink to_sink(sink);
    net(at::zeros({6, 8}, at::kLong)).sum().backward();
    at::index_select(at::zeros({3, 4}), 1, at::zeros({2}, at::kLong));
    at::conv2d(at::zeros({2, 4, 5, 6}), at::zeros({6, 2, 3, 3}), {}, 2, 1, 2, 2);
  }
  for (const char* name : {"native_layer_norm", "native_layer_norm_backward", "native_batch_norm",
                           "native_group_norm", "native_group_norm_backward", "convolution",
                           "convolution_backward", "embedding", "embedding_dense_backward",
                           "index_select", "relu", "_scaled_dot_product_flash_attention_for_cpu"}) {
    EXPECT_TRUE(sink.seen.contains(std::string("aten::") + name)) << name;
  }
}

}  // namespace
}  // namespace trireme::spmd
