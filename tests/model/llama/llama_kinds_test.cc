#include "trireme/model/llama/llama_form.h"

#include <algorithm>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"
#include "trireme/model/hugging_face.h"

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

ModelConfig granite() {
  ModelConfig config = dense({.query_scalar = 50});
  config.embedding_scale = 12.5;
  config.residual_scale = 0.22;
  config.logits_divisor = 6;
  return config;
}

ModelConfig olmo2() {
  ModelConfig config = dense({.qk_norm = true, .qk_norm_over = QkNormOver::kAll});
  config.branch_norms = BranchNorms::kAfter;
  return config;
}

ModelConfig olmo3() {
  ModelConfig config = olmo2();
  config.attention.window = 5;
  config.attention.window_layers = "wf";
  config.rope.rope_local_base = 300;
  config.rope.rope_scaling = RopeScaling::kLinear;
  config.rope.rope_factor = 2;
  return config;
}

ModelConfig qwen2_moe() {
  return sparse({.attention_bias = true}, {.experts = 5,
                                           .experts_per_token = 3,
                                           .expert_width = 14,
                                           .shared_experts = 3,
                                           .shared_gate = true,
                                           .dense_layers = 1,
                                           .expert_interval = 2,
                                           .router_normalise = false,
                                           .balance_loss = 0.2});
}

ModelConfig glm4() {
  ModelConfig config = dense({.attention_bias = true, .head_width = 10});
  config.branch_norms = BranchNorms::kBoth;
  config.rope.rotary_share = 0.6;
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
    deepseek(),
    granite(),
    olmo2(),
    olmo3(),
    qwen2_moe(),
    glm4(),
    sparse({.window = 5, .window_layers = "wf"}, {.experts = 5,
                                                  .experts_per_token = 3,
                                                  .shared_experts = 1,
                                                  .shared_gate = true,
                                                  .balance_loss = 0.2})};

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
    EXPECT_EQ(read.config.attention.qk_norm_over, config.attention.qk_norm_over);
    EXPECT_EQ(read.config.branch_norms, config.branch_norms);
    EXPECT_EQ(num_parameters(read.config), num_parameters(config));
    EXPECT_FALSE(read.has_adjacent_pairs);
    // What is written says every key, so equal texts are equal models.
    EXPECT_EQ(text_of(read.config), text);
  }
  EXPECT_EQ(architectures.size(), 11u);
}

