#include "tests/spmd/annotated_modules.h"

#include <memory>
#include <utility>

#include <torch/nn.h>

#include <gtest/gtest.h>

#include "tests/spmd/placed_cases.h"

namespace trireme::spmd::spmd_test {
namespace {

namespace nn = torch::nn;

// Four tokens of width 6, two heads, queries before keys: [B, T, D] -> [B, T, D].
struct TransformerBlock : nn::Module {
  nn::LayerNorm first{nullptr}, second{nullptr};
  nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, o{nullptr}, up{nullptr}, down{nullptr};

  explicit TransformerBlock(int64_t width = 6) {
    const auto norm = [&] { return nn::LayerNorm(nn::LayerNormOptions({width})); };
    first = register_module("first", norm());
    second = register_module("second", norm());
    q = register_module("q", nn::Linear(width, width));
    k = register_module("k", nn::Linear(width, width));
    v = register_module("v", nn::Linear(width, width));
    o = register_module("o", nn::Linear(width, width));
    up = register_module("up", nn::Linear(width, 10));
    down = register_module("down", nn::Linear(10, width));
  }
  at::Tensor heads(const at::Tensor& x) const {
    return x.view({x.size(0), x.size(1), 2, -1}).transpose(1, 2);
  }
  at::Tensor forward(at::Tensor x) {
    const at::Tensor h = first(x);
    at::Tensor a = at::scaled_dot_product_attention(heads(q(h)), heads(k(h)), heads(v(h)), {}, 0,
                                                    /*is_causal=*/true);
    x = x + o(a.transpose(1, 2).reshape(x.sizes()));
    return x + down(at::gelu(up(second(x))));
  }
};

// Attention by matrix products, with positions and a mask that the constructor makes.
struct MaskedAttention : nn::Module {
  nn::Linear qkv{nullptr}, out{nullptr};
  at::Tensor position, mask;

  MaskedAttention() {
    qkv = register_module("qkv", nn::Linear(6, 18));
    position = register_parameter("position", torch::randn({5, 6}) * 0.1);
    out = register_module("out", nn::Linear(nn::LinearOptions(6, 6).bias(false)));
    mask = register_buffer("mask", torch::ones({5, 5}).triu(1));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = qkv(x + position).chunk(3, -1);
    const at::Tensor scores = parts[0].matmul(parts[1].transpose(1, 2)) / 2.5;
    return out(scores.masked_fill(mask.to(torch::kBool), -1e9).softmax(-1).matmul(parts[2]));
  }
};

// Rotary positions, RMS norms and a gated feed-forward layer.
struct GatedBlock : nn::Module {
  at::Tensor norm, angles;
  nn::Linear gate{nullptr}, up{nullptr}, down{nullptr};

  GatedBlock() {
    norm = register_parameter("norm", torch::ones({6}));
    gate = register_module("gate", nn::Linear(nn::LinearOptions(6, 7).bias(false)));
    up = register_module("up", nn::Linear(nn::LinearOptions(6, 7).bias(false)));
    down = register_module("down", nn::Linear(nn::LinearOptions(7, 6).bias(false)));
    angles = register_buffer("angles", torch::arange(5, torch::kFloat).unsqueeze(1) * 0.3);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto halves = x.split(3, -1);
    const at::Tensor c = angles.cos(), s = angles.sin();
    const at::Tensor turned =
        at::cat({halves[0] * c - halves[1] * s, halves[0] * s + halves[1] * c}, -1);
    const at::Tensor h = at::rms_norm(turned, {6}, norm, 1e-5);
    return x + down(at::silu(gate(h)) * up(h));
  }
};

struct ConvNet : nn::Module {
  nn::Conv2d first{nullptr}, second{nullptr};
  nn::Linear head{nullptr};

  ConvNet() {
    first = register_module("first", nn::Conv2d(nn::Conv2dOptions(3, 6, 3).padding(1)));
    second = register_module("second", nn::Conv2d(nn::Conv2dOptions(6, 5, 3).stride(2)));
    head = register_module("head", nn::Linear(5, 4));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = at::max_pool2d(first(x).relu(), 2);
    h = at::relu(second(h));
    return head(at::adaptive_avg_pool2d(h, {1, 1}).flatten(1));
  }
};

// One step down and up again, with a connection past it.
struct UNetPiece : nn::Module {
  nn::Conv2d in{nullptr}, down{nullptr}, out{nullptr};
  nn::ConvTranspose2d up{nullptr};

