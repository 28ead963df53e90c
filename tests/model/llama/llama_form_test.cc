#include "trireme/model/llama/llama_form.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"
#include "trireme/model/family/model_config.h"

namespace trireme::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

HuggingFaceForm form_of(const ModelConfig& config) {
  ModelConfig whole = config;
  whole.layers = 2;
  whole.vocab_size = 11;
  validate(whole);
  return llama_form(make_plan(whole));
}

TEST(LlamaForm, IsTheClassThatComputesTheSame) {
  const ExpertConfig sparse{.experts = 4};
  EXPECT_EQ(form_of({}).kind->architecture, "LlamaForCausalLM");
  EXPECT_EQ(form_of({.attention = {.qk_norm = true}}).kind->architecture, "Qwen3ForCausalLM");
  for (const ModelConfig& config :
       {ModelConfig{.embedding_scale = 2}, ModelConfig{.residual_scale = 2},
        ModelConfig{.logits_divisor = 2}, ModelConfig{.attention = {.query_scalar = 2}}}) {
    EXPECT_EQ(form_of(config).kind->architecture, "GraniteForCausalLM");
  }
  EXPECT_EQ(form_of({.sparse = sparse}).kind->architecture, "MixtralForCausalLM");
  EXPECT_EQ(form_of({.attention = {.qk_norm = true}, .sparse = sparse}).kind->architecture,
            "Qwen3MoeForCausalLM");
  EXPECT_EQ(
      form_of(
          {.attention = {.kv_lora_rank = 8},
           .sparse = {.experts = 4, .shared_experts = 1, .router_score = RouterScore::kSigmoid}})
          .kind->architecture,
      "DeepseekV3ForCausalLM");
}

// Every parameter once, and an expert's part of a parameter of all under a name of its own.
TEST(LlamaForm, HasATensorForEachExpert) {
  const HuggingFaceForm form = form_of({.attention = {.qk_norm = true}, .sparse = {.experts = 3}});
  int64_t slices = 0;
  for (const HuggingFaceTensor& tensor : form.tensors) slices += tensor.slice >= 0 ? 1 : 0;
  EXPECT_EQ(slices, 2 * 3 * 3);
  EXPECT_TRUE(std::ranges::any_of(form.tensors, [](const HuggingFaceTensor& tensor) {
    return tensor.name == "model.layers.1.mlp.experts.2.down_proj.weight" && tensor.slice == 2 &&
           tensor.parts == std::vector<std::string>{"model.layers.1.mlp.experts.down_proj"};
  }));
}

TEST(LlamaForm, NamesTheKeyForWhichTransformersHasNoClass) {
  const auto refusal = [](const ModelConfig& config) {
    return harness::message_of<ConfigError>([&] { form_of(config); });
  };
  EXPECT_THAT(refusal({.sparse = {.experts = 4, .shared_experts = 1}}),
              HasSubstr("model.shared_experts"));
  EXPECT_THAT(refusal({.sparse = {.experts = 4, .router_bias_rate = 0.1}}),
              HasSubstr("model.router_bias_rate"));
  EXPECT_THAT(refusal({.sparse = {.experts = 4, .expert_interval = 2}}),
              HasSubstr("model.expert_interval"));
  EXPECT_THAT(refusal({.attention = {.qk_norm = true},
                       .sparse = {.experts = 4, .router_score = RouterScore::kSigmoid}}),
              HasSubstr("model.router_score"));
  EXPECT_THAT(refusal({.attention = {.kv_lora_rank = 8}}), HasSubstr("model.experts"));
  EXPECT_THAT(refusal({.residual_scale = 2, .sparse = {.experts = 4}}),
              HasSubstr("model.residual_scale (2)"));
  EXPECT_THAT(refusal({.attention = {.query_scalar = 2}, .sparse = {.experts = 4}}),
              HasSubstr("model.query_scalar (2)"));
  EXPECT_THAT(refusal({.residual_scale = 2, .attention = {.window = 2}}),
              HasSubstr("model.window is 2"));
  EXPECT_THAT(refusal({.residual_scale = 2, .attention = {.qk_norm = true}}),
              HasSubstr("Granite has no model.qk_norm"));
}

TEST(LlamaForm, SharedExpertsWithAGateAreOneExpertOfQwen2Moe) {
  const ExpertConfig gated{.experts = 2, .shared_experts = 2, .shared_gate = true};
  const HuggingFaceForm form = form_of({.sparse = gated});
  EXPECT_EQ(form.kind->architecture, "Qwen2MoeForCausalLM");
  std::vector<std::string> names;
  for (const HuggingFaceTensor& tensor : form.tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, testing::IsSupersetOf({"model.layers.0.mlp.gate.weight",
                                            "model.layers.0.mlp.experts.1.up_proj.weight",
                                            "model.layers.0.mlp.shared_expert.down_proj.weight",
                                            "model.layers.0.mlp.shared_expert_gate.weight"}));
  const auto refusal = [](const ModelConfig& config) {
    return harness::message_of<ConfigError>([&] { form_of(config); });
  };
  EXPECT_THAT(refusal({.attention = {.qk_norm = true}, .sparse = gated}),
              HasSubstr("Qwen2-MoE has no model.qk_norm"));
  EXPECT_THAT(refusal({.attention = {.attention_bias = true, .attention_output_bias = true},
                       .sparse = gated}),
              HasSubstr("those of queries, keys and values"));
  ExpertConfig sigmoid = gated;
  sigmoid.router_score = RouterScore::kSigmoid;
  EXPECT_THAT(refusal({.sparse = sigmoid}), HasSubstr("model.router_score"));
}

