// The families that docs/guide/import.md lists, each with what makes it one, on the axes of its
// table: a step is that of one rank. layouts_test.cc has the parts of the models on every axis.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parity/layout_step.h"

namespace trireme::train {
namespace {

using FamilyLayouts = LayoutsTest;

struct FamilyKeys {
  const char* name;
  std::vector<Override> keys;
};

const std::vector<FamilyKeys>& families() {
  static const std::vector<Override> experts = {{"model.experts", "5"},
                                                {"model.expert_width", "13"},
                                                {"model.experts_per_token", "2"},
                                                {"model.balance_loss", "0.3"}};
  const auto with_experts = [&](std::vector<Override> keys) {
    keys.insert(keys.begin(), experts.begin(), experts.end());
    return keys;
  };
  static const std::vector<FamilyKeys> all = {
      {"llama", {}},
      {"llama 3.1",
       {{"model.rope_scaling", "llama3"},
        {"model.rope_factor", "4"},
        {"model.rope_original_length", "6"},
        {"model.tied_embedding", "true"}}},
      {"mistral", {{"model.window", "4"}, {"model.head_width", "6"}}},
      {"qwen2", {{"model.attention_bias", "true"}}},
      {"qwen3", {{"model.qk_norm", "true"}, {"model.head_width", "10"}}},
      {"phi3", {{"model.kv_heads", "6"}, {"model.rotary_share", "0.5"}}},
      {"smollm3", {{"model.rope_layers", "rrn"}, {"model.tied_embedding", "true"}}},
      {"granite",
       {{"model.embedding_scale", "3"},
        {"model.residual_scale", "0.22"},
        {"model.logits_divisor", "0.7"},
        {"model.query_scalar", "5"}}},
      {"mixtral", with_experts({{"model.family", "mixtral"}})},
      {"qwen3_moe", with_experts({{"model.qk_norm", "true"},
                                  {"model.expert_interval", "2"},
                                  {"model.router_normalise", "true"}})},
      {"deepseek_v3", with_experts({{"model.kv_heads", "6"},
                                    {"model.kv_lora_rank", "8"},
                                    {"model.q_lora_rank", "7"},
                                    {"model.qk_nope_width", "3"},
                                    {"model.qk_rope_width", "2"},
                                    {"model.v_head_width", "5"},
                                    {"model.experts", "6"},
                                    {"model.shared_experts", "1"},
                                    {"model.dense_layers", "1"},
                                    {"model.router_score", "sigmoid"},
                                    {"model.router_normalise", "true"},
                                    {"model.router_bias_rate", "0.05"},
                                    {"model.router_scale", "2.5"},
                                    {"model.expert_groups", "3"},
                                    {"model.groups_per_token", "2"}})},
      {"gpt_oss", with_experts({{"model.expert_bias", "true"},
                                {"model.swiglu_limit", "0.02"},
                                {"model.attention_bias", "true"},
                                {"model.attention_output_bias", "true"},
                                {"model.attention_sinks", "true"},
                                {"model.window", "4"},
                                {"model.window_layers", "wf"},
                                {"model.rope_scaling", "yarn"},
                                {"model.rope_factor", "4"},
                                {"model.rope_original_length", "6"},
                                {"model.rope_truncate", "false"}})},
      {"gemma2",
       {{"model.family", "gemma"},
        {"model.tied_embedding", "true"},
        {"model.head_width", "6"},
        {"model.query_scalar", "2"},
        {"model.attention_softcap", "0.1"},
        {"model.logits_softcap", "0.3"},
        {"model.window", "4"},
        {"model.window_layers", "wf"}}},
      {"gemma3_text",
       {{"model.family", "gemma"},
        {"model.qk_norm", "true"},
        {"model.window", "4"},
        {"model.window_layers", "wf"},
        {"model.rope_local_base", "50"},
        {"model.rope_base", "500"},
        {"model.rope_scaling", "linear"},
        {"model.rope_factor", "4"}}},
      {"gpt2", {{"model.family", "gpt2"}, {"model.kv_heads", "6"}}},
      {"bert",
       {{"model.family", "bert"},
        {"model.kv_heads", "6"},
        {"model.token_types", "2"},
        {"data.masked_share", "0.15"}}},
      {"t5",
       {{"model.family", "t5"},
        {"model.kv_heads", "6"},
        {"model.tied_embedding", "true"},
        {"model.relative_buckets", "8"},
        {"model.relative_distance", "12"},
        {"model.target_length", "11"},
        {"data.masked_share", "0.4"},
        {"data.span_length", "1"},
        {"data.sentinel_token", "36"}}}};
  return all;
}

TEST_F(FamilyLayouts, EachIsTheOneRankOnTheAxesOfTheTable) {
  const std::vector<std::vector<Override>> axes = {
      {{"parallel.tensor", "2"}},
      {{"parallel.context", "2"}},
      {{"parallel.pipeline", "2"}, {"parallel.schedule", "1f1b"}},
      {{"parallel.data", "2"}, {"parallel.zero", "3"}}};
  for (const FamilyKeys& family : families()) {
    SCOPED_TRACE(family.name);
    for (std::vector<Override> overrides : axes) {
      overrides.insert(overrides.end(), family.keys.begin(), family.keys.end());
      check(overrides, 2);
    }
  }
}

}  // namespace
}  // namespace trireme::train
