#include "trireme/model/llama/llama.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "tests/harness/messages.h"
#include "tests/model/transformers_agreement.h"
#include "trireme/base/error.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

using namespace harness;

const ModelConfig kConfig{.layers = 2,
                          .width = 16,
                          .heads = 4,
                          .kv_heads = 2,
                          .ffn_width = 24,
                          .sequence_length = 9,
                          .vocab_size = 29};

// Nothing is a default.
const ModelConfig kTinyGranite{.layers = 3,
                               .width = 24,
                               .heads = 6,
                               .kv_heads = 2,
                               .ffn_width = 40,
                               .sequence_length = 13,
                               .vocab_size = 29,
                               .norm_epsilon = 1e-4,
                               .rope_base = 500,
                               .embedding_scale = 3.7,
                               .residual_scale = 0.43,
                               .logits_divisor = 1.3,
                               .attention = {.head_width = 6, .query_scalar = 17}};

// Granite 3.1 2B, each size a sixteenth.
const ModelConfig kSmallGranite{.layers = 5,
                                .width = 128,
                                .heads = 32,
                                .kv_heads = 8,
                                .ffn_width = 512,
                                .sequence_length = 64,
                                .vocab_size = 1000,
                                .norm_epsilon = 1e-5,
                                .rope_base = 5e6,
                                .tied_embedding = true,
                                .embedding_scale = 12,
                                .residual_scale = 0.22,
                                .logits_divisor = 8,
                                .attention = {.query_scalar = 256}};

ModelConfig with_biases(ModelConfig config) {
  config.attention.attention_bias = config.attention.attention_output_bias = true;
  return config;
}

at::Tensor some_tokens(int64_t batch, int64_t length) {
  return at::arange(batch * length, at::kLong).mul(11).remainder(29).view({batch, length});
}

TEST(Llama, ParametersAreNamedAsHuggingFaceNamesThem) {
  std::set<std::string> expected = {"model.embed_tokens.weight", "model.norm.weight",
                                    "lm_head.weight"};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const std::string name :
         {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
          "self_attn.o_proj", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj",
          "mlp.down_proj"}) {
      expected.insert(layer + name + ".weight");
    }
  }
  std::set<std::string> actual;
  for (const auto& item : make_model(kConfig, 1, at::kFloat)->module().named_parameters()) {
    actual.insert(item.key());
  }
  EXPECT_EQ(actual, expected);
}

TEST(Llama, LossIsTheCrossEntropyOfItsLogits) {
  for (const ModelConfig& config : {kConfig, kTinyGranite}) {
    const auto model = make_model(config, 1, at::kDouble);
    const at::Tensor tokens = some_tokens(3, 7);
    const at::Tensor targets = tokens.roll(-1, 1);
    const Loss loss = model->loss(tokens, targets);
    EXPECT_EQ(loss.count, 21);
    const at::Tensor expected = at::cross_entropy_loss(model->logits(tokens).flatten(0, 1),
                                                       targets.flatten(), {}, at::Reduction::Sum);
    harness::assert_close(loss.sum, expected, 1e-13, 0, "loss");
  }
}

TEST(Llama, GraniteAgreesWithTransformers) {
  expect_agreement_with_transformers({{"tiny", kTinyGranite},
                                      {"Granite 3.1 2B", kSmallGranite},
                                      {"biases", with_biases(kTinyGranite)}});
}

TEST(Llama, OtherFamiliesRefuseItsFactors) {
  for (const char* family : {"gemma", "gpt2", "bert", "t5"}) {
    for (double ModelConfig::*key : {&ModelConfig::embedding_scale, &ModelConfig::residual_scale,
                                     &ModelConfig::logits_divisor}) {
      ModelConfig config{.family = family, .vocab_size = 29};
      validate(config);
      config.*key = 2;
      EXPECT_THAT(harness::message_of<ConfigError>([&] { validate(config); }),
                  testing::HasSubstr("has no such factors"));
    }
  }
}

TEST(Llama, AFutureTokenDoesNotChangeThePast) {
  const auto model = make_model(kConfig, 1, at::kDouble);
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = some_tokens(1, 8);
  const at::Tensor changed = tokens.clone();
  changed[0][5] = 28;
  const at::Tensor a = model->logits(tokens);
  const at::Tensor b = model->logits(changed);
  harness::assert_close(b.narrow(1, 0, 5), a.narrow(1, 0, 5), 1e-14, 0, "past");
  for (int64_t t = 5; t < 8; ++t) {
    EXPECT_GT((a[0][t] - b[0][t]).abs().max().item<double>(), 1e-6) << "position " << t;
  }
}

TEST(Llama, OrderOfPastTokensMatters) {
  const auto model = make_model(kConfig, 1, at::kDouble);
  const at::NoGradGuard no_grad;
  const at::Tensor a = model->logits(at::tensor({3, 5, 7}, at::kLong).view({1, 3}));
  const at::Tensor b = model->logits(at::tensor({5, 3, 7}, at::kLong).view({1, 3}));
  EXPECT_GT((a[0][2] - b[0][2]).abs().max().item<double>(), 1e-9);
}

// Rotary angles count distances alone: a document is the same wherever it lies.
TEST(Llama, ADocumentInASequenceIsAsTheDocumentAlone) {
  const auto model = make_model(kConfig, 1, at::kDouble);
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = some_tokens(2, 9);
  const at::Tensor documents = at::arange(9).ge(4).to(at::kLong).expand({2, 9}).contiguous();
  const at::Tensor together =
      model->forward_part({.tokens_BT = tokens, .documents_BT = documents}).hidden;
  const at::Tensor apart = at::cat({model->forward_part({tokens.slice(1, 0, 4)}).hidden,
                                    model->forward_part({tokens.slice(1, 4)}).hidden},
                                   1);
  harness::assert_close(together, apart, 1e-10, 1e-10, "hidden");
  const at::Tensor mixed = model->forward_part({tokens}).hidden;
  EXPECT_GT((together - mixed).abs().max().item<double>(), 1e-3);
}

TEST(Llama, TiedEmbeddingHasNoHeadOfItsOwn) {
  ModelConfig config = kConfig;
  config.tied_embedding = true;
  const auto model = make_model(config, 1, at::kDouble);
  EXPECT_FALSE(model->module().named_parameters().contains("lm_head.weight"));
}

TEST(Llama, LowerPrecisionsTrain) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto model = make_model(kConfig, 1, dtype);
    const auto reference = make_model(kConfig, 1, at::kDouble);
    const at::Tensor tokens = some_tokens(2, 9);
    const Loss loss = model->loss(tokens, tokens);
    loss.sum.backward();
    // Two layers of about ten roundings to 8 bits each; the loss itself is near log(29) a token.
    harness::assert_close(loss.sum, reference->loss(tokens, tokens).sum, 20 * 0x1p-8, 0, "loss");
    for (const auto& item : model->module().named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    }
  }
}

TEST(Llama, RefusesTokensItCannotRead) {
  const auto model = make_model(kConfig, 1, at::kFloat);
  EXPECT_THROW(model->logits(some_tokens(1, 10)), ConfigError);
  EXPECT_THROW(model->logits(some_tokens(1, 4).to(at::kInt)), ConfigError);
  EXPECT_THROW(model->logits(some_tokens(1, 4).flatten()), ConfigError);
}

TEST(Llama, RefusesATokenOutsideTheVocabulary) {
  const auto model = make_model(kConfig, 1, at::kFloat);
  EXPECT_ANY_THROW(model->logits(at::full({1, 2}, 29, at::kLong)));
}

}  // namespace
}  // namespace trireme::model