TEST(LlamaForm, NormsOnBothSidesOfABranchAreThoseOfGlm4) {
  const ModelConfig glm4{.branch_norms = BranchNorms::kBoth, .rope = {.rotary_share = 0.5}};
  const HuggingFaceForm form = form_of(glm4);
  EXPECT_EQ(form.kind->architecture, "Glm4ForCausalLM");
  const auto parts_of = [&](const std::string& name) {
    const auto found =
        std::ranges::find(form.tensors, "model.layers.0." + name, &HuggingFaceTensor::name);
    return found == form.tensors.end() ? std::vector<std::string>() : found->parts;
  };
  const std::string block = "model.layers.0.";
  EXPECT_THAT(parts_of("post_self_attn_layernorm.weight"),
              ElementsAre(block + "post_attention_layernorm.weight"));
  EXPECT_THAT(parts_of("post_attention_layernorm.weight"),
              ElementsAre(block + "pre_feedforward_layernorm.weight"));
  EXPECT_THAT(parts_of("post_mlp_layernorm.weight"),
              ElementsAre(block + "post_feedforward_layernorm.weight"));
  EXPECT_THAT(parts_of("mlp.gate_up_proj.weight"),
              ElementsAre(block + "mlp.gate_proj.weight", block + "mlp.up_proj.weight"));
  EXPECT_THAT(parts_of("self_attn.q_proj.weight"), ElementsAre(block + "self_attn.q_proj.weight"));
  ModelConfig other = glm4;
  other.attention.qk_norm = true;
  EXPECT_THAT(harness::message_of<ConfigError>([&] { form_of(other); }),
              HasSubstr("GLM-4 has no model.qk_norm"));
}

TEST(LlamaForm, NamesTheNormsForWhichTransformersHasNoClass) {
  const auto refusal = [](const ModelConfig& config) {
    return harness::message_of<ConfigError>([&] { form_of(config); });
  };
  const AttentionConfig over_all{.qk_norm = true, .qk_norm_over = QkNormOver::kAll};
  ModelConfig olmo2{.branch_norms = BranchNorms::kAfter, .attention = over_all};
  EXPECT_EQ(form_of(olmo2).kind->architecture, "Olmo2ForCausalLM");
  EXPECT_THAT(refusal({.branch_norms = BranchNorms::kAfter}), HasSubstr("model.qk_norm_over"));
  EXPECT_THAT(refusal({.attention = over_all}),
              HasSubstr("Qwen3 never norms the queries and keys of all heads"));
  olmo2.sparse.experts = 4;
  EXPECT_THAT(refusal(olmo2), HasSubstr("Qwen3-MoE has no model.branch_norms \"after\""));
  olmo2.sparse.experts = 0;
  olmo2.attention.window = 2;
  EXPECT_EQ(form_of(olmo2).kind->architecture, "Olmo3ForCausalLM");
  olmo2.rope.rope_scaling = RopeScaling::kLinear;
  EXPECT_THAT(refusal(olmo2), HasSubstr("OLMo 3 scales no layer with a window"));
  olmo2.rope.rope_scaling = RopeScaling::kNone;
  olmo2.attention.window = 0;
  olmo2.attention.attention_bias = true;
  EXPECT_THAT(refusal(olmo2), HasSubstr("model.attention_bias"));
  EXPECT_THAT(
      refusal({.residual_scale = 2, .branch_norms = BranchNorms::kAfter, .attention = over_all}),
      HasSubstr("OLMo 2 has neither model.embedding_scale"));
}

TEST(LlamaForm, HasTheNamesOfTorchtitanForLlamaItself) {
  ModelConfig config{.width = 16, .heads = 2, .kv_heads = 1, .ffn_width = 24};
  const auto tensors_of = [](ModelConfig whole) {
    whole.layers = 12;
    whole.vocab_size = 11;
    return llama_torchtitan_tensors(make_plan(whole));
  };
  const std::vector<HuggingFaceTensor> tensors = tensors_of(config);
  EXPECT_EQ(tensors.size(), 3 + 12 * 9);
  const auto find = [&](const std::string& name) {
    const auto found = std::ranges::find(tensors, name, &HuggingFaceTensor::name);
    EXPECT_NE(found, tensors.end()) << name;
    return found == tensors.end() ? HuggingFaceTensor() : *found;
  };
  EXPECT_THAT(find("model.tok_embeddings.weight").parts, ElementsAre("model.embed_tokens.weight"));
  EXPECT_THAT(find("model.output.weight").parts, ElementsAre("lm_head.weight"));
  EXPECT_THAT(find("model.layers.11.feed_forward.w3.weight").parts,
              ElementsAre("model.layers.11.mlp.up_proj.weight"));
  EXPECT_THAT(find("model.layers.11.ffn_norm.weight").parts,
              ElementsAre("model.layers.11.post_attention_layernorm.weight"));
  for (const char* name : {"wq", "wk"}) {
    const HuggingFaceTensor tensor = find(concat("model.layers.0.attention.", name, ".weight"));
    EXPECT_EQ(tensor.head_rows, 8) << name;
    EXPECT_EQ(tensor.rotary_rows, 8) << name;
  }
  EXPECT_EQ(find("model.layers.0.attention.wv.weight").rotary_rows, 0);
  config.sparse.experts = 4;
  EXPECT_THAT(tensors_of(config), IsEmpty());
  config.sparse.experts = 0;
  config.attention.qk_norm = true;
  EXPECT_THAT(tensors_of(config), IsEmpty());
}

}  // namespace
}  // namespace trireme::model
