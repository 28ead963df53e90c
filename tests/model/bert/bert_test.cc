#include "trireme/model/bert/bert.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/harness/messages.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/model/generate.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

using testing::HasSubstr;

const ModelConfig kConfig{.family = "bert",
                          .layers = 2,
                          .width = 12,
                          .heads = 3,
                          .kv_heads = 3,
                          .ffn_width = 20,
                          .sequence_length = 9,
                          .vocab_size = 17,
                          .norm_epsilon = 1e-3};

using Weights = std::map<std::string, at::Tensor>;

// Every weight matters: none is 0 or 1.
std::unique_ptr<LanguageModel> bert_with_weights() {
  auto model = make_model(kConfig, 1, at::kDouble);
  const at::NoGradGuard no_grad;
  double phase = 0.3;
  for (const auto& item : model->module().named_parameters()) {
    const at::Tensor values =
        at::arange(item.value().numel(), at::kDouble).mul_(0.7).add_(phase).sin_();
    const bool is_norm = item.key().ends_with("LayerNorm.weight");
    item.value().copy_(values.mul_(0.3).add_(is_norm ? 1 : 0).view(item.value().sizes()));
    phase += 0.11;
  }
  return model;
}

Weights weights_of(LanguageModel& model) {
  Weights weights;
  for (const auto& item : model.module().named_parameters()) weights[item.key()] = item.value();
  return weights;
}

// The model of the paper, composed of libtorch's operators on whole tensors. documents: [B, T], or
// undefined.
at::Tensor composed_logits(const Weights& w, const at::Tensor& tokens_BT,
                           const at::Tensor& documents_BT) {
  const int64_t B = tokens_BT.size(0), T = tokens_BT.size(1), D = kConfig.width, N = kConfig.heads;
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    return at::linear(x, w.at(name + ".weight"), w.at(name + ".bias"));
  };
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    const at::Tensor mean = x.mean(-1, true);
    const at::Tensor variance = (x - mean).square().mean(-1, true);
    return (x - mean) / (variance + kConfig.norm_epsilon).sqrt() * w.at(name + ".weight") +
           w.at(name + ".bias");
  };
  const auto gelu = [](const at::Tensor& x) { return x * 0.5 * (1 + at::erf(x / std::sqrt(2.0))); };
  at::Tensor mask_BTT = at::zeros({B, T, T}, at::kDouble);
  at::Tensor positions_BT = at::arange(T, at::kLong).expand({B, T});
  if (documents_BT.defined()) {
    const at::Tensor same_BTT = documents_BT.unsqueeze(2).eq(documents_BT.unsqueeze(1));
    mask_BTT.masked_fill_(same_BTT.logical_not(), -std::numeric_limits<double>::infinity());
    // A document's tokens follow each other.
    positions_BT = same_BTT.tril(-1).sum(2);
  }
  const std::string e = "bert.embeddings.";
  at::Tensor x = w.at(e + "word_embeddings.weight").index({tokens_BT}) +
                 w.at(e + "position_embeddings.weight").index({positions_BT}) +
                 w.at(e + "token_type_embeddings.weight").select(0, 0);
  x = norm(x, e + "LayerNorm");
  for (int64_t layer = 0; layer < kConfig.layers; ++layer) {
    const std::string block = concat("bert.encoder.layer.", layer, ".");
    const auto heads = [&](const char* name) {
      return linear(x, block + "attention.self." + name).view({B, T, N, D / N}).transpose(1, 2);
    };
    const at::Tensor scores_BNTT =
        at::matmul(heads("query"), heads("key").transpose(2, 3)) / std::sqrt(D / N) +
        mask_BTT.unsqueeze(1);
    const at::Tensor out_BTD =
        at::matmul(scores_BNTT.softmax(-1), heads("value")).transpose(1, 2).reshape({B, T, D});
    x = norm(x + linear(out_BTD, block + "attention.output.dense"),
             block + "attention.output.LayerNorm");
    const at::Tensor hidden = gelu(linear(x, block + "intermediate.dense"));
    x = norm(x + linear(hidden, block + "output.dense"), block + "output.LayerNorm");
  }
  const std::string h = "cls.predictions.";
  x = norm(gelu(linear(x, h + "transform.dense")), h + "transform.LayerNorm");
  return at::linear(x, w.at(e + "word_embeddings.weight"), w.at(h + "bias"));
}