  UNetPiece() {
    in = register_module("in", nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)));
    down = register_module("down", nn::Conv2d(nn::Conv2dOptions(4, 6, 2).stride(2)));
    up = register_module("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(6, 4, 2).stride(2)));
    out = register_module("out", nn::Conv2d(nn::Conv2dOptions(8, 2, 1)));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor wide = at::silu(in(x));
    return out(at::cat({wide, at::silu(up(down(wide)))}, 1));
  }
};

// Scores of every user for every item.
struct TwoTowers : nn::Module {
  nn::Embedding users{nullptr}, items{nullptr};
  nn::Linear user{nullptr}, item{nullptr};

  TwoTowers() {
    users = register_module("users", nn::Embedding(11, 6));
    items = register_module("items", nn::Embedding(7, 6));
    user = register_module("user", nn::Linear(6, 5));
    item = register_module("item", nn::Linear(6, 5));
  }
  at::Tensor forward(const at::Tensor& user_ids, const at::Tensor& item_ids) {
    const at::Tensor u = at::tanh(user(users(user_ids))), i = at::tanh(item(items(item_ids)));
    return at::log_softmax(u.matmul(i.t()), 1);
  }
};

// A bag of words.
struct WordBag : nn::Module {
  nn::Embedding words{nullptr};
  nn::Linear head{nullptr};

  WordBag() {
    words = register_module("words", nn::Embedding(nn::EmbeddingOptions(9, 5).padding_idx(0)));
    head = register_module("head", nn::Linear(5, 3));
  }
  at::Tensor forward(const at::Tensor& ids) { return head(words(ids).mean(1)).log_softmax(-1); }
};

// Products of all pairs of a sample's vectors.
struct PairModel : nn::Module {
  nn::Embedding table{nullptr};
  nn::Linear dense{nullptr}, top{nullptr};

  PairModel() {
    table = register_module("table", nn::Embedding(13, 4));
    dense = register_module("dense", nn::Linear(3, 4));
    top = register_module("top", nn::Linear(16, 1));
  }
  at::Tensor forward(const at::Tensor& numbers, const at::Tensor& ids) {
    const at::Tensor vectors = at::cat({dense(numbers).relu().unsqueeze(1), table(ids)}, 1);
    return top(vectors.bmm(vectors.transpose(1, 2)).flatten(1)).squeeze(-1).sigmoid();
  }
};

// Mixes tokens, then channels.
struct Mixer : nn::Module {
  nn::Linear tokens{nullptr}, channels{nullptr};
  nn::LayerNorm norm{nullptr};

  Mixer() {
    tokens = register_module("tokens", nn::Linear(5, 5));
    channels = register_module("channels", nn::Linear(6, 6));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({6})));
  }
  at::Tensor forward(at::Tensor x) {
    x = x + at::gelu(tokens(x.transpose(1, 2))).transpose(1, 2);
    return x + at::gelu(channels(norm(x)));
  }
};

struct WaveBlock : nn::Module {
  nn::Conv1d filter{nullptr}, gate{nullptr}, out{nullptr};

  WaveBlock() {
    const auto wide = nn::Conv1dOptions(4, 6, 3).padding(2).dilation(2);
    filter = register_module("filter", nn::Conv1d(wide));
    gate = register_module("gate", nn::Conv1d(wide));
    out = register_module("out", nn::Conv1d(nn::Conv1dOptions(6, 4, 1)));
  }
  at::Tensor forward(const at::Tensor& x) {
    return x + out(at::tanh(filter(x)) * at::sigmoid(gate(x)));
  }
};

// A recurrent network, step by step.
struct Recurrent : nn::Module {
  nn::Linear in{nullptr}, state{nullptr};

  Recurrent() {
    in = register_module("in", nn::Linear(4, 12));
    state = register_module("state", nn::Linear(nn::LinearOptions(3, 12).bias(false)));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = at::zeros({x.size(0), 3}, x.options()), c = h;
    for (int64_t step = 0; step < x.size(1); ++step) {
      const auto gates = (in(x.select(1, step)) + state(h)).chunk(4, 1);
      c = gates[0].sigmoid() * c + gates[1].sigmoid() * gates[2].tanh();
      h = gates[3].sigmoid() * c.tanh();
    }
    return h;
  }
};

// Two experts, weighted by a gate, that share their weight.
struct TiedExperts : nn::Module {
  nn::Linear left{nullptr}, gate{nullptr};
  at::Tensor shared;

