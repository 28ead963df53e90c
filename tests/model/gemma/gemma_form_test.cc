#include "trireme/model/gemma/gemma_form.h"

#include <functional>
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

constexpr int64_t kLayers = 7;

// Every size another one, and nothing a default.
ModelConfig gemma2() {
  return {.family = "gemma",
          .layers = kLayers,
          .width = 24,
          .heads = 6,
          .kv_heads = 3,
          .ffn_width = 40,
          .sequence_length = 17,
          .vocab_size = 29,
          .norm_epsilon = 2e-6,
          .rope_base = 5e5,
          .tied_embedding = true,
          .logits_softcap = 20,
          .attention = {.head_width = 10,
                        .window = 5,
                        .window_layers = "wwfwfff",
                        .query_scalar = 12,
                        .attention_softcap = 40}};
}

ModelConfig gemma3() {
  ModelConfig config = gemma2();
  config.attention.qk_norm = true;
  config.attention.attention_softcap = 0;
  config.rope = {.rope_scaling = RopeScaling::kLinear, .rope_factor = 8, .rope_local_base = 2e4};
  return config;
}

std::string text_of(const ModelConfig& config) {
  return hugging_face_config(config, at::kFloat, std::nullopt);
}

// The config's file without the keys that are null in `changes`, and with the others.
json changed(const ModelConfig& config, const json& changes) {
  json object = json::parse(text_of(config));
  for (const auto& [key, value] : changes.items()) {
    if (value == "missing") {
      object.erase(key);
    } else {
      object[key] = value;
    }
  }
  return object;
}

HuggingFaceModel read_with(const ModelConfig& config, const json& changes) {
  return parse_hugging_face_config(changed(config, changes).dump(), "config.json");
}

std::string refusal(const ModelConfig& config, const json& changes) {
  return harness::message_of<ConfigError>([&] { read_with(config, changes); });
}

// Of an export of the config, changed by `change`.
std::string no_form(ModelConfig config, const std::function<void(ModelConfig&)>& change) {
  change(config);
  validate(config);
  return harness::message_of<ConfigError>([&] { text_of(config); });
}

void expect_same_when_read(const ModelConfig& config, const char* architecture) {
  validate(config);
  const std::string text = text_of(config);
  SCOPED_TRACE(text);
  const HuggingFaceModel read = parse_hugging_face_config(text, "config.json");
  EXPECT_EQ(read.kind->architecture, architecture);
  EXPECT_EQ(num_parameters(read.config), num_parameters(config));
  // What is written says every key, so equal texts are equal models.
  EXPECT_EQ(text_of(read.config), text);
  validate(read.config);
}

TEST(GemmaForm, IsReadAsTheModelThatWroteIt) {
  expect_same_when_read(gemma2(), "Gemma2ForCausalLM");
  ModelConfig plain = gemma2();
  plain.tied_embedding = false;
  plain.logits_softcap = 0;
  plain.attention = {};
  expect_same_when_read(plain, "Gemma2ForCausalLM");
  expect_same_when_read(gemma3(), "Gemma3ForCausalLM");
  plain.attention.qk_norm = true;
  expect_same_when_read(plain, "Gemma3ForCausalLM");
}

TEST(GemmaForm, TensorsHaveTheNamesOfTheParameters) {
  const ModelPlan plan = make_plan(gemma2());
  const HuggingFaceForm form = gemma_form(plan);
  ASSERT_EQ(form.tensors.size(), plan.parameters().size());
  for (size_t i = 0; i < form.tensors.size(); ++i) {
    EXPECT_EQ(form.tensors[i].name, plan.parameters()[i].name);
  }
}

// Each as transformers 5.23 assumes it.
TEST(GemmaForm, KeysThatAreMissingHaveTheValuesOfTheClass) {
  const ModelConfig read = read_with(gemma2(), {{"head_dim", "missing"},
                                                {"query_pre_attn_scalar", "missing"},
                                                {"num_key_value_heads", "missing"},
                                                {"num_attention_heads", 8},
                                                {"attn_logit_softcapping", "missing"},
                                                {"final_logit_softcapping", "missing"},
                                                {"sliding_window", "missing"},
                                                {"layer_types", "missing"},
                                                {"rope_theta", "missing"},
                                                {"rms_norm_eps", "missing"},
                                                {"tie_word_embeddings", "missing"}})
                               .config;
  EXPECT_EQ(read.head_width(), 256);
  EXPECT_EQ(read.attention.query_scalar, 0);  // the head width
  EXPECT_EQ(read.kv_heads, 4);
  EXPECT_EQ(read.attention.attention_softcap, 50);
  EXPECT_EQ(read.logits_softcap, 30);
  EXPECT_EQ(read.attention.window, 4096);
  EXPECT_EQ(read.attention.window_layers, "wfwfwfw");
  EXPECT_EQ(read.rope_base, 1e4);
  EXPECT_EQ(read.norm_epsilon, 1e-6);
  EXPECT_TRUE(read.tied_embedding);
}