TEST(Bert, IsTheModelOfThePaperWithEveryGradient) {
  const at::Tensor tokens = at::arange(18, at::kLong).mul(5).remainder(17).view({2, 9});
  const at::Tensor targets = tokens.masked_fill(tokens.remainder(3).ne(1), kIgnoredTarget);
  const at::Tensor documents = at::arange(18, at::kLong).div(4, "floor").view({2, 9});
  for (const at::Tensor& of : {at::Tensor(), documents}) {
    const auto model = bert_with_weights();
    const Weights weights = weights_of(*model);
    const at::Tensor logits = composed_logits(weights, tokens, of);
    const at::Tensor expected =
        at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten(), {}, at::Reduction::Sum);
    std::vector<at::Tensor> leaves;
    for (const auto& [name, weight] : weights) leaves.push_back(weight);
    const auto gradients = torch::autograd::grad({expected}, leaves);

    const PartOutput out = model->forward_part({.tokens_BT = tokens, .documents_BT = of});
    const Loss loss = model->head_loss(out.hidden, targets);
    loss.sum.backward();
    EXPECT_EQ(loss.count, targets.ne(kIgnoredTarget).sum().item<int64_t>());
    harness::assert_close(loss.sum, expected, 1e-12, 0, "loss");
    if (!of.defined()) harness::assert_close(model->logits(tokens), logits, 1e-12, 0, "logits");
    size_t i = 0;
    for (const auto& [name, weight] : weights) {
      harness::assert_close(weight.grad(), gradients[i++], 1e-11, 1e-12, name);
    }
  }
}

TEST(Bert, ALaterTokenChangesTheFirst) {
  const auto model = make_model(kConfig, 1, at::kDouble);
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = at::arange(8, at::kLong).view({1, 8});
  const at::Tensor changed = tokens.clone();
  changed[0][7] = 16;
  EXPECT_GT((model->logits(tokens)[0][0] - model->logits(changed)[0][0]).abs().max().item<double>(),
            1e-6);
}

TEST(Bert, OnlyTheFirstTokenTypeIsRead) {
  ModelConfig config = kConfig;
  config.token_types = 3;
  EXPECT_EQ(num_parameters(config), num_parameters(kConfig) + config.width);
  const auto model = make_model(config, 1, at::kDouble);
  const at::Tensor tokens = at::full({1, 3}, 4, at::kLong);
  model->loss(tokens, tokens).sum.backward();
  const at::Tensor grad =
      weights_of(*model).at("bert.embeddings.token_type_embeddings.weight").grad();
  EXPECT_GT(grad[0].abs().max().item<double>(), 1e-6);
  EXPECT_EQ(grad.slice(0, 1).abs().max().item<double>(), 0);
}

// google-bert/bert-base-uncased: 109,514,298 parameters of BertForMaskedLM.
TEST(Bert, HasTheParametersAndOperationsOfBertBase) {
  const ModelConfig base{.family = "bert",
                         .layers = 12,
                         .width = 768,
                         .heads = 12,
                         .kv_heads = 12,
                         .ffn_width = 3072,
                         .sequence_length = 512,
                         .vocab_size = 30522};
  EXPECT_EQ(num_parameters(base), 109514298);
  const double matrices = 12 * (4 * 768.0 * 768 + 2 * 768.0 * 3072) + 768.0 * 768 + 768.0 * 30522;
  EXPECT_EQ(flops_per_token(base), 6 * matrices + 12 * 12 * 512.0 * 768);
}

TEST(Bert, RefusesWhatItDoesNotHave) {
  const auto refusal = [](const auto& change) {
    ModelConfig config = kConfig;
    change(config);
    return harness::message_of<ConfigError>([&] { validate(config); });
  };
  EXPECT_THAT(refusal([](auto& c) { c.kv_heads = 1; }), HasSubstr("bert has no grouped queries"));
  EXPECT_THAT(refusal([](auto& c) { c.attention.window = 4; }),
              HasSubstr("bert has plain attention"));
  EXPECT_THAT(refusal([](auto& c) { c.logits_softcap = 1; }), HasSubstr("bert has plain scores"));
  EXPECT_THAT(refusal([](auto& c) { c.rope.rotary_share = 0.5; }),
              HasSubstr("bert learns its positions"));
  EXPECT_THAT(refusal([](auto& c) { c.sparse.experts = 2; }),
              HasSubstr("bert has no sparse blocks"));
}

}  // namespace
}  // namespace trireme::model
