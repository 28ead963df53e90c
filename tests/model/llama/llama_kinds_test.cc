#include "trireme/model/llama/llama_kinds.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"
#include "trireme/model/hugging_face.h"
#include "trireme/model/hugging_face_reader.h"

namespace trireme::model {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// Every size another one, and nothing a default.
ModelConfig dense(AttentionConfig attention = {}) {
  return {.family = "llama",
          .layers = 3,
          .width = 24,
          .heads = 6,
          .kv_heads = 3,
          .ffn_width = 40,
          .sequence_length = 17,
          .vocab_size = 29,
          .norm_epsilon = 2e-6,
          .rope_base = 5e5,
          .tied_embedding = true,
          .attention = attention};
}

ModelConfig sparse(AttentionConfig attention, ExpertConfig experts, const char* family = "llama") {
  ModelConfig config = dense(attention);
  config.family = family;
  config.sparse = experts;
  return config;
}

ModelConfig deepseek() {
  ModelConfig config = sparse({.kv_lora_rank = 12,
                               .q_lora_rank = 20,
                               .qk_nope_width = 8,
                               .qk_rope_width = 4,
                               .v_head_width = 10},
                              {.experts = 8,
                               .experts_per_token = 3,
                               .expert_width = 14,
                               .shared_experts = 2,
                               .dense_layers = 1,
                               .router_score = RouterScore::kSigmoid,
                               .router_scale = 1.5,
                               .expert_groups = 4,
                               .groups_per_token = 2,
                               .router_bias_rate = 1e-3});
  config.kv_heads = config.heads;
  return config;
}

const ModelConfig kConfigs[] = {
    dense(),
    dense({.head_width = 10}),
    dense({.attention_bias = true}),
    dense({.qk_norm = true}),
    dense({.qk_norm = true, .head_width = 8}),
    sparse({}, {.experts = 5, .experts_per_token = 3, .balance_loss = 0.2}, "mixtral"),
    sparse({.qk_norm = true}, {.experts = 5,
                               .experts_per_token = 3,
                               .expert_width = 14,
                               .dense_layers = 1,
                               .expert_interval = 2,
                               .router_normalise = false,
                               .balance_loss = 0.2}),
    deepseek()};

std::string text_of(const ModelConfig& config) {
  return hugging_face_config(config, at::kFloat, std::nullopt);
}

// A refusal of the config with a key changed.
std::string refusal(const ModelConfig& config, const char* key, const json& value) {
  json object = json::parse(text_of(config));
  object[key] = value;
  return harness::message_of<ConfigError>(
      [&] { parse_hugging_face_config(object.dump(), "config.json"); });
}

TEST(LlamaKinds, AreReadAsTheModelThatWroteThem) {
  std::set<std::string> architectures;
  for (const ModelConfig& config : kConfigs) {
    validate(config);
    const std::string text = text_of(config);
    SCOPED_TRACE(text);
    const HuggingFaceModel read = parse_hugging_face_config(text, "config.json");
    architectures.emplace(read.kind->architecture);
    EXPECT_EQ(read.kind->architecture, hugging_face_architecture(config));
    EXPECT_EQ(read.dtype, at::kFloat);
    EXPECT_EQ(read.config.family, config.family);
    EXPECT_EQ(read.config.head_width(), config.head_width());
    EXPECT_EQ(read.config.sparse.router_score, config.sparse.router_score);
    EXPECT_EQ(read.config.sparse.dense_layers, config.sparse.dense_layers);
    EXPECT_EQ(read.config.attention.qk_norm, config.attention.qk_norm);
    EXPECT_EQ(num_parameters(read.config), num_parameters(config));
    EXPECT_FALSE(read.has_adjacent_pairs);
    // What is written says every key, so equal texts are equal models.
    EXPECT_EQ(text_of(read.config), text);
  }
  EXPECT_EQ(architectures.size(), 6u);
}

TEST(LlamaKinds, RefuseWhatTheModelDoesNotCompute) {
  EXPECT_THAT(refusal(dense(), "hidden_act", "gelu"),
              AllOf(HasSubstr("hidden_act is \"gelu\""), HasSubstr("expected \"silu\"")));
  EXPECT_THAT(refusal(dense(), "attention_bias", true), HasSubstr("expected false"));
  EXPECT_THAT(refusal(dense(), "mlp_bias", true), HasSubstr("expected false"));
  EXPECT_THAT(refusal(dense(), "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}),
              AllOf(HasSubstr("rope_scaling is"), HasSubstr("llama3"), HasSubstr("expected null")));
  EXPECT_THAT(refusal(dense(), "rope_parameters", {{"rope_type", "yarn"}, {"rope_theta", 5e5}}),
              AllOf(HasSubstr("rope_scaling is"), HasSubstr("yarn")));
  EXPECT_THAT(refusal(dense(), "final_logit_softcapping", 30), HasSubstr("does not know"));
  EXPECT_THAT(refusal(dense({.attention_bias = true}), "use_sliding_window", true),
              HasSubstr("expected false"));
  EXPECT_THAT(refusal(dense({.qk_norm = true}), "layer_types", {"sliding_attention"}),
              HasSubstr("full_attention"));
  EXPECT_THAT(refusal(kConfigs[5], "sliding_window", 16), HasSubstr("at least"));
  EXPECT_EQ(refusal(kConfigs[5], "sliding_window", 17), "");
  EXPECT_THAT(refusal(kConfigs[6], "mlp_only_layers", {2}), HasSubstr("expected [0]"));
  EXPECT_THAT(refusal(deepseek(), "scoring_func", "softmax"), HasSubstr("sigmoid"));
}

TEST(LlamaKinds, DeepSeeksPairsAreAdjacentUnlessItSaysOtherwise) {
  json object = json::parse(text_of(deepseek()));
  object.erase("rope_interleave");
  EXPECT_TRUE(parse_hugging_face_config(object.dump(), "config.json").has_adjacent_pairs);
}

TEST(LlamaKinds, AMistralIsALlamaWithoutAWindow) {
  EXPECT_EQ(refusal(dense(), "model_type", "mistral").find("sliding_window"), std::string::npos);
  json object = json::parse(text_of(dense()));
  object["model_type"] = "mistral";
  object["sliding_window"] = nullptr;
  const auto read = parse_hugging_face_config(object.dump(), "config.json");
  EXPECT_EQ(text_of(read.config), text_of(dense()));
}

}  // namespace
}  // namespace trireme::model