TEST(LlamaKinds, RefuseWhatTheModelDoesNotCompute) {
  EXPECT_THAT(refusal(dense(), "hidden_act", "gelu"),
              AllOf(HasSubstr("hidden_act is \"gelu\""), HasSubstr("expected \"silu\"")));
  EXPECT_THAT(refusal(dense({.qk_norm = true}), "attention_bias", true),
              HasSubstr("expected false"));
  EXPECT_THAT(refusal(dense(), "quantization_config", {{"quant_method", "fp8"}}),
              AllOf(HasSubstr("quantization_config"), HasSubstr("not quantised")));
  EXPECT_THAT(refusal(dense(), "mlp_bias", true), HasSubstr("expected false"));
  EXPECT_THAT(refusal(dense(), "rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}),
              HasSubstr("no rope_scaling.low_freq_factor"));
  EXPECT_THAT(refusal(dense(), "rope_parameters", {{"rope_type", "spiral"}, {"rope_theta", 5e5}}),
              AllOf(HasSubstr("spiral"), HasSubstr("llama3")));
  EXPECT_THAT(refusal(dense(), "partial_rotary_factor", 0.5), HasSubstr("expected 1.0"));
  EXPECT_THAT(refusal(dense(), "rope_scaling.factor", 2), HasSubstr("an object rope_scaling"));
  EXPECT_THAT(refusal(deepseek(), "rope_scaling",
                      {{"rope_type", "linear"}, {"factor", 2}, {"mscale_all_dim", 1}}),
              HasSubstr("rope_type \"yarn\""));
  EXPECT_THAT(refusal(dense(), "final_logit_softcapping", 30), HasSubstr("does not know"));
  EXPECT_THAT(refusal(dense({.qk_norm = true}), "layer_types", {"sliding_attention"}),
              HasSubstr("full_attention"));
  EXPECT_THAT(refusal(kConfigs[5], "sliding_window", 0), HasSubstr("sliding_window is 0"));
  EXPECT_THAT(refusal(kConfigs[6], "mlp_only_layers", {2}), HasSubstr("expected [0]"));
  EXPECT_THAT(refusal(deepseek(), "scoring_func", "softmax"), HasSubstr("sigmoid"));
}

// 0.125 is 1 / sqrt(64), whatever the head width is, and 1 / sqrt(H) is our 0.
TEST(LlamaKinds, GranitesFactorOfScoresIsAWholeNumber) {
  const auto scalar = [](const json& factor) {
    json object = json::parse(text_of(granite()));
    object.erase("attention_multiplier");
    if (!factor.is_null()) object["attention_multiplier"] = factor;
    return parse_hugging_face_config(object.dump(), "config.json").config.attention.query_scalar;
  };
  EXPECT_EQ(scalar(0.125), 64);
  EXPECT_EQ(scalar(0.0078125), 16384);
  EXPECT_EQ(scalar(0.5), 0);
  EXPECT_EQ(scalar(nullptr), 1);
  EXPECT_THAT(refusal(granite(), "attention_multiplier", 0.3),
              HasSubstr("square root of a whole number"));
  EXPECT_THAT(refusal(granite(), "attention_multiplier", 0), HasSubstr("attention_multiplier"));
  EXPECT_THAT(refusal(granite(), "residual_multiplier", -1), HasSubstr("residual_multiplier"));
}

TEST(LlamaKinds, Olmo3HasTwoKindsOfPositionsInOneObject) {
  const json object = json::parse(text_of(olmo3()));
  EXPECT_EQ(object.at("model_type"), "olmo3");
  EXPECT_FALSE(object.contains("rope_theta") || object.contains("rope_scaling"));
  const json& both = object.at("rope_parameters");
  EXPECT_EQ(both.at("sliding_attention"),
            json({{"rope_type", "default"}, {"rope_theta", olmo3().rope.rope_local_base}}));
  EXPECT_EQ(both.at("full_attention").at("rope_theta"), olmo3().rope_base);
  EXPECT_EQ(both.at("full_attention").at("factor"), 2);
  // As older files have them.
  json older = object;
  older.erase("rope_parameters");
  older.erase("layer_types");
  older["rope_theta"] = 500000;
  older["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4}};
  const ModelConfig read = parse_hugging_face_config(older.dump(), "config.json").config;
  EXPECT_EQ(read.rope_base, 5e5);
  EXPECT_EQ(read.rope.rope_local_base, 5e5);
  EXPECT_EQ(read.rope.rope_factor, 4);
  json scaled = both;
  scaled["sliding_attention"]["factor"] = 2;
  EXPECT_THAT(refusal(olmo3(), "rope_parameters", scaled), HasSubstr("plain positions"));
  EXPECT_THAT(refusal(olmo3(), "clip_qkv", 8), HasSubstr("clip_qkv"));
}

TEST(LlamaKinds, Olmo2HasBiasesOfAllProjectionsOrOfNone) {
  ModelConfig config = olmo2();
  config.attention.attention_bias = config.attention.attention_output_bias = true;
  const HuggingFaceModel read = parse_hugging_face_config(text_of(config), "config.json");
  EXPECT_TRUE(read.config.attention.attention_bias);
  EXPECT_TRUE(read.config.attention.attention_output_bias);
  EXPECT_EQ(text_of(read.config), text_of(config));
  EXPECT_THAT(refusal(olmo2(), "hidden_act", "gelu"), HasSubstr("expected \"silu\""));
  EXPECT_THAT(refusal(olmo2(), "clip_qkv", 8), HasSubstr("clip_qkv"));
  EXPECT_THAT(refusal(olmo2(), "sliding_window", 8), HasSubstr("sliding_window"));
  EXPECT_THAT(refusal(olmo2(), "layer_types", {"sliding_attention"}), HasSubstr("layer_types"));
}

TEST(LlamaKinds, Glm4AssumesHalfOfEachHead) {
  json object = json::parse(text_of(glm4()));
  for (const char* key : {"partial_rotary_factor", "attention_bias", "head_dim"}) object.erase(key);
  const ModelConfig read = parse_hugging_face_config(object.dump(), "config.json").config;
  EXPECT_EQ(read.rope.rotary_share, 0.5);
  EXPECT_EQ(read.head_width(), 128);
  EXPECT_TRUE(read.attention.attention_bias);
  EXPECT_FALSE(read.attention.attention_output_bias);
  EXPECT_THAT(refusal(glm4(), "partial_rotary_factor", 1.5), HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(refusal(glm4(), "hidden_act", "gelu"), HasSubstr("expected \"silu\""));
  EXPECT_THAT(refusal(glm4(), "sliding_window", 8), HasSubstr("sliding_window"));
}

TEST(LlamaKinds, Qwen2MoeRefusesTheExpertsThatOursAreNot) {
  EXPECT_THAT(refusal(qwen2_moe(), "shared_expert_intermediate_size", 43),
              AllOf(HasSubstr("shared_expert_intermediate_size is 43"),
                    HasSubstr("a multiple of the experts' width, 14")));
  EXPECT_THAT(refusal(qwen2_moe(), "mlp_only_layers", {1}), HasSubstr("mlp_only_layers"));
  EXPECT_THAT(refusal(qwen2_moe(), "decoder_sparse_step", 0), HasSubstr("decoder_sparse_step"));
  EXPECT_THAT(refusal(qwen2_moe(), "hidden_act", "gelu"), HasSubstr("expected \"silu\""));
  EXPECT_THAT(refusal(qwen2_moe(), "layer_types", {"sliding_attention"}), HasSubstr("layer_types"));
}

HuggingFaceModel read_with(const ModelConfig& config, const json& keys) {
  json object = json::parse(text_of(config));
  object.update(keys);
  return parse_hugging_face_config(object.dump(), "config.json");
}

TEST(LlamaKinds, TakeTheWindowOfTheLayersThatHaveOne) {
  const json types = {"full_attention", "full_attention", "sliding_attention"};
  const json none = {"full_attention", "full_attention", "full_attention"};
  const auto window = [](const ModelConfig& config, const json& keys) {
    const AttentionConfig attention = read_with(config, keys).config.attention;
    return std::pair(attention.window, attention.window_layers);
  };
  const json on = {{"use_sliding_window", true}, {"sliding_window", 4}};
  const auto plus = [&](const json& keys) {
    json all = on;
    all.update(keys);
    return all;
  };
  const std::pair<int64_t, std::string> off(0, "w"), last(4, "ffw"), all(4, "w");
  for (const ModelConfig& qwen : {dense({.attention_bias = true}), dense({.qk_norm = true})}) {
    EXPECT_EQ(window(qwen, on), off);  // from layer 28 on
    EXPECT_EQ(window(qwen, plus({{"max_window_layers", 3}})), off);
    EXPECT_EQ(window(qwen, plus({{"max_window_layers", 2}})), last);
    EXPECT_EQ(window(qwen, plus({{"max_window_layers", 0}})), all);
    // As long as a sequence: a run may have longer ones.
    EXPECT_EQ(window(qwen, plus({{"max_window_layers", 2}, {"sliding_window", 17}})),
              std::pair(int64_t{17}, std::string("ffw")));
    EXPECT_EQ(window(qwen, plus({{"max_window_layers", 2}, {"sliding_window", nullptr}})), off);
    EXPECT_EQ(window(qwen, {{"sliding_window", 4}, {"max_window_layers", 0}}), off);
    // The list comes before the number.
    EXPECT_EQ(window(qwen, plus({{"layer_types", types}, {"max_window_layers", 3}})), last);
    EXPECT_EQ(window(qwen, plus({{"layer_types", none}, {"max_window_layers", 0}})), off);
    const auto message = harness::message_of<ConfigError>([&] {
      read_with(qwen, {{"layer_types", types}});
    });
    EXPECT_THAT(message, HasSubstr("full_attention"));
    const json few = {{"layer_types", {"full_attention"}}};
    EXPECT_THAT(harness::message_of<ConfigError>([&] { read_with(qwen, few); }),
                HasSubstr("one for each of 3 layers"));
    // And as written.
    const ModelConfig read = read_with(qwen, plus({{"max_window_layers", 2}})).config;
    EXPECT_EQ(text_of(read_with(read, json::object()).config), text_of(read));
  }
  // With experts it is on every layer.
  EXPECT_EQ(window(kConfigs[6], plus({{"max_window_layers", 3}})), all);
  EXPECT_EQ(window(kConfigs[6], {{"sliding_window", 4}}), off);
  EXPECT_EQ(window(kConfigs[5], {{"sliding_window", 4}}), all);
  EXPECT_EQ(window(kConfigs[5], {{"sliding_window", 17}}),
            std::pair(int64_t{17}, std::string("w")));
  // A window that is off is no news.
  const json unused = {
      {"use_sliding_window", false}, {"sliding_window", 4096}, {"max_window_layers", 2}};
  EXPECT_TRUE(read_with(dense({.qk_norm = true}), unused).notes.empty());
  EXPECT_THAT(refusal(dense(), "sliding_window", 4), HasSubstr("expected null"));
}

TEST(LlamaKinds, AWindowDecidesTheClass) {
  const auto architecture = [](const AttentionConfig& attention) {
    return hugging_face_architecture(dense(attention));
  };
  EXPECT_EQ(architecture({.window = 4}), "MistralForCausalLM");
  EXPECT_EQ(architecture({.attention_bias = true, .window = 4, .window_layers = "wf"}),
            "Qwen2ForCausalLM");
  EXPECT_THAT(
      harness::message_of<ConfigError>([&] { architecture({.window = 4, .window_layers = "wf"}); }),
      HasSubstr("model.window_layers"));
}

TEST(LlamaKinds, TakeAsManyKeysAndValuesAsTransformersWithoutTheKey) {
  const auto kv_heads = [](const ModelConfig& config, const char* type, bool is_null) {
    json object = json::parse(text_of(config));
    object["model_type"] = type;
    object["sliding_window"] = nullptr;
    object["num_attention_heads"] = 64;
    object["hidden_size"] = 64;
    object["head_dim"] = 1;
    object.erase("num_key_value_heads");
    if (is_null) object["num_key_value_heads"] = nullptr;
    return parse_hugging_face_config(object.dump(), "config.json").config.kv_heads;
  };
  EXPECT_EQ(kv_heads(dense(), "llama", false), 64);
  EXPECT_EQ(kv_heads(dense(), "mistral", false), 8);
  EXPECT_EQ(kv_heads(dense({.attention_bias = true}), "qwen2", false), 32);
  EXPECT_EQ(kv_heads(dense({.qk_norm = true}), "qwen3", false), 32);
  EXPECT_EQ(kv_heads(dense({.attention_bias = true}), "qwen2", true), 64);
}

TEST(LlamaKinds, HaveTheBalanceLossThatTransformersTrainsWith) {
  for (const ModelConfig& config : {kConfigs[5], kConfigs[6]}) {
    const auto k = static_cast<double>(config.sparse.experts_per_token);
    const auto L = static_cast<double>(num_sparse_blocks(config));
    const HuggingFaceModel off = read_with(config, {{"output_router_logits", false}});
    EXPECT_EQ(off.config.sparse.balance_loss, 0);
    EXPECT_THAT(off.notes, testing::ElementsAre(HasSubstr("output_router_logits is false")));
    const HuggingFaceModel on =
        read_with(config, {{"output_router_logits", true}, {"router_aux_loss_coef", 0.02}});
    EXPECT_DOUBLE_EQ(on.config.sparse.balance_loss, 0.02 * k / L);
    EXPECT_THAT(on.notes, testing::ElementsAre(HasSubstr("router_aux_loss_coef 0.02")));
    // And back.
    const json again = json::parse(text_of(on.config));
    EXPECT_TRUE(again["output_router_logits"]);
    EXPECT_DOUBLE_EQ(again["router_aux_loss_coef"].get<double>(), 0.02);
    EXPECT_FALSE(json::parse(text_of(off.config))["output_router_logits"]);
  }
}

// Its routers' biases are part of the model, and transformers does not train them.
TEST(LlamaKinds, DeepSeekKeepsItsBiasesAndHasNoBalanceLoss) {
  const ModelConfig read = read_with(deepseek(), json::object()).config;
  EXPECT_EQ(read.sparse.balance_loss, 0);
  EXPECT_EQ(read.sparse.router_bias_rate, 0);
  EXPECT_TRUE(read.sparse.router_bias);
  validate(read);
  const auto names = hugging_face_tensors(read);
  EXPECT_TRUE(std::ranges::any_of(names, [](const HuggingFaceTensor& tensor) {
    return tensor.name == "model.layers.2.mlp.gate.e_score_correction_bias";
  }));
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
