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

// Nothing is a default.
const ModelConfig kTinyOlmo2{
    .layers = 3,
    .width = 24,
    .heads = 6,
    .kv_heads = 2,
    .ffn_width = 40,
    .sequence_length = 13,
    .vocab_size = 29,
    .norm_epsilon = 1e-4,
    .rope_base = 500,
    .branch_norms = BranchNorms::kAfter,
    .attention = {.qk_norm = true, .qk_norm_over = QkNormOver::kAll, .head_width = 6}};

// OLMo 2 7B, each size a thirty-second.
const ModelConfig kSmallOlmo2{.layers = 4,
                              .width = 128,
                              .heads = 4,
                              .kv_heads = 4,
                              .ffn_width = 344,
                              .sequence_length = 64,
                              .vocab_size = 1000,
                              .norm_epsilon = 1e-6,
                              .rope_base = 5e5,
                              .branch_norms = BranchNorms::kAfter,
                              .attention = {.qk_norm = true, .qk_norm_over = QkNormOver::kAll}};

// OLMo 3 7B, each size a thirty-second.
const ModelConfig kSmallOlmo3{.layers = 4,
                              .width = 128,
                              .heads = 4,
                              .kv_heads = 4,
                              .ffn_width = 344,
                              .sequence_length = 64,
                              .vocab_size = 1000,
                              .norm_epsilon = 1e-6,
                              .rope_base = 5e5,
                              .branch_norms = BranchNorms::kAfter,
                              .attention = {.qk_norm = true,
                                            .qk_norm_over = QkNormOver::kAll,
                                            .window = 24,
                                            .window_layers = "wwwf"},
                              .rope = {.rope_scaling = RopeScaling::kYarn,
                                       .rope_factor = 8,
                                       .rope_original_length = 16,
                                       .rope_local_base = 5e5}};

// Nothing is a default, and the first and third blocks are dense. A loss that balances experts is
// not the reference's.
const ModelConfig kTinyQwen2Moe{.layers = 4,
                                .width = 24,
                                .heads = 6,
                                .kv_heads = 2,
                                .ffn_width = 40,
                                .sequence_length = 13,
                                .vocab_size = 29,
                                .norm_epsilon = 1e-4,
                                .rope_base = 500,
                                .attention = {.attention_bias = true, .head_width = 6},
                                .sparse = {.experts = 5,
                                           .experts_per_token = 3,
                                           .expert_width = 14,
                                           .shared_experts = 2,
                                           .shared_gate = true,
                                           .dense_layers = 1,
                                           .expert_interval = 2,
                                           .router_normalise = false,
                                           .balance_loss = 0}};

// Qwen1.5-MoE-A2.7B, each size a sixteenth.
const ModelConfig kSmallQwen2Moe{.layers = 3,
                                 .width = 128,
                                 .heads = 16,
                                 .kv_heads = 16,
                                 .ffn_width = 352,
                                 .sequence_length = 64,
                                 .vocab_size = 1000,
                                 .norm_epsilon = 1e-6,
                                 .rope_base = 1e6,
                                 .attention = {.attention_bias = true},
                                 .sparse = {.experts = 60,
                                            .experts_per_token = 4,
                                            .expert_width = 88,
                                            .shared_experts = 4,
                                            .shared_gate = true,
                                            .router_normalise = false,
                                            .balance_loss = 0}};

// Nothing is a default; six of a head's ten numbers are turned.
const ModelConfig kTinyGlm4{.layers = 3,
                            .width = 24,
                            .heads = 6,
                            .kv_heads = 2,
                            .ffn_width = 40,
                            .sequence_length = 13,
                            .vocab_size = 29,
                            .norm_epsilon = 1e-4,
                            .rope_base = 500,
                            .branch_norms = BranchNorms::kBoth,
                            .attention = {.attention_bias = true, .head_width = 10},
                            .rope = {.rotary_share = 0.6}};

// GLM-4-9B-0414, each size a thirty-second, but half its heads, of a sixteenth of their width.
const ModelConfig kSmallGlm4{.layers = 4,
                             .width = 128,
                             .heads = 16,
                             .kv_heads = 1,
                             .ffn_width = 428,
                             .sequence_length = 64,
                             .vocab_size = 1000,
                             .norm_epsilon = 1e-5,
                             .rope_base = 1e4,
                             .branch_norms = BranchNorms::kBoth,
                             .attention = {.attention_bias = true, .head_width = 8},
                             .rope = {.rotary_share = 0.5}};

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

TEST(Llama, Olmo2AgreesWithTransformers) {
  expect_agreement_with_transformers({{"tiny", kTinyOlmo2, kExactTolerance},
                                      {"OLMo 2 7B", kSmallOlmo2, kExactTolerance},
                                      {"biases", with_biases(kTinyOlmo2), kExactTolerance}});
}

TEST(Llama, Olmo3AgreesWithTransformers) {
  ModelConfig tiny = kTinyOlmo2;
  tiny.attention.window = 4;
  tiny.attention.window_layers = "wf";
  tiny.rope.rope_local_base = 70;
  // YaRN's rates are computed in fp32 there.
  expect_agreement_with_transformers({{"tiny", tiny, kExactTolerance}, {"OLMo 3 7B", kSmallOlmo3}});
}

TEST(Llama, Qwen2MoeAgreesWithTransformers) {
  ModelConfig normalised = kTinyQwen2Moe;
  normalised.sparse.router_normalise = true;
  normalised.attention.attention_bias = false;
  expect_agreement_with_transformers({{"tiny", kTinyQwen2Moe, kExactTolerance},
                                      {"normalised", normalised, kExactTolerance},
                                      {"Qwen1.5-MoE", kSmallQwen2Moe, kExactTolerance}});
}

TEST(Llama, Glm4AgreesWithTransformers) {
  ModelConfig plain = kTinyGlm4;
  plain.attention.attention_bias = false;
  plain.rope.rotary_share = 1;
  expect_agreement_with_transformers({{"tiny", kTinyGlm4, kExactTolerance},
                                      {"GLM-4 9B", kSmallGlm4, kExactTolerance},
                                      {"whole heads", plain, kExactTolerance}});
}

TEST(Llama, OtherFamiliesRefuseItsNorms) {
  for (const char* family : {"gemma", "gpt2", "bert", "t5"}) {
    for (const BranchNorms norms : {BranchNorms::kAfter, BranchNorms::kBoth}) {
      EXPECT_THAT(harness::message_of<ConfigError>([&] {
                    validate({.family = family, .vocab_size = 29, .branch_norms = norms});
                  }),
                  testing::HasSubstr("model.branch_norms is \""));
    }
  }
}

TEST(Llama, BlocksHaveTheNormsThatTheKeySays) {
  for (const BranchNorms norms : {BranchNorms::kAfter, BranchNorms::kBoth}) {
    ModelConfig config = kTinyOlmo2;
    config.branch_norms = norms;
    config.layers = 1;
    const auto names = make_model(config, 1, at::kFloat)->module().named_parameters();
    EXPECT_EQ(names.contains("model.layers.0.input_layernorm.weight"), norms == BranchNorms::kBoth);
    EXPECT_EQ(names.contains("model.layers.0.pre_feedforward_layernorm.weight"),
              norms == BranchNorms::kBoth);
    EXPECT_TRUE(names.contains("model.layers.0.post_attention_layernorm.weight"));
    EXPECT_TRUE(names.contains("model.layers.0.post_feedforward_layernorm.weight"));
  }
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