  TiedExperts() {
    left = register_module("left", nn::Linear(6, 6));
    shared = register_parameter("shared", left->weight);
    gate = register_module("gate", nn::Linear(6, 2));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor weights = gate(x).softmax(-1).unsqueeze(-1);
    const at::Tensor both = at::stack({at::silu(left(x)), at::tanh(at::linear(x, shared))}, -2);
    return (weights * both).sum(-2);
  }
};

nn::Sequential mlp() {
  return nn::Sequential(nn::Linear(6, 10), nn::GELU(), nn::Linear(10, 6),
                        nn::LayerNorm(nn::LayerNormOptions({6})), nn::ReLU(), nn::Linear(6, 5));
}

template <typename Net>
ModuleResult result_of(Net& module, const at::Tensor& y, const std::vector<at::Tensor>& inputs) {
  (y * values(y.sizes(), 0.77)).sum().backward();
  ModuleResult result{whole_of(y), {}};
  for (const auto& item : module.named_parameters())
    result.gradients[item.key()] = whole_of(item.value().grad());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].requires_grad())
      result.gradients["input " + std::to_string(i)] = whole_of(inputs[i].grad());
  }
  return result;
}

// num_inputs: that forward() takes
template <size_t num_inputs, typename Make>
ModuleCase module_case(std::string name, Make make, std::vector<at::Tensor> inputs) {
  const auto in_double = [make] {
    auto net = make();
    net->to(torch::kDouble);
    return net;
  };
  const auto call = [](auto& net, const std::vector<at::Tensor>& x) {
    if constexpr (num_inputs == 2) {
      return net.forward(x[0], x[1]);
    } else {
      return net.forward(x[0]);
    }
  };
  ModuleCase each{std::move(name), inputs, nullptr, nullptr};
  each.parameters = [in_double] {
    std::map<std::string, std::vector<int64_t>> sizes;
    for (const auto& item : in_double()->named_parameters())
      sizes[item.key()] = item.value().sizes().vec();
    return sizes;
  };
  each.run = [in_double, call, inputs](const mesh::DeviceMesh* mesh, const Annotations& notes) {
    std::vector<at::Tensor> x;
    for (const at::Tensor& input : inputs) {
      x.push_back(input.clone());
      if (input.is_floating_point()) x.back().requires_grad_();
    }
    if (mesh) {
      auto net = annotate(*mesh, notes, in_double);
      EXPECT_FALSE(net.tensors().was_whole());
      return result_of(net.module(), call(net, x), x);
    }
    at::manual_seed(notes.seed);
    auto net = in_double();
    return result_of(*net, call(*net, x), x);
  };
  return each;
}

template <typename Net, size_t num_inputs = 1>
ModuleCase module_case(std::string name, std::vector<at::Tensor> inputs) {
  return module_case<num_inputs>(
      std::move(name), [] { return std::make_shared<Net>(); }, std::move(inputs));
}

}  // namespace

const std::vector<ModuleCase>& module_cases() {
  const auto ids = [](std::vector<int64_t> numbers, at::IntArrayRef sizes) {
    return at::tensor(numbers, at::kLong).view(sizes);
  };
  static const std::vector<ModuleCase> all = {
      module_case<1>("Mlp", &mlp, {values({5, 3, 6}, 0.2)}),
      module_case<TransformerBlock>("TransformerBlock", {values({3, 4, 6}, 0.3)}),
      module_case<MaskedAttention>("MaskedAttention", {values({3, 5, 6}, 0.4)}),
      module_case<GatedBlock>("GatedBlock", {values({3, 5, 6}, 0.5)}),
      module_case<ConvNet>("ConvNet", {values({3, 3, 8, 8}, 0.6)}),
      module_case<UNetPiece>("UNetPiece", {values({3, 2, 4, 4}, 0.7)}),
      module_case<TwoTowers, 2>("TwoTowers", {ids({3, 10, 0, 7, 3}, {5}), ids({6, 0, 2}, {3})}),
      module_case<WordBag>("WordBag", {ids({1, 8, 0, 3, 3, 2, 5, 7, 0, 4, 6, 1}, {3, 4})}),
      module_case<PairModel, 2>("PairModel",
                                {values({2, 3}, 0.8), ids({12, 0, 5, 4, 5, 7}, {2, 3})}),
      module_case<Mixer>("Mixer", {values({3, 5, 6}, 0.9)}),
      module_case<WaveBlock>("WaveBlock", {values({3, 4, 7}, 1.1)}),
      module_case<Recurrent>("Recurrent", {values({5, 3, 4}, 1.2)}),
      module_case<TiedExperts>("TiedExperts", {values({5, 3, 6}, 1.3)}),
  };
  return all;
}

}  // namespace trireme::spmd::spmd_test