TEST(GemmaForm, KeysThatAreMissingInGemma3HaveTheValuesOfTheClass) {
  const ModelConfig read = read_with(gemma3(), {{"layer_types", "missing"},
                                                {"final_logit_softcapping", "missing"},
                                                {"rope_local_base_freq", "missing"},
                                                {"rope_scaling", "missing"},
                                                {"rope_theta", "missing"}})
                               .config;
  EXPECT_EQ(read.attention.window_layers, "wwwwwfw");
  EXPECT_EQ(read.logits_softcap, 0);
  EXPECT_EQ(read.rope_base, 1e6);
  EXPECT_EQ(read.rope.rope_local_base, 1e4);
  EXPECT_EQ(read.rope.rope_scaling, RopeScaling::kNone);
}

TEST(GemmaForm, APatternSaysWhichLayersSlideAndTheirTypesComeBefore) {
  const auto layers = [](const json& changes) {
    return read_with(gemma3(), changes).config.attention.window_layers;
  };
  EXPECT_EQ(layers({{"layer_types", "missing"}, {"sliding_window_pattern", 3}}), "wwfwwfw");
  EXPECT_EQ(layers({{"sliding_window_pattern", 3}}), "wwfwfff");
  // A note of transformers, which it does not read.
  EXPECT_EQ(layers({{"layer_types", "missing"}, {"_sliding_window_pattern", 3}}), "wwwwwfw");
  EXPECT_THAT(refusal(gemma3(), {{"layer_types", "missing"}, {"sliding_window_pattern", 0}}),
              HasSubstr("sliding_window_pattern is 0"));
}

// transformers 5 writes them so.
TEST(GemmaForm, PositionsOfEachKindOfLayersAreRead) {
  const json full = {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 5e5}};
  const json local = {{"rope_type", "default"}, {"rope_theta", 2e4}};
  const auto newer = [](const json& full_attention, const json& sliding_attention) -> json {
    return {{"rope_scaling", "missing"},
            {"rope_theta", "missing"},
            {"rope_local_base_freq", "missing"},
            {"rope_parameters",
             {{"full_attention", full_attention}, {"sliding_attention", sliding_attention}}}};
  };
  EXPECT_EQ(text_of(read_with(gemma3(), newer(full, local)).config), text_of(gemma3()));
  const ModelConfig plain = read_with(gemma3(), newer(nullptr, nullptr)).config;
  EXPECT_EQ(plain.rope_base, 1e6);
  EXPECT_EQ(plain.rope.rope_local_base, 1e4);
  EXPECT_EQ(plain.rope.rope_scaling, RopeScaling::kNone);

  json beside = newer(full, local);
  beside["rope_local_base_freq"] = 7;
  const HuggingFaceModel twice = read_with(gemma3(), beside);
  EXPECT_EQ(twice.config.rope.rope_local_base, 2e4);
  EXPECT_THAT(twice.notes, testing::Contains(HasSubstr("rope_local_base_freq")));
  beside["rope_scaling"] = {{"factor", 4.0}};
  EXPECT_EQ(read_with(gemma3(), beside).config.rope.rope_factor, 4);

  EXPECT_THAT(refusal(gemma3(), newer(full, full)), HasSubstr("rope_parameters.sliding_attention"));
  EXPECT_THAT(refusal(gemma3(), newer(full, 3)), HasSubstr("expected an object"));
  EXPECT_THAT(refusal(gemma3(), {{"rope_parameters", local}}), HasSubstr("full_attention"));
  EXPECT_THAT(refusal(gemma3(), {{"rope_parameters", {{"full_attention", {{"ramp", 3}}}}}}),
              HasSubstr("ramp"));
  EXPECT_THAT(refusal(gemma3(), {{"rope_local_base_freq", 1}}), HasSubstr("rope_local_base_freq"));
  EXPECT_THAT(refusal(gemma2(), {{"rope_local_base_freq", 1e4}}), HasSubstr("does not know"));
}

TEST(GemmaForm, ACapThatGemma3DoesNotComputeIsANote) {
  const HuggingFaceModel read = read_with(gemma3(), {{"attn_logit_softcapping", 50.0}});
  EXPECT_EQ(read.config.attention.attention_softcap, 0);
  EXPECT_THAT(read.notes, testing::Contains(HasSubstr("attn_logit_softcapping is 50.0")));
}

