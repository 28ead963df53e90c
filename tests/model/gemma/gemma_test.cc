#include "trireme/model/gemma/gemma.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "tests/model/transformers_agreement.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

// Nothing is a default, and scores and logits are well into their caps.
ModelConfig tiny_gemma2() {
  return {.family = "gemma",
          .layers = 3,
          .width = 24,
          .heads = 6,
          .kv_heads = 2,
          .ffn_width = 40,
          .sequence_length = 13,
          .vocab_size = 29,
          .norm_epsilon = 1e-4,
          .rope_base = 500,
          .tied_embedding = true,
          .logits_softcap = 3,
          .attention = {.head_width = 6,
                        .window = 4,
                        .window_layers = "wwf",
                        .query_scalar = 2,
                        .attention_softcap = 1.5}};
}

// Gemma 2 2B, each size about an eighteenth.
ModelConfig small_gemma2_2b() {
  return {.family = "gemma",
          .layers = 4,
          .width = 128,
          .heads = 8,
          .kv_heads = 4,
          .ffn_width = 512,
          .sequence_length = 64,
          .vocab_size = 1000,
          .norm_epsilon = 1e-6,
          .tied_embedding = true,
          .logits_softcap = 30,
          .attention = {
              .head_width = 14, .window = 32, .window_layers = "wf", .attention_softcap = 50}};
}

// Layers with full attention have scaled positions, and the others another angle.
ModelConfig tiny_gemma3() {
  ModelConfig config = tiny_gemma2();
  config.logits_softcap = 0;
  config.attention.attention_softcap = 0;
  config.attention.qk_norm = true;
  config.rope = {.rope_scaling = RopeScaling::kLinear, .rope_factor = 4, .rope_local_base = 20};
  return config;
}

// Gemma 3 1B, each size an eighth.
ModelConfig small_gemma3_1b() {
  return {.family = "gemma",
          .layers = 7,
          .width = 144,
          .heads = 4,
          .kv_heads = 1,
          .ffn_width = 864,
          .sequence_length = 64,
          .vocab_size = 1000,
          .norm_epsilon = 1e-6,
          .rope_base = 1e6,
          .tied_embedding = true,
          .attention = {.qk_norm = true, .head_width = 32, .window = 16, .window_layers = "wwwwwf"},
          .rope = {.rope_local_base = 1e4}};
}

ModelConfig untied(ModelConfig config) {
  config.tied_embedding = false;
  return config;
}

std::vector<TransformersCase> cases() {
  return {{"tiny Gemma 2", tiny_gemma2()},
          {"Gemma 2 2B", small_gemma2_2b()},
          {"Gemma 2 with a head of its own", untied(tiny_gemma2())},
          {"tiny Gemma 3", tiny_gemma3()},
          {"Gemma 3 1B", small_gemma3_1b()}};
}

TEST(Gemma, AgreesWithTransformers) { expect_agreement_with_transformers(cases()); }

// 1 + w is 1: a model begins with norms that only norm.
TEST(Gemma, NormsBeginAtZero) {
  const auto model = make_model(tiny_gemma2(), 1, at::kFloat);
  int norms = 0;
  for (const auto& item : model->module().named_parameters()) {
    if (item.key().find("norm.") == std::string::npos) continue;
    EXPECT_EQ(item.value().abs().max().item<double>(), 0) << item.key();
    ++norms;
  }
  EXPECT_EQ(norms, 4 * 3 + 1);
}

// sqrt(24) is 4.898979..., and 4.90625 in bf16.
TEST(Gemma, TheScaleOfTheEmbeddingIsRoundedToTheDtype) {
  ModelConfig config = tiny_gemma2();
  config.layers = 1;
  const auto model = make_model(config, 1, at::kBFloat16, {}, {.has_head = false});
  const at::NoGradGuard no_grad;
  at::Tensor table;
  for (const auto& item : model->module().named_parameters()) {
    const bool is_table = item.key() == "model.embed_tokens.weight";
    if (is_table) table = item.value();
    // Branches that add nothing.
    if (item.key().find("_proj.") != std::string::npos) item.value().zero_();
  }
  const at::Tensor tokens = some_tokens(config, 7);
  const at::Tensor expected = (table.index({tokens}).to(at::kFloat) * 4.90625).to(at::kBFloat16);
  harness::assert_same_bits(model->forward_part({.tokens_BT = tokens}).hidden, expected,
                            "embedded");
}

}  // namespace
}  // namespace trireme::model