TEST(GemmaForm, NullIsNoCap) {
  const ModelConfig read = read_with(gemma2(), {{"attn_logit_softcapping", nullptr},
                                                {"final_logit_softcapping", nullptr},
                                                {"use_bidirectional_attention", nullptr}})
                               .config;
  EXPECT_EQ(read.attention.attention_softcap, 0);
  EXPECT_EQ(read.logits_softcap, 0);
}

TEST(GemmaForm, RefusesWhatTheModelDoesNotCompute) {
  EXPECT_THAT(refusal(gemma2(), {{"hidden_activation", "gelu"}}),
              AllOf(HasSubstr("hidden_activation is \"gelu\""), HasSubstr("gelu_pytorch_tanh")));
  EXPECT_THAT(refusal(gemma2(), {{"use_bidirectional_attention", true}}),
              HasSubstr("expected false"));
  EXPECT_THAT(refusal(gemma2(), {{"attention_bias", true}}), HasSubstr("expected false"));
  EXPECT_THAT(refusal(gemma2(), {{"sliding_window", nullptr}}),
              HasSubstr("sliding_window is null"));
  EXPECT_THAT(refusal(gemma2(), {{"attn_logit_softcapping", 0}}),
              HasSubstr("attn_logit_softcapping is 0"));
  EXPECT_THAT(refusal(gemma2(), {{"layer_types", {"full_attention"}}}),
              HasSubstr("one for each of 7 layers"));
  EXPECT_THAT(refusal(gemma2(), {{"layer_types", json::array({"chunked_attention"})}}),
              HasSubstr("sliding_attention"));
  EXPECT_THAT(refusal(gemma2(), {{"query_pre_attn_scalar", 0}}),
              HasSubstr("query_pre_attn_scalar is 0"));
  EXPECT_THAT(refusal(gemma2(), {{"altup_num_inputs", 4}}), HasSubstr("does not know"));
  for (const ModelConfig& config : {gemma2(), gemma3()}) {
    EXPECT_THAT(refusal(config, {{"hidden_size", config.width + 1}}),
                HasSubstr("no multiple of model.heads"));
  }
}

TEST(GemmaForm, WhatNoClassComputesHasNoForm) {
  EXPECT_THAT(no_form(gemma2(), [](ModelConfig& c) { c.attention.attention_bias = true; }),
              HasSubstr("model.attention_bias"));
  EXPECT_THAT(no_form(gemma2(), [](ModelConfig& c) { c.rope.rotary_share = 0.4; }),
              HasSubstr("model.rotary_share"));
  EXPECT_THAT(no_form(gemma2(), [](ModelConfig& c) { c.width = 26; }),
              AllOf(HasSubstr("model.width"), HasSubstr("model.heads")));
  EXPECT_THAT(no_form(gemma2(), [](ModelConfig& c) { c.rope.rope_local_base = 3; }),
              HasSubstr("model.rope_local_base"));
  EXPECT_THAT(no_form(gemma3(), [](ModelConfig& c) { c.attention.attention_softcap = 3; }),
              HasSubstr("model.attention_softcap"));
  EXPECT_THAT(no_form(gemma3(), [](ModelConfig& c) { c.rope.rope_local_base = 0; }),
              HasSubstr("model.rope_scaling"));
}

// A llama with Gemma's scores trains here, and no class of transformers has it.
TEST(GemmaForm, OtherFamiliesWithItsKeysHaveNone) {
  ModelConfig llama = gemma2();
  llama.family = "llama";
  EXPECT_THAT(no_form(llama, [](ModelConfig&) {}), HasSubstr("model.attention_softcap (40)"));
  ModelConfig gpt2{.family = "gpt2", .vocab_size = 11, .logits_softcap = 3};
  EXPECT_THAT(harness::message_of<ConfigError>([&] { validate(gpt2); }),
              HasSubstr("model.logits_softcap 3"));
}

TEST(GemmaForm, SparseAndLatentModelsAreRefused) {
  const auto refused = [](const std::function<void(ModelConfig&)>& change) {
    ModelConfig config = gemma2();
    change(config);
    return harness::message_of<ConfigError>([&] { validate(config); });
  };
  EXPECT_THAT(refused([](ModelConfig& c) { c.sparse.experts = 4; }), HasSubstr("model.experts"));
  EXPECT_THAT(refused([](ModelConfig& c) {
                c.kv_heads = c.heads;
                c.attention = {.kv_lora_rank = 8};
              }),
              HasSubstr("model.kv_lora_rank"));
  EXPECT_THAT(refused([](ModelConfig& c) { c.separate_head = true; }),
              HasSubstr("model.separate_head"));
}

}  // namespace
}  // namespace trireme::model
